# SPDX-License-Identifier: Apache-2.0
"""Thousands of handshakes that are cut short, at each kind of socket: random bytes, half a message,
half an answer read, a shutdown, silence. Nothing of them stays, and nobody else waits."""
import collections
import os
import pathlib
import random
import socket
import struct

import support
from support import WithVictim

HANDSHAKES = 1200     # at each socket
HELD = 24             # of those, as many are open at once and silent
CHANNEL = support.ROOT / "abi/channel.h"
SLACK = 40            # descriptors of others
WAIT_S = 120          # no call here waits for longer


def constant(name):
    """The value of a #define in abi/channel.h."""
    for line in CHANNEL.read_text().splitlines():
        words = line.split()
        if words[:2] == ["#define", name]:
            return int(words[2].rstrip("uUlL"), 0)
    raise AssertionError(f"{CHANNEL} has no {name}")


def join_message():
    """A program's first message, struct sluice_join, as it should be."""
    return struct.pack("<II96s", constant("SLUICE_JOIN_MAGIC"), constant("SLUICE_CHANNEL_VERSION"),
                       b"cut-short")


class AdversaryHandshakes(WithVictim):
    def setUp(self):
        self.random = random.Random(15)
        self.outcomes = collections.Counter()

    def connect(self, path, kind):
        s = socket.socket(socket.AF_UNIX, kind)
        # By socket options: connect() waits for room in the backlog then, but not for ever.
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            s.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", WAIT_S, 0))
        s.connect(str(path))
        return s

    def send(self, s, data):
        try:
            s.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self.outcomes["full"] += 1

    def cut_short(self, s, right):
        """One handshake up to some point. `right`: what an honest peer would say first."""
        how = self.random.randrange(7)
        self.outcomes[how] += 1
        if how == 1:
            self.send(s, self.random.randbytes(self.random.randint(1, 8192)))
        elif how == 2:
            self.send(s, right[:self.random.randrange(1, len(right))])
        elif how == 3:
            # Its answer, if there is one yet, up to the middle of a word. Descriptors that come
            # with it are dropped by the kernel.
            try:
                s.recv(self.random.randint(1, 20), socket.MSG_DONTWAIT)
            except BlockingIOError:
                self.outcomes["nothing to read"] += 1
        elif how == 4:
            s.shutdown(self.random.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
        elif how == 5:
            self.send(s, right[:self.random.randrange(1, len(right))])
            s.shutdown(socket.SHUT_WR)
        elif how == 6:
            # One bit is wrong.
            wrong = bytearray(right)
            wrong[self.random.randrange(8)] ^= 1 << self.random.randrange(8)
            self.send(s, bytes(wrong))

    def flood(self, path, kind, right):
        held = collections.deque()
        for _ in range(HANDSHAKES):
            s = self.connect(path, kind)
            try:
                self.cut_short(s, right)
            except OSError as e:  # sluiced has hung up
                self.outcomes[type(e).__name__] += 1
            held.append(s)
            if len(held) > HELD or self.random.randrange(3) == 0:
                held.popleft().close()
        for s in held:
            s.close()

    def of_sluiced(self):
        proc = pathlib.Path(f"/proc/{self.sluiced.process.pid}")
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return (len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")), resident)

    def check(self, path, kind, right):
        with self.attack():
            descriptors, threads, resident = self.of_sluiced()
            self.flood(path, kind, right)
            print(f"{path.name}: {dict(self.outcomes)}", flush=True)
            # Each of the seven ways was tried some 170 times: one that leaves a descriptor shows.
            # The victim's and the monitor's own come and go.
            self.eventually(lambda: self.of_sluiced()[0] <= descriptors + SLACK,
                            "its descriptors are closed")
            # One that closes for each socket's peers, and may be new.
            self.assertLessEqual(self.of_sluiced()[1], threads + 2)
            self.assertLess(self.of_sluiced()[2], resident + (32 << 20))
        self.assert_all_free("a")
        self.assert_right(self.program("a", "triad", "--launches", 4, "--json").finish(),
                          "a program of the vGPU that was attacked")

    def test_a_virtual_machines(self):
        path = self.sluiced.vgpu_socket("a")
        self.check(path, socket.SOCK_STREAM, bytes(16))
        # A virtual machine is served: the protocol's version and its own number come first.
        with self.connect(path, socket.SOCK_STREAM) as s:
            self.assertEqual(struct.unpack("<qq", s.recv(16, socket.MSG_WAITALL)), (0, 1))

    def test_a_programs(self):
        self.check(self.sluiced.local_socket("a"), socket.SOCK_SEQPACKET, join_message())

    def test_an_administrators(self):
        right = b'{"jsonrpc":"2.0","id":1,"method":"metrics","params":{}}\n'
        self.check(self.sluiced.admin, socket.SOCK_STREAM, right)

    def test_programs_that_leave_while_their_worker_starts(self):
        """All is right, but nobody is there for the answer."""
        with self.attack():
            for _ in range(100):
                s = self.connect(self.sluiced.local_socket("a"), socket.SOCK_SEQPACKET)
                self.send(s, join_message())
                if self.random.randrange(2):
                    s.shutdown(socket.SHUT_WR)
                s.close()
        self.assert_all_free("a")
        self.eventually(lambda: self.vgpu("a")["sessions"] == 0, "no session is left")
        self.assert_right(self.program("a", "triad", "--launches", 4, "--json").finish())

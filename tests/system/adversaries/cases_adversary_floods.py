# SPDX-License-Identifier: Apache-2.0
"""Peers that connect to the admin socket without end: without permission, or with it and never
reading. Nobody else is kept out, and nothing of them stays. Peers that connect to a vGPU's sockets
and go, as fast as they can: they cost sluiced a part of a core."""
import os
import socket
import subprocess
import sys
import unittest

import support
from support import WithVictim

NOBODY = 65534
LAUNCHES = 300  # of the victim, beside each flood of a vGPU
# Holds so many connections to a socket, and says how many it has.
HOLD = """
import os, socket, sys
path, count, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if user:
    os.setgroups([]); os.setgid(user); os.setuid(user)
held = []
for _ in range(count):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    try:
        s.connect(path)
    except OSError:
        continue
    held.append(s)
print("held", len(held), flush=True)
sys.stdin.read()
"""


class AdversaryFloods(WithVictim):
    def hold(self, path, count, user):
        p = subprocess.Popen([sys.executable, "-c", HOLD, str(path), str(count), str(user)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def end():
            p.kill()
            p.communicate()

        self.addCleanup(end)
        self.assertTrue(p.stdout.readline().startswith("held "))
        return p

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.sluiced.process.pid}/fd"))

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_strangers_do_not_keep_the_administrator_out(self):
        """The socket's mode lets them connect; they are refused, and take nobody's place."""
        self.sluiced.admin.chmod(0o666)
        self.addCleanup(lambda: self.sluiced.admin.chmod(0o660))
        before = self.descriptors()
        with self.attack():
            strangers = [self.hold(self.sluiced.admin, 200, NOBODY) for _ in range(3)]
            self.assertIn("version", self.sluiced.ctl("info"))
            # All but the last few have been closed by sluiced itself.
            self.eventually(lambda: self.descriptors() < before + 200, "they are let go")
            for p in strangers:
                self.assertIsNone(p.poll())

    def test_clients_that_never_read(self):
        """Their answers are kept up to a bound; then they lose their connection."""
        request = b'{"jsonrpc":"2.0","id":1,"method":"metrics","params":{}}\n'
        with self.attack():
            clients = []
            for _ in range(8):
                s = socket.socket(socket.AF_UNIX)
                self.addCleanup(s.close)
                s.connect(str(self.sluiced.admin))
                s.settimeout(support.TIMEOUT_S)
                clients.append(s)
            for s in clients:
                with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                    for _ in range(100_000):
                        s.sendall(request)
            self.assertIn("version", self.sluiced.ctl("info"))


# Asks by a new connection each time, until its input ends.
ASK = """
import select, socket, sys
while not select.select([0], [], [], 0)[0]:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[1])
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"version","params":{}}\\n' * 20)
        s.recv(4096)
"""


class AdminStorm(WithVictim):
    def test_permitted_clients_that_ask_without_end(self):
        storms = []
        with self.attack():
            try:
                for _ in range(2):
                    storms.append(subprocess.Popen(
                        [sys.executable, "-c", ASK, str(self.sluiced.admin)],
                        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL))
                done = self.vgpu("b")["launches_done"]
                cpu_s, elapsed_s = self.sluiced_use_until(
                    lambda: self.vgpu("b")["launches_done"] > done + 50, "the victim works")
                for p in storms:
                    self.assertIsNone(p.poll(), "it storms")
                self.assertIn("version", self.sluiced.ctl("info"))
            finally:
                for p in storms:
                    p.communicate()
            print(f"sluiced {cpu_s:.2f} s of a core in {elapsed_s:.1f} s", flush=True)
            # Shares of 20 % in all (daemon/admin/turns.h), and some 8 % for the rest; before, 84 %.
            self.assertLess(cpu_s, 0.4 * elapsed_s + 0.3)


# Connects and goes, until its input ends.
CONNECT = """
import select, socket, sys
path, kind = sys.argv[1], getattr(socket, sys.argv[2])
while not select.select([0], [], [], 0)[0]:
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.setblocking(False)
        try:
            s.connect(path)
        except BlockingIOError:
            select.select([0], [], [], 0.001)
"""


class VgpuFloods(WithVictim):
    """Of a vGPU's machine and of its local programs."""

    def flood(self, path, kind):
        floods = []
        with self.attack():
            try:
                for _ in range(2):
                    floods.append(subprocess.Popen(
                        [sys.executable, "-c", CONNECT, str(path), kind], stdin=subprocess.PIPE))
                done = self.vgpu("b")["launches_done"]
                cpu_s, elapsed_s = self.sluiced_use_until(
                    lambda: self.vgpu("b")["launches_done"] > done + LAUNCHES, "the victim works")
                for p in floods:
                    self.assertIsNone(p.poll(), "it floods")
            finally:
                for p in floods:
                    p.communicate()
            print(f"sluiced {cpu_s:.2f} s of a core in {elapsed_s:.1f} s", flush=True)
            # What they cost is bounded to 10 % (io/loop_budget.h), the rest takes some 8 %. A
            # machine's connections took 90 %, at 1,400 a second, a program's 32 %.
            self.assertLess(cpu_s, 0.25 * elapsed_s + 0.3)
        self.assert_all_free("a")

    def test_connections_of_a_machine(self):
        self.flood(self.sluiced.vgpu_socket("a"), "SOCK_STREAM")

    def test_connections_of_local_programs(self):
        self.flood(self.sluiced.local_socket("a"), "SOCK_SEQPACKET")


class UrgentVgpu(WithVictim):
    """A vGPU with a priority whose program works a little again and again: sluiced polls for it."""
    EXTRA = "[scheduler]\nslices = true\n"
    WORKERS = "spin_processors = 2\n"

    def test_polling_for_it_spends_no_real_time(self):
        self.sluiced.ctl("set", "a", "--priority", 1)
        with self.attack():
            before = self.sluiced.ctl("info")["loop"]
            hog = self.adversary("hog", "paced", 30, 10000)
            self.assertEqual(hog.stdout.readline(), "ready\n")
            done = self.vgpu("a")["launches_done"]
            self.eventually(lambda: self.vgpu("a")["launches_done"] > done + 100, "it works")
            after = self.sluiced.ctl("info")["loop"]
            hog.kill()
        if before["priority"] not in ("real time", "spent"):
            self.skipTest(f"sluiced goes by {before['priority']} here")
        self.assertEqual(after["real_time_spent"], before["real_time_spent"])

# SPDX-License-Identifier: Apache-2.0
"""FakeMachine: a virtual machine without one. It plays QEMU, with our patches, on a vGPU's socket,
and the agent in the shared region; the machine's programs are processes of this host, whose channel
it gives them. So a test does at any moment what a hostile kernel, agent or QEMU could.

    with FakeMachine(sluiced.vgpu_socket("a"), work / "agent.sock") as machine:
        run(program, env={"SLUICE_SOCKET": machine.path})
        machine.reset()
"""
import contextlib
import itertools
import mmap
import os
import pathlib
import socket
import struct
import threading
import time

# abi/channel.h
CONTROL = 4096                      # sluice_control: two rings' indices, 192 bytes each
TO_HOST, TO_AGENT = CONTROL, CONTROL + 192
TO_HOST_DATA, TO_AGENT_DATA, RING_BYTES = 8192, 8192 + 16384, 16384
SLOTS, SLOT_STRIDE = 1 << 20, 1 << 20
AGENT_EPOCH = 512
JOIN_MAGIC, BY_EVENTFD = 0x6E696F6A, 1
OPEN, OPENED, CLOSE, CLOSED = 1, 2, 3, 4
RECORD, MESSAGE = struct.Struct("<IHHQQQ"), struct.Struct("<IIQQII96s")
PAD = 0x8000
# What a patched QEMU says of its guest.
RESET, LET_GO = -2, -3


class FakeMachine:
    """`agent` = False: only QEMU; nobody answers programs, and the test has the region to itself.
    """

    def __init__(self, vgpu_socket, path, agent=True):
        self.path = path
        self.qemu = socket.socket(socket.AF_UNIX)
        self.qemu.settimeout(300)
        self.qemu.connect(str(vgpu_socket))
        for wanted in (0, 1, -1):  # version, our number, the region
            value, descriptors = self._word()
            if value != wanted:
                raise OSError(f"ivshmem: {value} in the place of {wanted}")
        self.region_fd = descriptors[0]
        self.region = mmap.mmap(self.region_fd, 0)
        self.slots = self._read(24, "<I")
        if self.slots == 0 or len(self.region) <= 4096:
            raise OSError("refused: " + self.region[56:248].split(b"\0")[0].decode())
        bells = [self._word() for _ in range(2 * (self.slots + 1))]
        self.qemu.setblocking(False)
        self.host_bells = [fds[0] for peer, fds in bells if peer == 0]
        self.guest_bells = [fds[0] for peer, fds in bells if peer == 1]
        self.requests, self.programs, self.waiting = itertools.count(1), {}, {}
        self.over, self.lock, self.joins = threading.Event(), threading.RLock(), 0
        self.threads = []
        if agent:
            self.start_agent()
            pathlib.Path(path).unlink(missing_ok=True)
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.listener.bind(str(path))
            self.listener.listen(64)
            self.listener.settimeout(0.05)
            for work in (self._accept, self._answers):
                self.threads.append(threading.Thread(target=work, daemon=True))
                self.threads[-1].start()

    # --- QEMU ---
    def _word(self):
        data, descriptors, _, _ = socket.recv_fds(self.qemu, 8, 1)
        if len(data) != 8:
            raise OSError("sluiced hung up in the handshake")
        return struct.unpack("<q", data)[0], descriptors

    def say(self, value):
        with contextlib.suppress(BlockingIOError):
            self.qemu.send(struct.pack("<q", value), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def reset(self, restart=True):
        """The machine is reset: its programs are gone, and its agent starts again."""
        with self.lock:
            self.say(RESET)
            self.forget_programs()
            if restart:
                self.start_agent()

    def forget_programs(self):
        with self.lock:
            for s in [*self.programs, *self.waiting.values()]:
                s.close()
            self.programs.clear()
            self.waiting.clear()

    def state(self):
        """Of the agent, for people: what it waits for, and the ends of both rings."""
        with self.lock:
            return (f"{len(self.waiting)} wait, {len(self.programs)} joined, to the host "
                    f"{self.head} of {self._read(TO_HOST, '<Q')}, to the agent {self.tail} of "
                    f"{self._read(TO_AGENT, '<Q')}")

    # --- the region ---
    def _read(self, at, kind):
        return struct.unpack_from(kind, self.region, at)[0]

    def write(self, at, kind, value):
        struct.pack_into(kind, self.region, at, value % (1 << 64))

    def ring(self, vector):
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.host_bells[vector], 1)

    # --- the agent ---
    def start_agent(self):
        with self.lock:
            self.head = self._read(TO_HOST, "<Q")
            self.tail = self._read(TO_AGENT, "<Q")
            self.write(TO_AGENT + 64, "<Q", self.tail)
            self.write(AGENT_EPOCH, "<Q", time.monotonic_ns() | 1)
            self.ring(0)

    def send(self, opcode, slot=0, request=0, epoch=0, text=b""):
        with self.lock:
            size = RECORD.size + MESSAGE.size
            room = RING_BYTES - self.head % RING_BYTES
            if room < size:
                RECORD.pack_into(self.region, TO_HOST_DATA + self.head % RING_BYTES, room, 0, PAD,
                                 0, 0, 0)
                self.head += room
            at = TO_HOST_DATA + self.head % RING_BYTES
            RECORD.pack_into(self.region, at, size, opcode, 0, request, 0, 0)
            MESSAGE.pack_into(self.region, at + RECORD.size, slot, 0, request, epoch, os.getpid(),
                              0, text)
            self.head += size
            self.write(TO_HOST, "<Q", self.head)
            self.ring(0)

    def _receive(self):
        """The next message of sluiced's, or None."""
        with self.lock:
            while self._read(TO_AGENT, "<Q") != self.tail:
                at = TO_AGENT_DATA + self.tail % RING_BYTES
                size, opcode, flags, _, _, _ = RECORD.unpack_from(self.region, at)
                if size < RECORD.size or size > RING_BYTES:  # who rewrites the region reads that
                    self.tail = self._read(TO_AGENT, "<Q")
                    return None
                message = MESSAGE.unpack_from(self.region, min(at + RECORD.size,
                                                               len(self.region) - MESSAGE.size))
                self.tail += size
                self.write(TO_AGENT + 64, "<Q", self.tail)
                if not flags & PAD:
                    return opcode, message
            return None

    def _accept(self):
        while not self.over.is_set():
            try:
                s = self.listener.accept()[0]
            except TimeoutError:
                self._look_for_ends()
                continue
            s.settimeout(5)
            try:
                join = s.recv(104)
            except OSError:
                continue
            s.setblocking(False)
            if len(join) == 104:
                with self.lock:
                    request = next(self.requests)
                    self.waiting[request] = s
                self.send(OPEN, request=request, text=join[8:])
            self._look_for_ends()

    def _look_for_ends(self):
        with self.lock:
            for s, (slot, epoch) in list(self.programs.items()):
                try:
                    gone = s.recv(1, socket.MSG_DONTWAIT) == b""
                except BlockingIOError:
                    gone = False
                except OSError:
                    gone = True
                if gone:
                    s.close()
                    del self.programs[s]
                    self.send(CLOSE, slot=slot, epoch=epoch)

    def _answers(self):
        while not self.over.is_set():
            got = self._receive()
            if got is None:
                time.sleep(0.002)
                continue
            opcode, (slot, status, request, epoch, _, flags, text) = got
            if opcode != OPENED:
                continue
            with self.lock:
                s = self.waiting.pop(request, None)
                if s is None:
                    continue
                if status == 0 and slot < self.slots:
                    self.programs[s] = (slot, epoch)
                    self.joins += 1
            joined = struct.pack("<IIIIQQQQIIII192s", JOIN_MAGIC, status, slot, BY_EVENTFD, epoch,
                                 len(self.region), 0, 0, 0, 0, 1, flags, text)
            fds = [] if status or slot >= self.slots else [
                self.region_fd, self.host_bells[slot + 1], self.guest_bells[slot + 1]]
            with contextlib.suppress(OSError):
                socket.send_fds(s, [joined], fds)
            if not fds:
                s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()
        with self.lock:
            self.forget_programs()
        if self.threads:
            self.listener.close()
        self.qemu.close()
        self.region.close()
        for fd in [self.region_fd, *self.host_bells, *self.guest_bells]:
            os.close(fd)

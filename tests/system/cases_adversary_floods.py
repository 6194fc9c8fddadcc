# SPDX-License-Identifier: Apache-2.0
"""Peers that connect to the admin socket without end: without permission, or with it and never
reading. Nobody else is kept out, and nothing of them stays."""
import os
import socket
import subprocess
import sys
import unittest

import support
from support import WithVictim

NOBODY = 65534
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

# SPDX-License-Identifier: Apache-2.0
"""Shared memory: workers that die while their programs read it, and strangers who want to see
it."""
import os
import random
import select
import signal
import socket
import stat
import subprocess
import sys
import time

import support
from support import WithVictim

NOBODY = 65534


class AdversaryRegions(WithVictim):
    def reader(self, rounds=1000000):
        p = self.adversary("pinned-reader", rounds)
        self.assertEqual(p.stdout.readline().strip(), "ready")
        return p

    def worker_of(self, program):
        for s in self.sluiced.ctl("show", "a")["session_list"]:
            if s["pid"] == program.pid and s["state"] == "open":
                return s["worker_pid"]
        return None

    def kill_one(self, program, how):
        """Kills the worker of a program in one of several ways; returns what the program
        printed."""
        worker = self.worker_of(program)
        self.assertIsNotNone(worker)
        if how != "running":
            os.kill(program.pid, signal.SIGSTOP)
            if how == "stopped later":
                # Its worker may have answered what the program will read.
                select.select([], [], [], random.random() / 50)
        os.kill(worker, signal.SIGKILL)
        self.eventually(lambda: self.worker_of(program) is None, "sluiced sees the worker's end")
        os.kill(program.pid, signal.SIGCONT)
        text, _ = program.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(program.returncode, 3, f"{how}: {text}")
        return text

    def kill_at_random(self, go_on):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", flush=True)
        random.seed(seed)
        kills, running = 0, []
        with self.attack():
            while go_on(kills):
                while len(running) < 3:
                    running.append(self.reader())
                select.select([], [], [], random.random() / 5)
                victim = running.pop(random.randrange(len(running)))
                self.kill_one(victim, random.choice(["running", "stopped", "stopped later"]))
                kills += 1
            for p in running:
                p.kill()
                p.communicate()
        print(f"{kills} workers killed, no program read anything wrong", flush=True)
        self.assert_all_free("a")
        self.eventually(lambda: self.sluiced.ctl("show", "a")["region"]["extent_bytes_used"] == 0,
                        "the memory of all programs is freed")

    def test_no_program_reads_zeros_when_its_worker_is_killed(self):
        most = support.rounds(24, 9)
        self.kill_at_random(lambda kills: kills < most)

    def test_three_minutes_of_random_kills(self):
        if not support.rounds(True, False):
            self.skipTest("runs with scripts/test --all")
        end = time.monotonic() + 180
        self.kill_at_random(lambda kills: time.monotonic() < end)

    def test_memory_given_back_is_freed_aside_and_can_be_had_again(self):
        with self.attack():
            # Of a region of 256 MiB: each round has what the one before gave back.
            p = self.adversary("pinned-reader", "churn", 200, support.rounds(40, 10))
            text, _ = p.communicate(timeout=support.TIMEOUT_S)
            self.assertEqual(p.returncode, 0, text)

    def test_ended_programs_that_stay_take_only_their_own_vgpu(self):
        with self.attack():
            stay = [self.reader() for _ in range(3)]
            for p in stay:
                worker = self.worker_of(p)
                os.kill(p.pid, signal.SIGSTOP)
                os.kill(worker, signal.SIGKILL)
            self.eventually(lambda: self.sluiced.ctl("show", "a")["region"]["slots_ended"] == 3,
                            "their slots stay taken")
            for p in stay:
                os.kill(p.pid, signal.SIGKILL)
                p.communicate()
            self.eventually(lambda: self.sluiced.ctl("show", "a")["region"]["slots_ended"] == 0 and
                            self.sluiced.ctl("show", "a")["region"]["extent_bytes_used"] == 0,
                            "their slots are freed with them")

    def test_a_stranger_cannot_connect_as_a_virtual_machine(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        for f in [self.work, *self.work.parents]:
            if stat.S_ISDIR(f.stat().st_mode) and f != f.parent and str(f).startswith("/tmp/"):
                f.chmod(0o755)
        path = str(self.sluiced.vgpu_socket("b"))
        code = ("import os, socket, sys\n"
                f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
                "s = socket.socket(socket.AF_UNIX)\n"
                "try:\n    s.connect(sys.argv[1])\n"
                "except PermissionError:\n    print('no permission')\n"
                "else:\n    print('connected', s.recv(8))\n")
        with self.attack():
            p = subprocess.run([sys.executable, "-c", code, path], stdout=subprocess.PIPE,
                               text=True,
                               stderr=subprocess.STDOUT, timeout=support.TIMEOUT_S)
            self.assertEqual(p.stdout.strip(), "no permission")

    def test_create_leaves_the_socket_of_another_service_alone(self):
        path = self.work / "service.sock"
        with socket.socket(socket.AF_UNIX) as service:
            service.bind(str(path))
            service.listen()
            inode = path.stat().st_ino
            with self.attack():
                refused = self.sluiced.request("vgpu.create", name="thief", socket=str(path))
                self.assertIn(str(path), refused["error"]["message"])
                self.assertEqual(path.stat().st_ino, inode)
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(path))
        self.assertTrue(path.exists(), "nor is it removed later")

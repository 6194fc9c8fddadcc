# SPDX-License-Identifier: Apache-2.0
"""Peers that hold descriptors which sluiced uses: they may make each of them wait, fill it, or send
without end. sluiced's one thread must not notice (io/peers/peer_thread.h, base/peer_socket.h)."""
import os
import pathlib
import re
import resource
import subprocess

import support
from support import WithSluiced, WithVictim


class AdversaryDescriptors(WithVictim):
    def worst(self, *args):
        """Starts the adversary, and waits until it has done its worst."""
        attacker = self.adversary("hold-descriptors", *args)
        line = attacker.stdout.readline()
        self.assertEqual(line, "ready\n")
        return attacker

    def local(self, name="a"):
        return self.sluiced.local_socket(name)

    def work_goes_on(self, name="b", launches=50):
        """What sluiced uses meanwhile: seconds of a core, and seconds."""
        done = self.vgpu(name)["launches_done"]
        used, elapsed = self.sluiced_use_until(
            lambda: self.vgpu(name)["launches_done"] > done + launches, "the victim works")
        print(f"sluiced: {used:.2f} s of a core in {elapsed:.1f} s of the flood", flush=True)
        return used, elapsed

    def test_their_table_need_not_grow(self):
        """However many there come to be: to make it larger stops the loop."""
        status = pathlib.Path(f"/proc/{self.sluiced.process.pid}/status").read_text()
        limit, _ = resource.prlimit(self.sluiced.process.pid, resource.RLIMIT_NOFILE)
        self.assertGreaterEqual(int(re.search(r"FDSize:\s*(\d+)", status)[1]), limit)

    def test_full_wake_descriptors(self):
        with self.attack():
            self.worst("wake", self.local())
            self.eventually(lambda: self.vgpu("a")["sessions"] == 0, "its sessions are over")
            self.work_goes_on()

    def test_a_virtual_machine_with_bells_that_wait(self):
        with self.attack():
            began = self.sluiced.log().count("agent")
            self.worst("bells", self.sluiced.vgpu_socket("a"))
            self.work_goes_on(launches=200)
            # A new agent without end says so only now and then.
            self.assertLess(self.sluiced.log().count("agent") - began, 2000)

    def test_descriptors_that_linger(self):
        with self.attack():
            for path in (self.sluiced.vgpu_socket("a"), self.local(), self.sluiced.admin):
                self.worst("linger", path)
            self.work_goes_on()

    def test_messages_after_a_join(self):
        with self.attack():
            self.worst("talk", self.local())
            used, elapsed = self.work_goes_on(launches=200)
            # Some 1 %. Read as it comes, it was 61 %.
            self.assertLess(used, 0.25 * elapsed + 0.2)


class EndsBesideBlockedPeers(WithSluiced):
    """Its threads hang in writes to peers' descriptors when it is asked to end."""

    def test_it_ends_cleanly(self):
        for name in ("a", "b"):
            attacker = subprocess.Popen(
                [support.BUILD / "tests/system/adversaries/hold-descriptors", "bells",
                 self.sluiced.vgpu_socket(name)], stdout=subprocess.PIPE, text=True)
            self.addCleanup(attacker.communicate)
            self.addCleanup(attacker.kill)
            self.assertEqual(attacker.stdout.readline(), "ready\n")
        self.program("a", "triad", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("a")["launches_done"] > 0, "it launches")
        workers = [s["worker_pid"] for s in self.sluiced.ctl("show", "a")["session_list"]]
        # Past some seconds it would be killed, and the status be another.
        self.assertEqual(self.sluiced.stop(), 0, self.sluiced.log()[-3000:])
        self.eventually(lambda: not any(os.path.exists(f"/proc/{w}") for w in workers),
                        "its workers have gone")
        self.assertFalse(self.sluiced.admin.exists())

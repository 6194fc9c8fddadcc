# SPDX-License-Identifier: Apache-2.0
"""Peers that hold descriptors which sluiced uses: they may make each of them wait, fill it, or send
without end. sluiced's one thread must not notice (io/peer_thread.h, base/peer_socket.h)."""
import os

from support import WithVictim


class AdversaryDescriptors(WithVictim):
    def worst(self, *args):
        """Starts the adversary, and waits until it has done its worst."""
        attacker = self.adversary("hold-descriptors", *args)
        line = attacker.stdout.readline()
        self.assertEqual(line, "ready\n")
        return attacker

    def cpu_s(self):
        """Processor time that sluiced has used."""
        fields = open(f"/proc/{self.sluiced.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def local(self, name="a"):
        return self.sluiced.local_socket(name)

    def work_goes_on(self, name="b", launches=50):
        done = self.vgpu(name)["launches_done"]
        self.eventually(lambda: self.vgpu(name)["launches_done"] > done + launches,
                        "the victim works")

    def test_full_wake_descriptors(self):
        with self.attack():
            self.worst("wake", self.local())
            self.eventually(lambda: self.vgpu("a")["sessions"] == 0, "its sessions are over")
            self.work_goes_on()

    def test_a_virtual_machine_with_bells_that_wait(self):
        with self.attack():
            began = self.sluiced.log().count("agent")
            before = self.cpu_s()
            self.worst("bells", self.sluiced.vgpu_socket("a"))
            self.work_goes_on(launches=200)
            print(f"sluiced: {self.cpu_s() - before:.2f} s of a core beside the flood", flush=True)
            # A new agent without end says so only now and then.
            self.assertLess(self.sluiced.log().count("agent") - began, 2000)

    def test_descriptors_that_linger(self):
        with self.attack():
            for path in (self.sluiced.vgpu_socket("a"), self.local(), self.sluiced.admin):
                self.worst("linger", path)
            self.work_goes_on()

    def test_messages_after_a_join(self):
        with self.attack():
            before = self.cpu_s()
            self.worst("talk", self.local())
            self.work_goes_on(launches=200)
            print(f"sluiced: {self.cpu_s() - before:.2f} s of a core beside the flood", flush=True)

# SPDX-License-Identifier: Apache-2.0
"""Real guests: QEMU under TCG with stock ivshmem-doorbell, the Debian package, VFIO in the
guest."""
import os
import signal

from support import WithSluiced, boot, last_json, wait_for_gpu


class Guests(WithSluiced):
    # A sound guest on vGPU `a` that a test has left running for the next one: booting is most of
    # what these tests take.
    left = None

    def take(self):
        """A guest on vGPU `a`; it ends with the test unless that leaves it."""
        q, Guests.left = Guests.left, None
        q = q or boot(self, self.sluiced, "a", for_class=True)
        self.addCleanup(lambda: q is Guests.left or q.kill())
        return q

    def leave(self, q):
        Guests.left = q

    def run_right(self, q, command):
        status, text = q.guest.run(command, 300)
        self.assertEqual(status, 0, f"{command}: {text}\n--- console:\n{q.console()[-3000:]}"
                         f"\n--- sluiced:\n{self.sluiced.log()[-3000:]}")
        result = last_json(text.splitlines())
        self.assertEqual(result["wrong"], 0, text)
        self.assertGreater(result["right"], 0, text)

    def test_a_program_in_a_guest(self):
        q = self.take()
        status, text = q.guest.run("dpkg --version >/dev/null 2>&1; grep -A1 sluice-guest-agent "
                                   "/var/lib/dpkg/status")
        self.assertIn("install ok installed", text)
        self.run_right(q, "sluice-suite-triad --launches 4 --json")
        self.run_right(q, "sluice-suite-reduction --launches 4 --chain 2 --verify every --json")
        status, text = q.guest.run("sluice-suite-fault")
        self.assertEqual(status, 0, text)
        self.run_right(q, "sluice-suite-histogram --launches 4 --json")
        # A session that the host ends: its slot and memory are free once its program has gone.
        q.guest.start("sluice-suite-md5 --seconds 600")
        def sessions():
            return [s for s in self.sluiced.ctl("show", "a")["session_list"]
                    if s["state"] == "open"]
        self.eventually(lambda: len(sessions()) == 1, "the program is on")
        os.kill(sessions()[0]["worker_pid"], signal.SIGKILL)
        self.eventually(lambda: not sessions()
                        and self.sluiced.ctl("show", "a")["region"]["extent_bytes_used"] == 0,
                        "slot and memory are free")
        self.assertEqual(self.sluiced.ctl("show", "a")["region"]["slots_ended"], 0)
        self.run_right(q, "sluice-suite-triad --launches 2 --json")
        self.leave(q)

    def test_a_guest_without_an_iommu(self):
        q = boot(self, self.sluiced, "b", iommu=False)
        self.eventually(lambda: "by sysfs" in q.console(), "the agent says how it has the device")
        self.run_right(q, "sluice-suite-triad --launches 4 --json")
        self.run_right(q, "sluice-suite-reduction --launches 4 --chain 2 --verify every --json")
        status, text = q.guest.run("sluice-agent doctor --json", 300)
        checks = {c["name"]: c for c in last_json(text.splitlines())["checks"]}
        self.assertEqual(checks["transport"]["state"], "right", text)
        self.assertRegex(checks["host"]["fact"], r"^release \d[^;]*$", "equal to the guest's")
        self.assertTrue(checks["transport"]["fact"].startswith("sysfs: no interrupts"), text)
        self.assertEqual(checks["launch"]["state"], "right", text)
        q.guest.start("sluice-suite-md5 --seconds 600")
        def launches():
            done = self.vgpu("b")["launches_done"]
            self.eventually(lambda: self.vgpu("b")["launches_done"] > done, "the guest launches")
        launches()
        # As at an upgrade: another agent in its place, and the program goes on.
        q.guest.run("kill -HUP $(pidof sluice-agent)")
        self.eventually(lambda: "goes on with vGPU" in q.console(), "an agent has taken over")
        launches()
        self.run_right(q, "sluice-suite-triad --launches 2 --json")
        # The agent ends while a program runs: the next one has the device when the program is gone.
        q.guest.run("kill -9 $(pidof sluice-agent)")
        wait_for_gpu(self, q)
        self.run_right(q, "sluice-suite-triad --launches 2 --json")

    def test_a_second_vm_on_the_same_vgpu_is_refused_with_a_reason(self):
        q = self.take()
        import support
        import virt
        vmlinux, initramfs = support.image()
        other = virt.Qemu("other", support.folder(), vmlinux, initramfs,
                          self.sluiced.vgpu_socket("a"))
        self.addCleanup(other.kill)
        other.boot()
        self.eventually(lambda: "another virtual machine is connected" in other.console(),
                        "the agent prints the refusal")
        self.run_right(q, "sluice-suite-triad --launches 2 --json")
        self.leave(q)

    def test_a_guest_killed_in_the_middle_of_a_launch(self):
        q = self.take()
        neighbour = self.neighbour()
        q.guest.start("sluice-suite-md5 --seconds 60")
        done = self.vgpu("a")["launches_done"]
        self.eventually(lambda: self.vgpu("a")["launches_done"] > done, "the guest launches")
        q.kill()
        self.assert_neighbour_right(neighbour)
        self.assert_all_free("a")
        again = self.take()
        self.run_right(again, "sluice-suite-triad --launches 2 --json")
        self.leave(again)

    def test_a_guest_rebooted_in_the_middle_of_a_launch(self):
        q = self.take()
        neighbour = self.neighbour()
        q.guest.start("sluice-suite-md5 --seconds 60")
        done = self.vgpu("a")["launches_done"]
        self.eventually(lambda: self.vgpu("a")["launches_done"] > done, "the guest launches")
        # The same QEMU goes on with a new kernel. The line is hung up only once the order is read.
        reboot = q.guest.start("echo now; sleep 1; reboot -f")
        self.eventually(lambda: reboot.lines, "the guest takes the order")
        q.reconnect()
        wait_for_gpu(self, q)
        self.run_right(q, "sluice-suite-triad --launches 2 --json")
        self.assert_neighbour_right(neighbour)
        self.assert_all_free("a")
        self.leave(q)

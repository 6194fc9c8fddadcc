# SPDX-License-Identifier: Apache-2.0
"""A guest that stops the GPU on purpose, with faults or with kernels that do not leave: each costs
its neighbours up to 150 ms (2 s), so it may do that only now and then (core/penalty.h). The
software GPU stands still as an H100 does."""
import os

import support
from support import WithSluiced, WithVictim

STALL_MS = 150
EXCEPTION_MS = 78
MOST_MS = 1050      # core/penalty.h: what a vGPU's faults may have cost others at any time ...
FORGIVEN = 1 / 400  # ... and what of the time goes off that


class AdversaryFaults(WithVictim):
    def setUp(self):
        # What an earlier test has done is forgotten with the vGPU.
        self.sluiced.ctl("delete", "a")
        self.sluiced.ctl("create", "a", "--weight", 1)

    def show(self, name="a"):
        return self.sluiced.ctl("show", name)

    def gpu_ns(self):
        """What the adversary and the victim have used of the GPU."""
        vgpus = self.sluiced.stats()["vgpus"]
        return [vgpus[name]["gpu_ns"] for name in "ab"]

    def lines_of(self, adversary, count):
        """The adversary's next lines, until `count` faults have got through."""
        got = []
        while sum(line.startswith("got") for line in got) < count:
            line = adversary.stdout.readline()
            self.assertTrue(line, f"it ended: {got}")
            got.append(line)
        return got

    def most_ms(self, began_ns, over=1):
        """What faults may have cost since then, in sluiced's own time; `over`: faults under way
        when it is barred."""
        return MOST_MS + over * STALL_MS + (self.sluiced.stats()["now_ns"] -
                                            began_ns) / 1e6 * FORGIVEN

    def test_faults_as_fast_as_allowed(self):
        with self.attack():
            began = self.sluiced.stats()["now_ns"]
            attacker = self.adversary("fault-again", "unmapped", 1000)
            got = self.lines_of(attacker, 3)
            self.assertEqual(got, ["got 700\n"] * 3)
            self.eventually(lambda: self.vgpu("a")["faults"] >= 3, "the faults are counted")
            a = self.vgpu("a")
            self.assertEqual(a["fault_stall_ms"], a["faults"] * STALL_MS,
                             "as the GPU's own record has it")
            self.eventually(lambda: self.show()["back_off"]["holds"]
                            and self.show()["back_off"]["waiting"],
                            "its next program waits")
            self.assertGreater(self.show()["back_off"]["opens_in_ms"], 0)
            self.assertIn("stopped others", self.sluiced.log())
            # It goes on for as long as it likes: the victim's launches say for how long.
            done = self.vgpu("b")["launches_done"] + support.rounds(200, 60)
            self.eventually(lambda: self.vgpu("b")["launches_done"] > done, "the victim works")
            self.assertLessEqual(self.vgpu("a")["fault_stall_ms"], self.most_ms(began))
            attacker.kill()
            # What it caused was taken off its share, not off the victim's.
            self.assertGreater(self.vgpu("a")["usage"]["charged_sm_ns"], 0)

    def test_many_sessions_at_once(self):
        with self.attack():
            began = self.sluiced.stats()["now_ns"]
            attacker = self.adversary("fault-again", "unmapped", 12, 12)
            barred = lambda: self.show()["back_off"]["state"] == "barred"
            gone = lambda: attacker.poll() is not None and self.vgpu("a")["sessions"] == 0
            # Once it has gone, nothing more can bar it: that is a failure, with the reason below.
            self.eventually(lambda: barred() or gone(), "it has used up its minute, or has gone")
            was_barred = barred()  # it stays so for a minute
            text = attacker.communicate(timeout=support.TIMEOUT_S)[0]
            self.eventually(lambda: self.vgpu("a")["sessions"] == 0, "all its sessions are ended")
            a, back_off, most = self.vgpu("a"), self.show()["back_off"], self.most_ms(began, over=3)
            why = (f"{a['faults']} faults, {a['fault_stall_ms']} of at most {most:.0f} ms, "
                   f"{a['forced_ends']} forced ends, {back_off}; it printed {text.split(chr(10))}")
            print(why, flush=True)  # while it runs: a report at the end may be lost
            self.assertTrue(was_barred, f"it has not used up its minute: {why}")
            # Those that were on the GPU when it was barred have done it already.
            self.assertLessEqual(a["fault_stall_ms"], most, why)
            self.assertIn("got 46", text, f"who was ended for the others reads why: {why}")

    def test_a_fault_that_is_hidden_by_leaving_counts(self):
        with self.attack():
            # Some leave before their launch was granted: those have done nothing.
            attacker = self.adversary("fault-again", "hide", 1000)
            self.eventually(lambda: self.vgpu("a")["faults"] >= 1, "one is known of")
            attacker.kill()
            a = self.vgpu("a")
            self.assertEqual(a["fault_stall_ms"], a["faults"] * STALL_MS)

    def test_traps_cost_nothing(self):
        with self.attack():
            attacker = self.adversary("fault-again", "trap", 12)
            text = attacker.communicate(timeout=support.TIMEOUT_S)[0]
            self.assertEqual(text, "got 719\n" * 12 + "done\n")
            if support.DEVICE == "nvidia":
                # By its error a trap is no different from an access beyond shared memory, and traps
                # without a back-off left a victim on an H200 0.48 of its share. It costs as much as
                # an exception, and no more.
                self.assertLessEqual(self.vgpu("a")["fault_stall_ms"], 12 * EXCEPTION_MS)
                return
            self.assertEqual(self.vgpu("a")["fault_stall_ms"], 0)
            self.assertFalse(self.show()["back_off"]["holds"])

    def test_spins_are_slowed_and_shortened(self):
        with self.attack(pace=()):  # it is to have all that it can
            before = self.gpu_ns()
            attacker = self.adversary("fault-again", "spin", 1000)
            self.lines_of(attacker, 1)
            self.eventually(lambda: self.vgpu("a")["forced_ends"] >= 1, "it is counted")
            self.eventually(lambda: self.show()["back_off"]["waiting"], "its next program waits")
            self.assertEqual(self.show()["back_off"]["state"], "waiting")
            self.lines_of(attacker, 1)
            self.eventually(lambda: self.vgpu("a")["forced_ends"] >= 2, "once more")
            attacker.kill()
            # Two spins and the pause between them: 2.7 times as much at a load of 13, where the
            # spinning worker is excused and the victim waits for processors; 0.7 without the pause.
            attacker_s, victim_s = ((after - then) / 1e9 for then, after in
                                    zip(before, self.gpu_ns()))
            print(f"GPU time: attacker {attacker_s:.2f} s, victim {victim_s:.2f} s", flush=True)
            self.assertGreater(victim_s, 1.2 * attacker_s)

    def test_alone_nobody_waits(self):
        sluiced = self.sluiced
        for name in ("a", "b"):  # forgets that the victim was there
            sluiced.ctl("delete", name)
            sluiced.ctl("create", name, "--weight", 1)
        attacker = self.adversary("fault-again", "unmapped", 9)
        text = attacker.communicate(timeout=support.TIMEOUT_S)[0]
        self.assertEqual(text, "got 700\n" * 9 + "done\n")
        self.assertEqual(self.vgpu("a")["faults"], 9)
        self.assertEqual(self.show()["back_off"]["debt_ms"], 0)


class FaultsInTheKernelsLog(WithSluiced):
    """NVIDIA's module writes who faulted into the kernel's log: nothing that a worker says or hides
    matters."""

    @classmethod
    def setUpClass(cls):
        cls.log_pipe = support.folder() / "kmsg"
        os.mkfifo(cls.log_pipe)
        cls.EXTRA = f'kernel_log = "{cls.log_pipe}"\n'  # still in [device]
        super().setUpClass()

    def test_a_fault_that_its_worker_hides_counts(self):
        self.assertTrue(self.sluiced.ctl("info")["workers"]["sees_xids"])
        done = {v: self.vgpu(v)["launches_done"] for v in "ab"}
        programs = [self.program(v, "triad", "--seconds", 100000) for v in "ab"]
        for v in "ab":
            self.eventually(lambda v=v: self.vgpu(v)["launches_done"] > done[v], "it launches")
        worker = self.sluiced.ctl("show", "a")["session_list"][0]["worker_pid"]
        with open(self.log_pipe, "wb", buffering=0) as log:
            # a program's own line; not a worker
            for pid, facility in ((worker, 8), (os.getpid(), 0)):
                log.write(f"{facility + 4},1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid={pid}, "
                          "name=x\n".encode())
            log.write(f"4,2,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid={worker}, name=x, Ch 8\n"
                      .encode())
            self.eventually(lambda: self.vgpu("a")["faults"] == 1, "the fault is counted")
            # Records that make no sense, and an end of the log, harm nobody.
            log.write(b"\x00" * 20000 + b"\n;;;;\n" * 500)
        for p in programs:
            self.assertIsNone(p.process.poll())
        self.assertEqual((self.vgpu("a")["faults"], self.vgpu("b")["faults"]), (1, 0))

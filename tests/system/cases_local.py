# SPDX-License-Identifier: Apache-2.0
"""The path on one host: programs join through the local transport, one software GPU."""
import difflib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import unittest

import host
import support
from support import PROGRAMS, WithSluiced


def differences(theirs, ours):
    """What of `theirs` is not in `ours` ("- line") and the other way round ("+ line"), behind a
    line "-- section"."""
    def sections(lines):
        found = {}
        for line in lines:
            if line.startswith("-- "):
                at = found.setdefault(line, [])
            else:
                at.append(line)
        return found

    theirs, ours, out = sections(theirs), sections(ours), []
    for name in {**ours, **theirs}:
        a, b = theirs.get(name, []), ours.get(name, [])
        rows = [row for tag, i, j, k,
                n in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
                if tag != "equal" for row in ["- " + x for x in a[i:j]] +
                ["+ " + x for x in b[k:n]]]
        out += [name, *rows] if rows else []
    return out


class Local(WithSluiced):
    def test_each_program_alone(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.assert_right(self.program("a", name, "--launches", 6, "--json").finish(), name)
        self.assert_all_free("a")

    def test_dependent_launches_with_copies_and_events(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.assert_right(self.program("a", name, "--launches", 4, "--chain", 3,
                                               "--streams", 2,
                                               "--verify", "every", "--json").finish(), name)

    def test_two_vgpus_evict_each_other_and_all_results_are_right(self):
        before = {n: self.vgpu(n)["evictions"] for n in ("a", "b")}
        running = [self.program(v, p, "--seconds", 6, "--json")
                   for v in ("a", "b") for p in ("triad", "md5", "matmul")]
        for p in running:
            self.assert_right(p.finish(), p.name)
        for n in ("a", "b"):
            self.assertGreater(self.vgpu(n)["evictions"], before[n], n)
        self.assert_all_free("a")
        self.assert_all_free("b")

    def test_memory_calls_answer_and_leave_what_they_should(self):
        p = subprocess.run([support.BUILD / "tests/system/memory-calls"],
                           env=self.sluiced.client_env("a"), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, f"{p.stdout}{p.stderr}\n{self.sluiced.log()[-3000:]}")
        self.assert_all_free("a")

    def test_a_program_says_that_it_waits_for_a_sluiced_that_does_not_answer(self):
        self.sluiced.process.send_signal(signal.SIGSTOP)
        try:
            p = self.program("a", "triad", "--launches", 2)
            end = threading.Timer(support.TIMEOUT_S, p.process.kill)
            end.start()
            self.addCleanup(end.cancel)
            self.assertIn("the vGPU has not answered for 10 s", p.process.stdout.readline())
        finally:
            self.sluiced.process.send_signal(signal.SIGCONT)
        self.assert_right(p.finish())

    @unittest.skipUnless(support.DEVICE == "soft", "not every host lets a GPU's registers be read")
    def test_measured_time_is_shown_with_its_source_and_bound(self):
        running = [self.program(v, "triad", "--seconds", 4, "--json") for v in ("a", "b")]
        self.eventually(lambda: self.sluiced.ctl("info")["accounting"]["source"] == "registers",
                        "the software GPU's registers are read")
        for p in running:
            self.assert_right(p.finish(), p.name)
        sources = {s["name"]: s["state"] for s in self.sluiced.ctl("info")["accounting"]["sources"]}
        self.assertEqual(sources["clock"], "in use")
        self.assertEqual(sources["switch_log"], "in use")
        for v in ("a", "b"):
            u = self.sluiced.ctl("show", v)["usage"]
            self.assertGreater(u["used_ns"], 0)
            self.assertLessEqual(u["used_ns"], u["held_ns"] + u["error_ns"])
            # A worker that is interrupted before it gives the engine back has kept it: a little,
            # now and then.
            self.assertLess(u["ungranted_ns"], u["held_ns"] / 2, "honest workers run with a grant")
            self.assertEqual(u["contradictions"], 0)
            self.assertIn("registers", u["by"])

    def test_a_weight_set_while_programs_run_takes_effect(self):
        running = [self.program(v, "triad", "--seconds", 5, "--json") for v in ("a", "b")]
        self.sluiced.ctl("set", "a", "--weight", 7)
        self.assertEqual(self.vgpu("a")["weight"], 7)
        for p in running:
            self.assert_right(p.finish(), p.name)
        self.sluiced.ctl("set", "a", "--weight", 1)


class LocalVirtualMemory(WithSluiced):
    """Its programs fault: beside a vGPU that is there the later ones would wait for a minute."""

    def test_virtual_memory_calls_answer_as_an_h200_but_for_what_is_listed(self):
        self.maxDiff = None
        folder = support.ROOT / "tests/conformance/virtual_memory"
        recorded = (folder / "h200.txt").read_text().splitlines()
        listed = [line for line in (folder / "differences.txt").read_text().splitlines()
                  if not line.startswith("#")]
        # in the place of ours
        alone = {"LD_PRELOAD": str(support.BUILD / "mediator/softgpu/libsluice-softcuda.so")}
        for how, env in {"through the channel": self.sluiced.client_env("a"),
                         "software GPU": {**os.environ, **alone}}.items():
            with self.subTest(how):
                p = subprocess.run([support.BUILD / "tests/conformance/virtual-memory-calls"],
                                   env=env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   timeout=support.TIMEOUT_S)
                self.assertEqual(differences(recorded, p.stdout.splitlines()), listed,
                                 f"{p.stderr}\n{self.sluiced.log()[-3000:]}")
        self.assert_all_free("a")


class StreamWriteSignal(WithSluiced):
    """The same where workers have to be woken to take an eviction to the GPU (`[device]
    signal`)."""
    EXTRA = 'signal = "stream-write"\n[scheduler]\nslices = false\n'

    def test_two_vgpus_evict_each_other(self):
        self.assertEqual(self.sluiced.ctl("info")["device"]["signal"], "stream-write")
        running = [self.program(v, p, "--seconds", 3, "--json") for v in ("a", "b")
                   for p in ("triad", "md5")]
        for p in running:
            self.assert_right(p.finish(), p.name)
        for n in ("a", "b"):
            v = self.vgpu(n)
            self.assertGreater(v["evictions"], 0, n)
            self.assertGreater(v["physical_evictions"], 0, f"{n}: no launch heard of an eviction")
            self.assertEqual(v["progress"]["launches"], 0, n)


class Restart(WithSluiced):
    def test_what_was_learnt_of_kernels_outlives_sluiced(self):
        self.assert_right(self.program("a", "triad", "--launches", 20, "--json").finish(), "triad")
        self.assert_all_free("a")
        self.assertEqual(self.sluiced.stop(), 0, self.sluiced.log()[-3000:])
        learnt = self.work / "state/a.kernels"
        text = learnt.read_text()
        self.assertGreaterEqual(len(text.splitlines()), 2, text)
        self.assertFalse((self.work / "state/b.kernels").exists(), "nothing ran there")
        self.sluiced.start()
        self.sluiced.ctl("create", "a", "--weight", 1)
        # Long enough to be seen under way, and predicted from what the other life knew.
        running = self.program("a", "triad", "--seconds", 8, "--json")
        self.eventually(lambda: self.vgpu("a")["progress"]["predicted_launches"] > 0,
                        "launches are predicted")
        self.assert_right(running.finish(), "triad")
        self.assertNotIn("left aside", self.sluiced.log())

    def test_show_counts_launches_that_cannot_be_evicted(self):
        self.assert_right(self.program("a", "triad", "--launches", 3, "--json").finish(), "triad")
        before = self.sluiced.ctl("show", "a")["launches"]
        self.assertGreaterEqual(before["all"], 3)
        self.assertEqual(before["opaque"], 0)
        env = {**self.sluiced.client_env("a"), "SLUICE_REWRITE": "off"}
        program = [support.BUILD / "kernels/suite/sluice-suite-triad", "--seconds", "1", "--json"]
        p = subprocess.run(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, p.stdout)
        self.assertGreater(self.sluiced.ctl("show", "a")["launches"]["opaque"], 0)


class Upgrade(WithSluiced):
    """As an upgrade of the package does it: the programs' files are replaced, then SIGHUP."""

    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        programs = host.Built(support.BUILD)
        (cls.work / "libexec").mkdir()
        programs.worker = shutil.copy(programs.worker, cls.work / "libexec")
        # systemd's, which says nothing.
        systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        cls.addClassCleanup(systemd.close)
        systemd.bind(str(cls.work / "notify"))
        cls.sluiced = host.Sluiced(support.BUILD, cls.work, device=support.DEVICE,
                                   programs=programs, env={"NOTIFY_SOCKET": cls.work / "notify"})
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("a", "b"):
            cls.sluiced.ctl("create", name)

    def test_programs_go_on_and_the_last_ones_end_is_sluiceds(self):
        running = self.program("a", "triad", "--seconds", 100000, "--json")
        self.eventually(lambda: self.vgpu("a")["launches_done"] > 0, "it launches")
        worker = pathlib.Path(self.sluiced.programs.worker)
        new = worker.with_suffix(".dpkg-new")
        new.write_text("another release's\n")
        new.chmod(0o755)
        new.rename(worker)
        self.assertFalse(self.sluiced.ctl("info")["ends_when_idle"])
        self.sluiced.process.send_signal(signal.SIGHUP)
        self.eventually(lambda: self.sluiced.ctl("info")["ends_when_idle"], "it is told")
        self.assertIn("started anew as soon as no program", self.sluiced.run("info"))
        # One that starts now has the worker of the sluiced that runs.
        self.assert_right(self.program("b", "triad", "--launches", 3, "--json").finish(), "triad")
        done = self.vgpu("a")["launches_done"]
        self.eventually(lambda: self.vgpu("a")["launches_done"] > done, "it goes on")
        running.process.send_signal(signal.SIGINT)
        self.assert_right(running.finish(), "triad")
        self.assertEqual(self.sluiced.process.wait(support.TIMEOUT_S), 75, self.sluiced.log())


class Faults(WithSluiced):
    """What one program does wrong costs that program only. `b` computes beside every fault."""

    def setUp(self):
        self.beside = self.neighbour()

    def neighbour_is_unharmed(self):
        self.assert_neighbour_right(self.beside)
        self.assert_all_free("a")

    def test_ptx_that_does_not_parse(self):
        p = subprocess.run([support.BUILD / "tests/system/bad-ptx"],
                           env=self.sluiced.client_env("a"),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, p.stdout)
        self.assertIn("cuModuleLoadData is not supported: launches from the GPU: cudaGraphLaunch",
                      p.stdout)
        self.neighbour_is_unharmed()

    def test_a_kernel_that_writes_out_of_bounds(self):
        status, text = self.program("a", "fault").finish()
        self.assertEqual(status, 0, text)
        self.neighbour_is_unharmed()

    def test_a_program_killed_in_the_middle_of_a_launch(self):
        victim = self.program("a", "md5", "--seconds", 60)
        self.eventually(lambda: self.vgpu("a")["launches"] > 2, "the victim launches")
        victim.kill()
        self.neighbour_is_unharmed()

    def test_a_worker_killed(self):
        victim = self.program("a", "triad", "--seconds", 120)
        done = self.vgpu("a")["launches_done"]
        self.eventually(lambda: self.vgpu("a")["launches_done"] > done, "the victim launches")
        (session,) = self.sluiced.ctl("show", "a")["session_list"]
        os.kill(session["worker_pid"], signal.SIGKILL)
        status, text = victim.finish()
        self.assertNotEqual(status, 0, "the program must see the error")
        self.assertIn("CUDA_ERROR", text)
        self.neighbour_is_unharmed()

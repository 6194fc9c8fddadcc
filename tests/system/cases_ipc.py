# SPDX-License-Identifier: Apache-2.0
"""Memory and events that several programs of a vGPU have (cuIpcGetMemHandle and kin)."""
import os
import subprocess

import support
from support import WithSluiced

SUCCESS, INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 0, 1, 201, 400, 600
MIB = 1 << 20


class Ipc(WithSluiced):
    def start(self, vgpu="a", env=None):
        p = subprocess.Popen([support.BUILD / "tests/system" / "ipc-calls"],
                             env=env or self.sluiced.client_env(vgpu), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(lambda: p.stdin.closed or p.stdin.close())
        self.assertEqual(p.stdout.readline(), "0\n")
        return p

    def setUp(self):
        super().setUp()
        # Or their memory is counted as there before.
        self.eventually(lambda: not any(self.vgpu(v)["sessions"] for v in ("a", "b")),
                        "programs of the test before have gone")

    def ask(self, program, *commands):
        """Gives it the commands; what the last one is about. All succeed."""
        about = ""
        for command in commands:
            status, about = self.answer(program, command)
            self.assertEqual(status, SUCCESS, command + self.sluiced.log()[-2000:])
        return about

    @staticmethod
    def answer(program, command):
        program.stdin.write(command + "\n")
        program.stdin.flush()
        status, _, about = program.stdout.readline().rstrip("\n").partition(" ")
        return int(status), about

    def used(self, vgpu="a"):
        return self.vgpu(vgpu)["memory_bytes"]

    def pass_it_on(self, start):
        a, b = start(), start()
        handle = self.ask(a, f"alloc {8 * MIB}", "fill 7", "export")
        self.assertEqual(self.ask(a, "export"), handle)  # each time the same
        address = self.ask(b, f"open {handle}")
        self.assertEqual(self.ask(b, "read"), "7 7")
        self.ask(b, "fill 8")
        self.assertEqual(self.ask(a, "read"), "8 8")
        self.ask(a, "fill 9")
        self.assertEqual(self.ask(b, "read"), "9 9")
        self.assertEqual(self.ask(b, f"open {handle}"), address)
        self.ask(b, "close")
        self.assertEqual(self.ask(b, "read"), "9 9")  # opened twice, closed once
        self.ask(b, "close")
        self.assertEqual(self.answer(b, "close")[0], INVALID_VALUE)
        self.assertEqual(self.answer(b, "read")[0], INVALID_VALUE)
        self.assertEqual(self.answer(a, f"open {handle}")[0], INVALID_CONTEXT)  # its own
        self.assertEqual(self.answer(b, "open " + 128 * "0")[0], INVALID_VALUE)
        # Less than a page: what else lies in it stays where it is.
        small = self.ask(a, "alloc 64", "fill 5", "export")
        self.ask(a, "alloc 64", "fill 6")
        self.ask(b, f"open {small}")
        self.assertEqual(self.ask(b, "read").split()[0], "5")
        self.assertEqual(self.answer(b, "free")[0], INVALID_VALUE)
        self.ask(b, "close")
        return a, b

    def test_two_programs_have_the_same_memory(self):
        self.pass_it_on(self.start)

    def test_two_programs_have_the_same_memory_on_the_software_gpu_alone(self):
        if support.DEVICE != "soft":
            self.skipTest("of the software GPU")
        env = {**os.environ, "LD_PRELOAD":
               str(support.BUILD / "mediator/softgpu/libsluice-softcuda.so"),
               "SLUICE_SOFT_FILE": ""}
        self.pass_it_on(lambda: self.start(env=env))

    def test_a_handle_opens_nothing_for_another_vgpu(self):
        a, b, same = self.start("a"), self.start("b"), self.start("a")
        handle = self.ask(a, f"alloc {MIB}", "fill 1", "export")
        self.assertEqual(self.answer(b, f"open {handle}")[0], INVALID_VALUE)
        forged = handle[:16] + ("1" if handle[16] == "0" else "0") + handle[17:]
        self.assertEqual(self.answer(same, f"open {forged}")[0], INVALID_VALUE)
        beyond = handle[:48] + "ffffffffffffff7f" + handle[64:]  # the offset
        self.assertEqual(self.answer(same, f"open {beyond}")[0], INVALID_VALUE)
        self.ask(same, f"open {handle}")

    def test_memory_outlives_its_program_and_is_charged_once(self):
        size = 256 * MIB
        a, b, c = self.start(), self.start(), self.start()
        before = self.used()
        handle = self.ask(a, f"alloc {size}", "fill 3", "export")
        with_it = self.used()
        self.assertGreaterEqual(with_it, before + size)
        for importer in (b, c):
            self.ask(importer, f"open {handle}")
        self.assertEqual(self.used(), with_it)
        a.kill()
        a.wait()
        self.eventually(lambda: self.vgpu("a")["sessions"] == 2, "the exporter's session is over")
        self.assertGreaterEqual(self.used(), size)
        self.assertLess(self.used(), with_it)
        self.assertEqual(self.ask(b, "read"), "3 3")
        self.ask(b, "fill 4", "close")
        self.assertEqual(self.ask(c, "read"), "4 4")
        self.assertGreaterEqual(self.used(), size)
        self.assertEqual(self.answer(b, f"open {handle}")[0], INVALID_VALUE)
        with_it = self.used()
        self.ask(c, "close")
        self.eventually(lambda: self.used() <= with_it - size, "nobody has it any more")

    def test_memory_that_was_freed_stays_with_who_has_it(self):
        size = 256 * MIB
        a, b = self.start(), self.start()
        before = self.used()
        self.ask(b, "open " + self.ask(a, f"alloc {size}", "fill 3", "export"))
        self.ask(a, "free")
        self.eventually(lambda: size <= self.used() - before < 2 * size, "it is charged once")
        self.assertEqual(self.ask(b, "read"), "3 3")
        self.ask(a, f"alloc {size}", "fill 5")
        self.assertEqual(self.ask(b, "read"), "3 3")
        b.kill()
        b.wait()
        a.kill()
        a.wait()
        self.assert_all_free("a")

    def test_memory_that_was_freed_in_a_stream_is_not_given_out_again(self):
        a, b = self.start(), self.start()
        # Smaller memory lies beside other memory of its program on NVIDIA's driver, which passes
        # all of that on.
        size = 16 * MIB
        self.ask(b, "open " + self.ask(a, f"alloc {size}", "fill 3", "export"))
        self.ask(a, "freeasync", f"allocasync {size}", "fill 5")
        self.assertEqual(self.ask(b, "read"), "3 3")

    def test_a_pool_of_several_programs(self):
        size = 256 * MIB
        a, b, other = self.start("a"), self.start("a"), self.start("b")
        pool = self.ask(a, "pool")
        self.ask(a, f"allocpool {size}", "fill 3")
        handle, with_it = self.ask(a, "exportpool"), self.used()
        self.assertEqual(self.answer(b, f"openpool {__file__}")[0], INVALID_VALUE)
        self.ask(b, f"openpool {pool}")
        self.assertEqual(self.answer(b, f"allocpool {size}")[0], INVALID_VALUE)
        for at in (0, 16, 112):  # kind, token, the pool's number
            forged = handle[:at] + ("1" if handle[at] == "0" else "0") + handle[at + 1:]
            self.assertEqual(self.answer(b, f"importpool {forged}")[0], INVALID_VALUE)
        self.assertEqual(self.answer(a, f"importpool {handle}")[0], INVALID_VALUE)  # not imported
        self.ask(b, f"importpool {handle}")
        self.assertEqual(self.used(), with_it)
        self.assertEqual(self.ask(b, "read"), "3 3")
        self.ask(b, "fill 4")
        self.assertEqual(self.ask(a, "read"), "4 4")
        self.assertEqual(self.answer(b, "close")[0], INVALID_VALUE)  # no memory of cuIpcOpen...
        self.assertEqual(self.answer(b, "exportpool")[0], INVALID_VALUE)
        # As a handle it is a handle's, and as such no other vGPU's.
        self.ask(other, f"openpool {pool}")
        self.assertEqual(self.answer(other, f"importpool {handle}")[0], INVALID_VALUE)
        # Freed in a stream, or with its program, it stays with who has it.
        self.ask(a, "freeasync", f"allocpool {size}", "fill 5")
        self.assertEqual(self.ask(b, "read"), "4 4")
        a.kill()
        a.wait()
        self.eventually(lambda: size <= self.used() < 2 * size, "it is charged once")
        self.assertEqual(self.ask(b, "read"), "4 4")
        with_it = self.used()
        self.ask(b, "freeasync")
        self.eventually(lambda: self.used() <= with_it - size, "nobody has it any more")
        self.assertEqual(self.answer(b, f"importpool {handle}")[0], INVALID_VALUE)

    def test_streams_wait_for_events_of_other_programs(self):
        a, b = self.start(), self.start()
        self.ask(b, "open " + self.ask(a, f"alloc {MIB}", "fill 1", "export"),
                 "openevent " + self.ask(a, "event"), "query", "wait")  # not recorded: over
        self.ask(a, "hold", "queue 2", "record")
        for p in (a, b):
            self.assertEqual(self.answer(p, "query")[0], NOT_READY)
        self.ask(b, "wait")
        self.ask(a, "release")
        self.assertEqual(self.ask(b, "last"), "2")
        for p in (a, b):
            self.ask(p, "synchronize", "query")
        # The other way.
        self.ask(b, "hold", "queue 3", "record")
        self.ask(a, "wait")
        self.assertEqual(self.answer(a, "query")[0], NOT_READY)
        self.ask(b, "release")
        self.assertEqual(self.ask(a, "last"), "3")
        self.ask(a, "synchronize")
        self.assertEqual(self.answer(b, "openevent " + 128 * "0")[0], INVALID_HANDLE)
        self.ask(b, "endevent")
        self.ask(a, "record", "synchronize", "endevent")
        for p in (a, b):
            p.stdin.close()
            self.assertEqual(p.wait(), 0)
        self.assert_all_free("a")

    def test_who_waits_for_a_record_of_a_program_that_has_ended_is_told(self):
        a, host, stream = self.start(), self.start(), self.start()
        memory, event = self.ask(a, f"alloc {MIB}", "fill 1", "export"), self.ask(a, "event")
        for p in (host, stream):
            self.ask(p, f"open {memory}", f"openevent {event}")
        self.ask(a, "hold", "queue 2", "record")
        self.ask(stream, "wait")
        self.assertEqual(self.answer(host, "query")[0], NOT_READY)
        a.kill()
        a.wait()
        self.assertEqual(self.answer(host, "synchronize")[0], INVALID_HANDLE)
        self.assertEqual(self.answer(stream, "last")[0], INVALID_HANDLE)
        self.ask(stream, "last", "endevent")  # that was all

# SPDX-License-Identifier: Apache-2.0
"""Programs that take device memory in every way but by allocating it: a vGPU's limit holds for all
of them, and the rest of the GPU is its neighbour's."""
import subprocess

import support

MIB = 1 << 20
LIMIT = 64 * MIB
GPU = 256 * MIB
# What is left to the victim's own program and to contexts.
SPARE = 40 * MIB
# By adversaries/programs/bomb.cc: more than anybody may have. Host memory is 32 MiB here: less than
# 65,536 operations take, at which a program would only be made to wait.
BOMBS = {"events": 100000, "stalled-launches": 200000, "stalled-values": 200000}
WAYS = ("modules", "constants", "local", "heap", "stack", "contexts", "streams")


class TakesMemory(support.WithVictim):
    EXTRA = f'soft_memory = "{GPU // MIB}M"\n[vgpu]\nhost_memory = "32M"\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sluiced.ctl("set", "a", "--memory", f"{LIMIT // MIB}M")

    def start(self, vgpu, *args):
        p = subprocess.Popen([support.BUILD / "tests/system/adversaries/take-memory",
                              *map(str, args)],
                             env=self.sluiced.client_env(vgpu), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)

        def end():
            if p.poll() is None:
                p.kill()
            p.communicate()

        self.addCleanup(end)
        return p

    def held(self, p):
        line = p.stdout.readline()
        if not line.startswith("held "):
            self.fail(f"{line}{p.stdout.read()}\n{self.sluiced.log()[-3000:]}")
        return int(line.split()[1])

    def assert_shown_as(self, way):
        """`show` names what the memory went to, and the kinds add up to what is leased."""
        kinds = self.sluiced.ctl("show", "a")["memory_by_kind"]
        host = kinds.pop("host")
        self.assertEqual(sum(kinds.values()), self.vgpu("a")["memory_bytes"])
        shown = {"modules": "modules", "constants": "modules", "local": "local memory",
                 "heap": "limits", "stack": "limits", "contexts": "contexts", "streams": "contexts"}
        used = {k: b for k, b in kinds.items() if k != "unused"}
        if way == "modules":
            self.assertGreater(host, 0)
        if sum(used.values()) > LIMIT // 2:
            self.assertEqual(max(used, key=used.get), shown[way], kinds)

    def test_every_way(self):
        """Each way by itself; then a neighbour gets all that the limit leaves, and what it writes
        stays."""
        with self.attack():
            for way in WAYS:
                with self.subTest(way):
                    taker = self.start("a", way)
                    held = self.held(taker)
                    self.assertLess(held, 4096, "there was an end to it")
                    self.assertLessEqual(self.vgpu("a")["memory_bytes"], LIMIT)
                    self.assert_shown_as(way)
                    rest = self.start("b", "alloc", GPU - LIMIT - SPARE)
                    self.assertEqual(self.held(rest), 1)
                    out, _ = rest.communicate("", timeout=support.TIMEOUT_S)
                    self.assertIn("right", out)
                    self.assertEqual(rest.returncode, 0, out)
                    out, _ = taker.communicate("", timeout=support.TIMEOUT_S)
                    self.assertEqual(taker.returncode, 0, out)
                    self.assert_all_free("a")
                    self.eventually(lambda: self.vgpu("b")["sessions"] == 1,
                                    "only the victim is left")

    def test_bombs(self):
        """Objects and queues that cost next to nothing to ask for: what they take of the host is
        charged, and the neighbour's work goes on."""
        for way, count in BOMBS.items():
            self.sluiced.ctl("create", way, "--weight", 1)
            self.addCleanup(self.sluiced.ctl, "delete", way)
        with self.attack():
            bombs = [self.adversary("bomb", way, count, vgpu=way) for way, count in BOMBS.items()]
            for way, p in zip(BOMBS, bombs):
                said = p.stdout.readline()
                while said and not said.startswith(way):
                    said = p.stdout.readline()
                self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", said, self.sluiced.log()[-3000:])
            for p in bombs:
                p.kill()
            for way in BOMBS:
                self.assert_all_free(way)

    def test_all_ways_at_once(self):
        with self.attack():
            takers = [self.start("a", way) for way in WAYS]
            for p in takers:
                line = p.stdout.readline()  # some do not even get a context
                self.assertTrue(line.startswith("held ") or "OUT_OF_MEMORY" in line, line)
            self.assertLessEqual(self.vgpu("a")["memory_bytes"], LIMIT)
            rest = self.start("b", "alloc", GPU - LIMIT - SPARE)
            self.assertEqual(self.held(rest), 1)
            out, _ = rest.communicate("", timeout=support.TIMEOUT_S)
            self.assertIn("right", out)
            for p in takers:
                p.communicate("", timeout=support.TIMEOUT_S)
            self.assert_all_free("a")

# SPDX-License-Identifier: Apache-2.0
"""A hostile virtual machine (fake_machine.py) beside a victim: it is reset, lets go of its device
or hangs up at any moment of its programs' lives, rings all bells as fast as it can, and rewrites
every word of the shared memory at random while its programs work. No worker may die of a mistake of
its own, nothing may be left, and the vGPU serves the next machine."""
import contextlib
import os
import random
import re
import subprocess
import threading
import time

import fake_machine
import support
from cases_adversary_calls import CRASHES
from fake_machine import FakeMachine
from support import WithVictim

# By hand: SLUICE_TEST_SECONDS=60.
SECONDS = float(os.environ.get("SLUICE_TEST_SECONDS", "6"))
RESETS = int(os.environ.get("SLUICE_TEST_RESETS", "16"))


class AdversaryMachine(WithVictim):
    def setUp(self):
        super().setUp()
        self.seed = random.randrange(1 << 32)
        print(f"seed {self.seed}", flush=True)
        self.random = random.Random(self.seed)
        self.running = []
        self.addCleanup(self.kill_all)

    def machine(self):
        """Connected. sluiced may not have seen yet that the one before has hung up."""
        end = time.monotonic() + support.TIMEOUT_S
        while True:
            try:
                return FakeMachine(self.sluiced.vgpu_socket("a"), self.work / "agent.sock")
            except OSError as refused:
                if "another virtual machine" not in str(refused) or time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def start(self, machine, name="stencil2d", *args):
        p = subprocess.Popen(
            [support.BUILD / "kernels/suite" / f"sluice-suite-{name}",
             *map(str, args or ("--seconds", 100000))],
            env={**self.sluiced.client_env("a"), "SLUICE_SOCKET": str(machine.path)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace")
        self.running.append(p)
        return p

    def kill_all(self):
        while self.running:
            p = self.running.pop()
            p.kill()
            p.communicate()

    def assert_unharmed(self):
        """Nothing is left of the machines, and the next one is served."""
        self.kill_all()
        self.assert_all_free("a")
        crashed = [line for line in self.sluiced.log().splitlines()
                   if re.search(f"died of signal .*({CRASHES})", line)]
        self.assertEqual(crashed, [])
        with self.machine() as machine:
            finished = self.start(machine, "triad", "--launches", 4, "--json")
            text, _ = finished.communicate(timeout=support.TIMEOUT_S)
            self.assert_right((finished.returncode, text), "a program of the next machine")
        self.assert_all_free("a")

    def until(self, state, machine):
        """Waits until the machine's programs are in a state, or have passed it. Those that an end
        of their agent or machine has caught are started again."""
        def reached(condition):
            if condition():
                return True
            if all(p.poll() is not None for p in self.running):
                self.kill_all()
                self.start(machine)
            return False

        if state == "joining":
            self.eventually(lambda: reached(lambda: machine.waiting or machine.programs), state)
        else:
            self.eventually(lambda: reached(lambda: machine.programs), "joined")
        if state in ("launching", "evicted"):
            key = "launches_done" if state == "launching" else "evictions"
            before = self.vgpu("a")[key]
            self.eventually(lambda: reached(lambda: self.vgpu("a")[key] > before), state)
        time.sleep(self.random.random() / 50)

    def test_resets_in_each_state(self):
        ends = []
        with self.attack(), contextlib.ExitStack() as stack:
            machine = stack.enter_context(self.machine())
            for n in range(RESETS):
                for _ in range(2):
                    self.start(machine)
                state = ("joining", "joined", "launching", "evicted")[n % 4]
                try:
                    self.until(state, machine)
                except AssertionError:
                    print(f"{'; '.join(ends)}; {state}: {machine.state()}, programs "
                          f"{[p.poll() for p in self.running]}", flush=True)
                    raise
                how = self.random.choice(("reset", "reset, no agent", "let go", "hang up", "all"))
                ends.append(f"{state}: {how}")
                if how == "hang up":
                    stack.close()
                    machine = stack.enter_context(self.machine())
                elif how == "let go":
                    machine.say(fake_machine.LET_GO)
                    machine.forget_programs()
                elif how == "all":  # as often as the socket takes
                    for _ in range(1000):
                        machine.say(fake_machine.RESET)
                    machine.reset()
                else:
                    machine.reset(restart=how == "reset")
                if how in ("reset, no agent", "let go"):
                    machine.start_agent()
                self.kill_all()
                self.assertIsNone(self.sluiced.process.poll())
        print("; ".join(ends), flush=True)
        self.assert_unharmed()

    def test_every_bell_at_full_speed(self):
        """Those of slots that nobody has, too, and of the host's own vector."""
        over = threading.Event()
        self.addCleanup(over.set)
        rings = [0]

        def ring(machine):
            while not over.is_set():
                for vector in range(machine.slots + 1):
                    machine.ring(vector)
                rings[0] += machine.slots + 1

        with self.attack(), self.machine() as machine:
            self.start(machine)
            self.until("launching", machine)
            bells = [threading.Thread(target=ring, args=(machine,), daemon=True) for _ in range(2)]
            for t in bells:
                t.start()
            done = self.vgpu("b")["launches_done"]
            time.sleep(SECONDS)
            over.set()
            for t in bells:
                t.join()
            self.assertGreater(self.vgpu("b")["launches_done"], done)
        print(f"{rings[0]} rings", flush=True)
        self.assert_unharmed()

    def rewrite(self, machine, over, counts):
        """Random words at random places, the headers and the rings' ends more often."""
        r, region = self.random, machine.region
        while not (over.is_set() or machine.over.is_set()):
            slot = r.randrange(min(4, machine.slots)) * fake_machine.SLOT_STRIDE
            slot += fake_machine.SLOTS
            for _ in range(r.choice((1, 1, 4, 64, 1000))):
                where = r.randrange(10)
                if where < 2:
                    at = r.randrange(0, 40960, 8)
                elif where < 5:
                    at = slot + r.randrange(0, 1024, 8)
                elif where < 7:  # what stands at the end of a ring just now
                    ring, data, size = r.choice(((264, 64 << 10, 512 << 10),
                                                 (456, 640 << 10, 256 << 10)))
                    head = machine._read(slot + ring, "<Q")
                    at = slot + data + (head - r.randrange(0, 512, 8)) % size // 8 * 8
                elif where < 9:
                    at = slot + r.randrange(0, fake_machine.SLOT_STRIDE, 8)
                else:
                    at = r.randrange(0, len(region), 8)
                old = machine._read(at, "<Q")
                new = r.choice((0, (1 << 64) - 1, r.getrandbits(64), old ^ 1 << r.randrange(64),
                                old + r.choice((-32, 32, 64, 1 << 20)), r.getrandbits(12)))
                machine.write(at, "<Q", new % (1 << 64))
                counts["words"] += 1
            if r.randrange(3) == 0:
                machine.ring(r.randrange(machine.slots + 1))
            time.sleep(r.choice((0, 0, 0.001, 0.02)))

    def test_every_word_of_the_region_changes_during_work(self):
        over, counts = threading.Event(), {"words": 0, "programs": 0}
        self.addCleanup(over.set)
        with self.attack(), self.machine() as machine:
            self.start(machine)
            self.until("launching", machine)
            writer = threading.Thread(target=self.rewrite, args=(machine, over, counts),
                                      daemon=True)
            writer.start()
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                # What they read is rubbish; some end by it, some wait for ever.
                for p in [p for p in self.running if p.poll() is not None]:
                    p.communicate()
                    self.running.remove(p)
                if len(self.running) > 3:
                    self.running[0].kill()
                if len(self.running) < 4:
                    self.start(machine, self.random.choice(support.PROGRAMS))
                    counts["programs"] += 1
                time.sleep(self.random.random() / 5)
                if self.random.randrange(3) == 0:
                    machine.start_agent()
                self.assertIsNone(self.sluiced.process.poll(), self.sluiced.log()[-3000:])
            over.set()
            writer.join()
            joins = machine.joins
        print(f"{counts['words']} words, {counts['programs']} programs, {joins} sessions",
              flush=True)
        self.assertGreater(joins, 1)
        self.assert_unharmed()

# SPDX-License-Identifier: Apache-2.0
"""A guest that uses host functions and memory pools as hardly any program does
(programs/odd_uses.cc), beside a victim whose results are checked."""
import time

from support import WithVictim

ATTACK_S = 2


class AdversaryOddUses(WithVictim):
    def check(self, *how):
        with self.attack():
            attacker = self.adversary("odd-uses", *how)
            self.assertEqual(attacker.stdout.readline(), "ready\n")
            time.sleep(ATTACK_S)
            self.assertIsNone(attacker.poll())
            attacker.kill()
        self.assert_all_free("a")

    def test_a_storm_of_host_functions(self):
        self.check("storm")

    def test_host_functions_without_end(self):
        self.check("endless")

    def test_host_functions_that_call_cuda(self):
        """Some of its calls wait for the very function that makes them, for ever."""
        self.check("calling")

    def test_exits_from_host_functions(self):
        self.check("exiting")

    def test_pools_at_their_ends(self):
        for seed in (1, 2):
            with self.subTest(seed=seed):
                self.check("pools", seed)

# SPDX-License-Identifier: Apache-2.0
"""A worker that a guest has taken over claims work and launches nothing
(programs/claiming_worker.cc): its neighbour goes on, and sluiced is not kept busy by it."""
import support
from host import Sluiced
from support import WithVictim

LAUNCHES = 20  # of the victim, beside each claim


class Claims(WithVictim):
    EXTRA = ""
    CLAIMS = ("running", "blink20000")

    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        real = support.BUILD / "mediator/worker"
        evil = support.BUILD / "tests/system/adversaries/claiming-worker"
        cls.sluiced = Sluiced(support.BUILD, cls.work, device="soft",
                              extra=cls.SOFT_GPU + cls.EXTRA,
                              env={"SLUICE_EVIL_REAL": str(real / "sluice-worker")})
        text = cls.sluiced.config.read_text()
        text = text.replace(f'worker = "{real}/sluice-worker"', f'worker = "{evil}"', 1)
        text = text.replace("[workers]\n", f'[workers]\npaths = ["{real}"]\n', 1)
        cls.sluiced.config.write_text(text)
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("b", *cls.CLAIMS):
            cls.sluiced.ctl("create", name, "--weight", 1)

    def test_the_victim_goes_on(self):
        with self.attack():
            for name in self.CLAIMS:
                with self.subTest(name):
                    guest = self.program(name, "triad", "--seconds", 100000)
                    self.eventually(lambda: self.vgpu(name)["grants"] > 0, "it claims")
                    done = self.vgpu("b")["launches_done"]
                    cpu_s, elapsed_s = self.sluiced_use_until(
                        lambda: self.vgpu("b")["launches_done"] > done + LAUNCHES,
                        "the victim works", 60)
                    print(f"{name}: sluiced {cpu_s:.2f} s of a core in {elapsed_s:.2f} s",
                          flush=True)
                    # By registers that were read without a pause whenever it came, it took more
                    # than a core.
                    self.assertLess(cpu_s, 0.6 * elapsed_s + 0.3)
                    self.assertEqual(self.vgpu("b")["sessions_ended_by_scheduler"], 0)
                    guest.kill()
                    self.assert_all_free(name)


class ClaimsOnSlices(Claims):
    """By use alone who claims and uses nothing would never be ahead: the victim had none."""
    EXTRA = ('[scheduler]\nslices = true\n'
             '[worker_environment]\nSLUICE_SOFT_MODE = "timeslice"\n')
    CLAIMS = ("queued", "blink200")

# SPDX-License-Identifier: Apache-2.0
"""sluiced without privileges: started as root it becomes a user of its own, and all still works."""
import os
import pathlib
import signal
import stat
import subprocess
import unittest

import support
from cases_adversary_worker import alive
from support import WithSluiced

USER, GROUP = 64123, 64124  # nobody's
CAPABILITY_FIELDS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def status_of(task):
    """The fields of /proc/PID[/task/TID]/status."""
    lines = (pathlib.Path("/proc") / str(task) / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@unittest.skipUnless(os.geteuid() == 0, "sluiced has to be started as root")
class UserOfItsOwn(WithSluiced):
    EXTRA = f'[daemon]\nuser = "{USER}"\ngroup = "{GROUP}"\n'

    def pid(self):
        return self.sluiced.process.pid

    def short(self, vgpu, sluiced=None):
        return support.Program(sluiced or self.sluiced, vgpu, "triad", "--launches", 4,
                               "--verify", "every", "--json")

    def another(self, work, user=USER):
        """A sluiced of the test's own."""
        s = support.Sluiced(support.BUILD, work, device=support.DEVICE,
                            extra=f'[daemon]\nuser = "{user}"\n')
        self.addCleanup(s.stop)
        s.start()
        return s

    def assert_unprivileged(self):
        threads = os.listdir(f"/proc/{self.pid()}/task")
        self.assertGreater(len(threads), 1)
        for thread in threads:
            fields = status_of(f"{self.pid()}/task/{thread}")
            self.assertEqual(fields["Uid"].split(), [str(USER)] * 4, fields["Name"])
            self.assertEqual(fields["Gid"].split(), [str(GROUP)] * 4, fields["Name"])
            self.assertNotIn("0", fields["Groups"].split())
            for name in CAPABILITY_FIELDS:
                self.assertEqual(int(fields[name], 16), 0, f"{fields['Name']}: {name}")
            self.assertEqual(fields["NoNewPrivs"], "1", fields["Name"])

    def test_it_has_its_user_and_no_capability(self):
        for name in ("a", "b"):
            self.short(name).finish()
        self.assert_unprivileged()
        info = self.sluiced.ctl("info")
        self.assertEqual((info["uid"], info["capabilities"]), (USER, 0))

    def test_members_of_its_group_may_administer(self):
        """As `adduser YOU sluice` makes them: the group is not their first."""
        def ctl(groups):
            return subprocess.run(["setpriv", f"--reuid={USER + 2}", f"--regid={USER + 2}", groups,
                                   self.sluiced.programs.sluicectl, "--socket", self.sluiced.admin,
                                   "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=support.TIMEOUT_S, cwd="/")
        member = ctl(f"--groups={GROUP},{USER + 3}")
        self.assertEqual(member.returncode, 0, member.stderr)
        self.assertIn("waiting", member.stdout)
        self.assertIn("Permission denied", ctl(f"--groups={USER + 3}").stderr)
        # Whoever got a connection for another group's sake is asked all the same.
        self.sluiced.admin.chmod(0o666)
        self.addCleanup(self.sluiced.admin.chmod, 0o660)
        self.assertIn("only root and the daemon's own", ctl("--clear-groups").stderr)

    def test_its_files_are_its_own(self):
        run = self.sluiced.run_dir
        for path in (run, run / "vgpu", self.sluiced.admin, self.sluiced.vgpu_socket("a"),
                     self.sluiced.local_socket("a"), self.sluiced.work / "state"):
            self.assertEqual(path.stat().st_uid, USER, path)
            self.assertFalse(path.stat().st_mode & stat.S_IWOTH, path)
        self.assertEqual((run / "workers").stat().st_uid, 0, "the spawner's file stays root's")

    def test_nobody_else_may_open_what_it_makes(self):
        self.short("a").finish()
        for folder in (self.sluiced.run_dir, self.sluiced.work / "state"):
            for path in (folder, *folder.rglob("*")):
                mode = path.lstat().st_mode
                # Folders on the way to a socket may be entered; all else is for their owner, and
                # sockets for their group.
                allowed = 0o755 if stat.S_ISDIR(mode) else 0o660 if stat.S_ISSOCK(mode) else 0o600
                self.assertEqual(stat.S_IMODE(mode) & ~allowed, 0, f"{path}: {mode:o}")

    def test_workers_have_the_same_walls(self):
        """What the host allows the spawner of a root sluiced, it allows this one's."""
        rooted = self.another(support.folder(), "root")
        self.assertEqual(rooted.ctl("info")["uid"], 0)
        self.assertEqual(self.sluiced.ctl("info")["workers"]["missing_walls"],
                         rooted.ctl("info")["workers"]["missing_walls"])

    def test_programs_share_the_gpu(self):
        both = [self.program(v, "stencil2d", "--seconds", 3, "--verify", "every", "--json")
                for v in "ab"]
        for p in both:
            self.assert_right(p.finish())
        stats = self.sluiced.stats()["vgpus"]
        self.assertGreater(min(stats[v]["launches_done"] for v in "ab"), 0)
        for v in "ab":
            self.assert_all_free(v)

    def test_a_worker_is_ended(self):
        """Its own user may signal no worker: the spawner does."""
        p = self.program("a", "stencil2d", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("a")["launches_done"] > 0, "it launches")
        self.sluiced.ctl("delete", "a")
        self.addCleanup(lambda: self.sluiced.ctl("create", "a", "--weight", 1))
        self.assertNotEqual(p.finish()[0], 0)

    def test_a_dead_spawner_is_replaced(self):
        spawner = self.sluiced.ctl("info")["workers"]["spawner_pid"]
        os.kill(spawner, signal.SIGKILL)

        def now():
            return self.sluiced.ctl("info")["workers"]["spawner_pid"]

        self.eventually(lambda: now() not in (spawner, -1), "another spawner serves")
        self.eventually(lambda: not alive(spawner), "the earlier one does not")
        self.assert_right(self.short("b").finish())
        self.assert_unprivileged()

    def test_what_it_learnt_is_kept_and_files_of_a_root_sluiced_are_taken_over(self):
        work = support.folder()
        for user in ("root", USER, USER):
            s = self.another(work, user)
            s.ctl("create", "c")
            # Until something was learnt: sluiced reads the records of launches now and then, and
            # a hardware GPU is done with 20 of them before it does.
            p = support.Program(s, "c", "stencil2d", "--seconds", 100000, "--verify", "every",
                                "--json")
            self.addCleanup(lambda p=p: p.process.poll() is None and p.kill())
            self.eventually(lambda s=s: s.stats()["vgpus"]["c"]["launches_done"] > 0, "it launches")
            self.eventually(lambda s=s: s.ctl("show", "c")["launches"]["kernels_known"] > 0,
                            "it learns")
            p.process.send_signal(signal.SIGINT)
            self.assert_right(p.finish())
            self.assertEqual(s.stop(), 0, s.log()[-3000:])
        kept = list((work / "state").iterdir())
        self.assertTrue(kept)
        self.assertEqual({f.stat().st_uid for f in kept}, {USER})
        self.assertNotIn("may be lost", s.log())

    def test_a_crash_leaves_no_worker(self):
        s = self.another(support.folder())
        s.ctl("create", "c")
        p = support.Program(s, "c", "stencil2d", "--seconds", 100000)
        self.addCleanup(lambda: p.process.poll() is None and p.kill())
        self.eventually(lambda: s.stats()["vgpus"]["c"]["launches_done"] > 0, "it launches")
        spawner = s.ctl("info")["workers"]["spawner_pid"]
        s.process.kill()
        s.process.wait()
        self.eventually(lambda: not alive(spawner), "the spawner ends")
        s.start()
        s.ctl("create", "c")
        self.assert_right(self.short("c", s).finish())

    def test_without_a_keeper_it_ends(self):
        """It cannot start workers any more, and says so."""
        s = self.another(support.folder())
        spawner = s.ctl("info")["workers"]["spawner_pid"]
        os.kill(int(status_of(spawner)["PPid"]), signal.SIGKILL)
        self.assertEqual(s.process.wait(support.TIMEOUT_S), 1)
        self.assertIn("may not start workers any more", s.log())

# SPDX-License-Identifier: Apache-2.0
"""Version skew: host and guest are upgraded at different times. The commit that `older_commit`
names is built, and its host runs this tree's programs and guest, and the other way round.

    older libcuda, newer host     a container made before the host's upgrade
    newer libcuda, older host     a container made after the guest's package was upgraded
    older agent, newer host       a virtual machine, likewise
    newer agent, older host

Versions that do not exist yet are in the unit tests of the agent and of sluiced.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import unittest

import guest_image
import host
import support
import virt

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ["triad", "matmul", "histogram", "md5"]
SUITE = PROGRAMS + ["probe"]
CASES = "texture-calls"  # opcodes that were replaced since
PARTS = {"host", "guest", "softgpu"}


class Older:
    """The older commit, its build folder and its guest package. Made once."""
    _made = None

    def __init__(self):
        commit = [line for line in (HERE / "older_commit").read_text().split("\n")
                  if line and line[0] != "#"][0]
        self.root = support.BUILD / "older" / commit[:16]
        self.build = self.root / "build"
        if not (self.root / "complete").exists():
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir(parents=True)
            archive = subprocess.run(["git", "-C", support.ROOT, "archive", commit],
                                     capture_output=True, check=False)
            if archive.returncode != 0:
                raise unittest.SkipTest(f"the history here lacks {commit}")
            subprocess.run(["tar", "-x", "-C", self.root], input=archive.stdout, check=True)
            # Its packages: this tree may no longer need them all.
            self.run(". scripts/lib/setup.sh; ensure_packages \"${build_packages[@]}\"; "
                     "configure \"$PWD/build\" \"${release_options[@]}\" tests=true")
            (self.root / "complete").touch()
        listed = subprocess.run(["meson", "introspect", "--install-plan", self.build],
                                capture_output=True, text=True, check=True)
        wanted = [pathlib.Path(path).relative_to(self.build)
                  for path, to in json.loads(listed.stdout)["targets"].items()
                  if to["tag"] in PARTS]
        wanted += [pathlib.Path("tests/system") / CASES]
        wanted += [pathlib.Path("kernels/suite") / f"sluice-suite-{p}" for p in SUITE]
        self.run("ninja -C build " + " ".join(map(str, wanted)))

    def run(self, command):
        p = subprocess.run(["bash", "-ec", command], cwd=self.root, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, env=self.environment())
        if p.returncode != 0:
            raise AssertionError(f"{command}:\n{p.stdout[-3000:]}")
        return p.stdout

    @staticmethod
    def environment():
        return {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}

    def package(self, out):
        self.run(f"scripts/build-packages '{self.build}' '{out}' sluice-guest-agent")
        (deb,) = out.glob("sluice-guest-agent_*.deb")
        return deb

    @classmethod
    def get(cls):
        if cls._made is None:
            cls._made = cls()
        return cls._made


def enter_own_cgroup(test_class):
    """The older spawner does not lock its folder of cgroups: one of this tree that starts beside
    it, in another test, would take that for a dead one's and remove it."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mountinfo").open()
              if " - cgroup2 " in line]
    own = [line.strip()[3:] for line in pathlib.Path("/proc/self/cgroup").open()
           if line.startswith("0::")]
    if not mounts or not own or mounts[0][3] != "/":
        return
    parent = pathlib.Path(mounts[0][4] + own[0])
    folder = parent / f"sluice-skew.{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:  # no cgroups may be made here, so nobody has any
        return

    def leave():
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            folder.rmdir()
    test_class.addClassCleanup(leave)


class Skew(support.WithSluiced):
    """`host_build` runs the host, `guest_build` is what its programs and guests have."""
    host_build = guest_build = None

    @classmethod
    def setUpClass(cls):
        if cls is Skew:
            raise unittest.SkipTest("has no builds")
        cls.older = Older.get()
        cls.builds()
        cls.work = support.folder()
        enter_own_cgroup(cls)
        cls.sluiced = host.Sluiced(cls.guest_build, cls.work,
                                   programs=host.Built(cls.host_build))
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("a", "b", "vm"):
            cls.sluiced.ctl("create", name, "--weight", 1)

    def start(self, vgpu, name, *arguments):
        p = subprocess.Popen([self.guest_build / "kernels/suite" / f"sluice-suite-{name}",
                              *map(str, arguments)], env=self.sluiced.client_env(vgpu),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: p.poll() is None and (p.kill(), p.communicate()))
        return p

    def test_1_programs_are_right_and_evicted(self):
        before = {n: self.vgpu(n)["evictions"] for n in ("a", "b")}
        running = [self.start(v, p, "--seconds", 5, "--json")
                   for v in ("a", "b") for p in PROGRAMS]
        for p in running:
            text, _ = p.communicate(timeout=support.TIMEOUT_S)
            self.assert_right((p.returncode, text))
        for n in ("a", "b"):
            self.assertGreater(self.vgpu(n)["evictions"], before[n], n)
            self.assert_all_free(n)

    def test_2_textures(self):
        p = subprocess.run([self.guest_build / "tests/system" / CASES],
                           env=self.sluiced.client_env("a"), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0,
                         f"{p.stdout}\n--- sluiced:\n{self.sluiced.log()[-3000:]}")

    def test_3_a_virtual_machine(self):
        deb = self.deb(support.folder())
        programs = [self.guest_build / "kernels/suite" / f"sluice-suite-{p}"
                    for p in SUITE]
        image = guest_image.build(support.BUILD / "guest-cache", support.folder(), deb, programs)
        q = virt.Qemu("vm", support.folder(), *image, self.sluiced.vgpu_socket("vm"))
        self.addCleanup(q.kill)
        q.boot()
        support.wait_for_gpu(self, q)
        for p in PROGRAMS:
            status, text = q.guest.run(f"sluice-suite-{p} --launches 4 --json", support.TIMEOUT_S)
            self.assert_right((status, text), p)
        self.said_of_the_guest(self.sluiced.ctl("show", "vm"))

    def said_of_the_guest(self, shown):
        self.assertNotEqual(shown["agent"]["epoch"], 0)


class OlderGuest(Skew):
    @classmethod
    def builds(cls):
        cls.host_build, cls.guest_build = support.BUILD, cls.older.build

    def deb(self, out):
        return self.older.package(out)

    def said_of_the_guest(self, shown):
        super().said_of_the_guest(shown)
        self.assertEqual(shown["agent"]["release"], "", "it is from before there was the field")


class OlderHost(Skew):
    @classmethod
    def builds(cls):
        cls.host_build, cls.guest_build = cls.older.build, support.BUILD

    def test_2_textures(self):
        """What the older worker does not know: an error and the program's end. Workers since
        answer that such a call is not supported."""
        p = subprocess.run([self.guest_build / "tests/system" / CASES],
                           env=self.sluiced.client_env("a"), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("unknown opcode", p.stdout + self.sluiced.log())
        self.assert_all_free("a")

    def deb(self, out):
        subprocess.run([support.ROOT / "scripts/build-packages", support.BUILD, out,
                        "sluice-guest-agent"], check=True, stdout=subprocess.DEVNULL)
        (deb,) = out.glob("sluice-guest-agent_*.deb")
        return deb

# SPDX-License-Identifier: Apache-2.0
"""A worker that a guest has taken over (programs/evil_worker.cc): nothing of the host, of
sluiced or of the neighbours is in its reach, in neither filter; and after a crash of sluiced, of
the spawner, or of both, no worker runs on."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import support
from host import HostError, Sluiced
from support import WithSluiced, WithVictim


def processes_below(root):
    """Pids of all descendants of `root`, which ends up without a parent when it dies: by its
    session or cgroup."""
    children = {}
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            children.setdefault(int((p / "stat").read_text().rsplit(")", 1)[1].split()[1]),
                                []).append(int(p.name))
        except (OSError, IndexError):
            continue
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""  # it has gone


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")",
                1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class TakenOver(WithVictim):
    FILTER = "soft"

    @classmethod
    def setUpClass(cls):
        cls.bystander = subprocess.Popen(["sleep", "100000"])
        cls.addClassCleanup(cls.bystander.wait)
        cls.addClassCleanup(cls.bystander.kill)
        cls.tcp = socket.create_server(("127.0.0.1", 0))
        cls.addClassCleanup(cls.tcp.close)
        name = f"sluice-evil-{os.getpid()}"
        cls.abstract = socket.socket(socket.AF_UNIX)
        cls.abstract.bind("\0" + name)
        cls.abstract.listen()
        cls.addClassCleanup(cls.abstract.close)
        cls.work = support.folder()
        cls.secrets = cls.work / "secrets"
        cls.secrets.mkdir(mode=0o700)
        real = support.BUILD / "mediator/worker"
        cls.sluiced = Sluiced(support.BUILD, cls.work, device="soft", env={
            "SLUICE_EVIL_REAL": str(real / "sluice-worker"), "SLUICE_EVIL_FILTER": cls.FILTER,
            "SLUICE_EVIL_VICTIM": str(cls.bystander.pid), "SLUICE_EVIL_FOLDER": str(cls.secrets),
            "SLUICE_EVIL_ADMIN": str(cls.work / "run/admin.sock"), "SLUICE_EVIL_ABSTRACT": name,
            "SLUICE_EVIL_PORT": str(cls.tcp.getsockname()[1]), "SLUICE_EVIL_TRACE": "1",
            "CUDA_CACHE_PATH": "/dev/shm"})
        cls.configure()
        text = cls.sluiced.config.read_text()
        text = text.replace(f'worker = "{real}/sluice-worker"',
                            f'worker = "{support.BUILD}/tests/system/adversaries/evil-worker"', 1)
        text = text.replace("[workers]\n", f'[workers]\npaths = ["{real}"]\n{cls.WORKERS}', 1)
        cls.sluiced.config.write_text(text)
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("a", "b"):
            cls.sluiced.ctl("create", name, "--weight", 1)

    @classmethod
    def configure(cls):
        """What a kind of this does differently."""

    def test_nothing_is_in_its_reach(self):
        with self.attack():
            guest = self.program("a", "triad", "--seconds", 100000)
            self.eventually(lambda: "evil END" in self.sluiced.log(), "it has tried everything")
            # Tracing ends it, and its session with it.
            guest.finish()
            self.assert_all_free("a")
        said = re.findall(r"evil ([^:\n]+): (refused|DONE) \((.*)", self.sluiced.log())
        self.assertEqual([s for s in said if s[1] == "DONE"], [])
        attempts = [int(s[2].split()[0]) for s in said if s[0] == "END"]
        self.assertGreaterEqual(len(attempts), 1)
        self.assertGreater(attempts[0], 100)
        print(f"{attempts[0]} attempts in the {self.FILTER} filter", flush=True)
        self.assertNotIn("T",
                         pathlib.Path(f"/proc/{self.bystander.pid}/stat").read_text().rsplit(")",
                                 1)[1].split()[0])
        self.assertEqual(list(self.secrets.iterdir()), [])
        self.assertEqual(self.vgpu("a")["weight"], 1)
        # Nothing of it runs.
        self.eventually(lambda: not any(
            "evil" in program_of(p)
            for p in processes_below(self.sluiced.ctl("info")["workers"]["spawner_pid"])),
            "all that it made has gone")


class TakenOverBesideNvidia(TakenOver):
    FILTER = "nvidia"

    def test_two_at_once_find_nothing_of_each_other(self):
        """Each leaves a file where NVIDIA's driver has its cache of compiled kernels."""
        ends = self.sluiced.log().count("evil END")
        guests = [self.program("a", "triad", "--seconds", 100000) for _ in range(2)]
        self.eventually(lambda: self.sluiced.log().count("evil END") >= ends + 2, "both have tried")
        for guest in guests:
            guest.finish()
        self.assertNotIn("DONE", self.sluiced.log())

    def test_what_is_refused_is_named(self):
        """Once a call, with its arguments, so that one that a driver needs is found in one run."""
        self.program("a", "triad", "--seconds", 100000).finish()
        self.assertRegex(self.sluiced.log(),
                         r"sandbox: system call io_uring_setup \(425\) is refused")


class TakesOverACodeCache(TakenOver):
    """Workers of two vGPUs, both taken over, with caches of machine code: neither takes more than
    its own, nor finds anything of the other; and what they leave there goes with their vGPU."""
    FILTER = "nvidia"
    BYTES = 2 << 20

    @classmethod
    def configure(cls):
        cls.sluiced.env["SLUICE_EVIL_CACHE"] = str(cls.BYTES)
        cls.WORKERS = f'code_cache = "{cls.BYTES}"\n'

    def caches(self):
        spawner = self.sluiced.ctl("info")["workers"]["spawner_pid"]
        mounts = pathlib.Path(f"/proc/{spawner}/mountinfo").read_text()
        return len(re.findall(r" /run/codes/\d+ ", mounts))

    def test_nothing_is_in_its_reach(self):
        if why := self.sluiced.ctl("info")["workers"]["no_code_cache"]:
            self.skipTest(why)
        self.sluiced.ctl("create", "c", "--weight", 1)
        with self.attack():
            before = self.caches()
            self.assertGreaterEqual(before, 1, "the victim's")
            for n in range(2):  # the second finds what the first of its vGPU has left
                guests = [self.program(v, "triad", "--seconds", 100000) for v in "ac"]
                self.eventually(lambda: self.sluiced.log().count("evil END") == 2 * (n + 1),
                                "both have tried everything", 300)
                for guest in guests:
                    guest.finish()
            self.assertNotIn("DONE", self.sluiced.log())
            self.assertEqual(self.caches(), before + 2)
            for name in "ac":
                self.sluiced.ctl("delete", name)
            self.eventually(lambda: self.caches() == before, "their caches have gone")


class CompileCache(WithSluiced):
    """NVIDIA's cache of compiled kernels is no way from one worker to another."""
    WORKERS = 'code_cache = "0M"\n'

    @classmethod
    def setUpClass(cls):
        cls.EXTRA = '[worker_environment]\nCUDA_CACHE_PATH = "/dev/shm"\nHOME = "/root"\n'
        super().setUpClass()

    def test_its_place(self):
        self.program("a", "triad", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("a")["launches_done"] > 0, "it launches")
        worker = self.sluiced.ctl("show", "a")["session_list"][0]["worker_pid"]
        text = pathlib.Path(f"/proc/{worker}/environ").read_bytes().decode()
        variables = dict(v.split("=", 1) for v in text.split("\0") if v)
        self.assertNotIn("CUDA_CACHE_PATH", variables)
        missing = {m.split(":")[0] for m in self.sluiced.ctl("info")["workers"]["missing_walls"]}
        if "root" in missing:
            self.assertEqual(variables["CUDA_CACHE_DISABLE"], "1")
        else:
            self.assertNotEqual(variables["HOME"], "/root")
            own = pathlib.Path(f"/proc/{worker}/mountinfo").read_text()
            self.assertRegex(own, rf" {re.escape(variables['HOME'])} .* tmpfs ")


class CodeCache(WithSluiced):
    """Workers of one vGPU share a cache of machine code, and its user id; those of two never do."""
    WORKERS = 'code_cache = "2M"\n'

    def setUp(self):
        super().setUp()
        if why := self.sluiced.ctl("info")["workers"]["no_code_cache"]:
            self.skipTest(why)

    def worker(self, vgpu):
        """The user of a new one, and the device number of what is mounted as its cache."""
        def sessions():
            return {s["worker_pid"] for s in self.sluiced.ctl("show", vgpu)["session_list"]
                    if s["state"] == "open"}
        before = sessions()
        self.program(vgpu, "triad", "--seconds", 100000)
        self.eventually(lambda: sessions() - before, "it is on")
        pid, = sessions() - before
        proc = pathlib.Path(f"/proc/{pid}")
        self.assertIn(b"CUDA_CACHE_PATH=/run/code\0", (proc / "environ").read_bytes())
        mounts = [m.split() for m in (proc / "mountinfo").read_text().splitlines()]
        cache, = [m for m in mounts if m[4] == "/run/code"]
        return proc.stat().st_uid, cache[2]

    def test_who_shares_it(self):
        first, other = self.worker("a"), self.worker("b")
        self.eventually(lambda: self.vgpu("b")["launches_done"] > 0, "it launches")
        self.assertNotEqual(first[0], other[0])
        self.assertNotEqual(first[1], other[1])
        self.assertEqual(self.worker("a"), first)


class EachWall(WithSluiced):
    """Walls cover one another, so what gets out shows only when several are missing. Here each is
    looked at by itself, from outside."""
    NAMESPACES = {"pids": "pid", "root": "mnt", "network": "net", "ipc": "ipc", "uts": "uts"}

    def test_all_that_are_not_missing_stand(self):
        self.program("a", "triad", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("a")["launches_done"] > 0, "it launches")
        self.program("b", "triad", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("b")["launches_done"] > 0, "the other launches")
        info = self.sluiced.ctl("info")["workers"]
        missing = {m.split(":")[0] for m in info["missing_walls"]}
        sessions = [self.sluiced.ctl("show", v)["session_list"][0] for v in "ab"]
        procs = [pathlib.Path(f"/proc/{session['worker_pid']}") for session in sessions]
        for proc in procs:
            lines = (proc / "status").read_text().splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            self.assertEqual(fields["Seccomp"], "2")
            self.assertEqual(fields["NoNewPrivs"], "1")
            self.assertEqual((proc / "oom_score_adj").read_text().strip(), "1000")
            self.assertEqual(int(fields["CapEff"], 16) | int(fields["CapPrm"], 16), 0)
            if "user" not in missing:
                self.assertEqual(len(set(fields["Uid"].split() + fields["Gid"].split())), 1)
                self.assertNotEqual(fields["Uid"].split()[0], str(os.geteuid()))
                self.assertEqual(fields["Groups"].strip(), "")
            if "pids" not in missing:
                self.assertEqual(fields["NSpid"].split()[-1], "1")
            if "proc" not in missing:
                self.assertEqual([p.name for p in (proc / "root/proc").glob("[0-9]*")], ["1"])

        def differ(what, other):
            for wall, name in self.NAMESPACES.items():
                if wall not in missing:
                    ns = [os.readlink(p / "ns" / name) for p in (procs[0], other)]
                    self.assertNotEqual(ns[0], ns[1], f"{what}: {wall}")

        differ("host", pathlib.Path("/proc/self"))
        differ("neighbour", procs[1])
        if "user" not in missing:
            self.assertEqual(len({p.stat().st_uid for p in procs} - {0}), 2)
        if "cgroup" not in missing:
            cgroups = {(p / "cgroup").read_text() for p in (*procs, pathlib.Path("/proc/self"))}
            self.assertEqual(len(cgroups), 3)


AS_USER = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
for path in sys.argv[3:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(300)
        try:
            s.connect(path)
        except OSError:
            continue
        try:
            s.send(b'{"jsonrpc":"2.0","id":1,"method":"version","params":{}}\\n')
            print("answer" if s.recv(4096) else "closed")
        except OSError:
            print("closed")
"""


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class SocketsRefuseWorkers(WithSluiced):
    """Whatever a socket's mode, no peer with a user or group of workers is served."""

    def answers(self, uid, gid):
        paths = [self.sluiced.admin, self.sluiced.vgpu_socket("a"), self.sluiced.local_socket("a")]
        for path in paths:
            path.chmod(0o666)
        return subprocess.run([sys.executable, "-c", AS_USER, str(uid), str(gid), *map(str, paths)],
                              stdout=subprocess.PIPE, text=True, check=True,
                              timeout=support.TIMEOUT_S).stdout.split()

    def test_by_user_and_by_group(self):
        first = 2000000000  # workers.uids
        for uid, gid in ((first, first), (first + 4095, 65534), (65534, first)):
            before = self.sluiced.log().count("a worker (process")
            self.assertEqual(self.answers(uid, gid), ["closed"] * 3, (uid, gid))
            self.assertEqual(self.sluiced.log().count("a worker (process"), before + 3)
        # A stranger reads why, at least from the admin's socket.
        self.assertIn("answer", self.answers(65534, 65534))


class ProgramsBesideNvidiasFilter(WithSluiced):
    """What a worker itself needs is on that list: programs run, with threads that block all
    signals."""

    @classmethod
    def setUpClass(cls):
        cls.EXTRA = '[worker_environment]\nSLUICE_WORKER_SANDBOX = "nvidia"\n'
        super().setUpClass()

    def test_programs_run_and_nothing_is_refused(self):
        both = [self.program(v, "stencil2d", "--seconds", 2, "--verify", "every", "--json")
                for v in "ab"]
        for p in both:
            self.assert_right(p.finish())
        self.assertNotIn("sandbox: system call", self.sluiced.log())


class AfterACrash(WithSluiced):
    """Whatever dies first, no worker of it runs on, and the next sluiced serves."""

    def crash(self, which):
        def info():
            return self.sluiced.ctl("info")

        done = self.vgpu("a")["launches_done"]
        session = self.program("a", "triad", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("a")["launches_done"] > done, "it launches")
        workers = [s["worker_pid"] for s in self.sluiced.ctl("show", "a")["session_list"]]
        self.assertEqual(len(workers), 1)
        # Neither the program nor its worker hears of anything.
        session.process.send_signal(signal.SIGSTOP)
        os.kill(workers[0], signal.SIGSTOP)
        spawner = info()["workers"]["spawner_pid"]
        if "spawner" in which:
            os.kill(spawner, signal.SIGKILL)
        if "sluiced" in which:
            self.sluiced.process.kill()
            self.sluiced.process.wait()
            self.sluiced.start()
            for name in ("a", "b"):
                self.sluiced.ctl("create", name, "--weight", 1)
        self.eventually(lambda: not alive(workers[0]), "the worker has gone")
        self.eventually(lambda: info()["workers"]["spawner_pid"] not in (spawner, -1),
                        "another spawner serves")
        self.eventually(lambda: not alive(spawner), "the earlier one does not")
        session.kill()
        self.assert_right(self.program("b", "triad", "--launches", 4, "--json").finish(),
                          "another vGPU")
        self.assert_right(self.program("a", "triad", "--launches", 4, "--json").finish(),
                          "the same vGPU")
        self.assert_all_free("a")

    def test_of_sluiced(self):
        self.crash(["sluiced"])

    def test_of_the_spawner(self):
        self.crash(["spawner"])

    def test_of_both(self):
        self.crash(["spawner", "sluiced"])

    def test_a_second_sluiced_does_not_touch_the_first(self):
        running = self.program("a", "triad", "--seconds", 3, "--json")
        self.eventually(lambda: self.vgpu("a")["sessions"] == 1, "it runs")
        second = subprocess.run([support.BUILD / "mediator/daemon/sluiced", "--config",
                                 self.sluiced.config],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=support.TIMEOUT_S)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("runs already", second.stdout)
        self.assert_right(running.finish(), "a program of the first")


class WithoutPrivileges(WithSluiced):
    """sluiced by hand: workers have fewer walls, which `info` tells, and serve."""
    HOW = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    MISSING, OWNER = {"user"}, 65534

    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        cls.sluiced = Sluiced(support.BUILD, cls.work, device="soft")
        for f in (cls.work, cls.work / "run"):
            os.chown(f, cls.OWNER, cls.OWNER)
        cls.addClassCleanup(cls.stop)
        cls.begin()
        for name in ("a", "b"):
            cls.sluiced.ctl("create", name, "--weight", 1)

    @classmethod
    def begin(cls):
        log = open(cls.sluiced.log_path, "ab")
        cls.sluiced.process = subprocess.Popen(
            [*cls.HOW, support.BUILD / "mediator/daemon/sluiced", "--config", cls.sluiced.config],
            stdout=log, stderr=log,
            start_new_session=True)
        end = time.monotonic() + 60
        while cls.sluiced._ctl("list", "--json").returncode != 0:
            if time.monotonic() > end or cls.sluiced.process.poll() is not None:
                raise HostError(cls.sluiced.log())
            time.sleep(0.05)

    @classmethod
    def stop(cls):
        cls.sluiced.stop()

    def test_it_serves_and_says_what_is_missing(self):
        info = self.sluiced.ctl("info")["workers"]
        missing = {m.split(":")[0] for m in info["missing_walls"]}
        self.assertLessEqual(self.MISSING, missing, info)
        for wall in missing:
            self.assertIn(f"workers run without a wall: {wall}:", self.sluiced.log())
        self.assert_right(self.program("a", "triad", "--launches", 4, "--json").finish(),
                          "a program")

    def test_it_does_not_start_where_all_are_required(self):
        config = self.work / "strict.toml"
        config.write_text(self.sluiced.config.read_text().replace("[workers]\n",
                "[workers]\nrequire = true\n").replace(
            f'runtime_dir = "{self.work}/run"', f'runtime_dir = "{self.work}/strict"'))
        p = subprocess.run([*self.HOW, support.BUILD / "mediator/daemon/sluiced", "--config",
                            config],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("workers.require", p.stdout)


class RootWithoutSysAdmin(WithoutPrivileges):
    """As in a container: root that may change users and make user namespaces only."""
    HOW = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]
    MISSING, OWNER = set(), 0

    def test_it_does_not_start_where_all_are_required(self):
        self.skipTest("a host may allow them all by a user namespace")

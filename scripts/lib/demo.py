# SPDX-License-Identifier: Apache-2.0
"""Virtual machines share one GPU by weight, and the weights change half-way.

Called by scripts/demo, which has installed and built everything. Everything this program starts is
gone when it ends, also after Ctrl-C. See README.md for what it shows and docs/operating/demo.md for
the fields of report.json.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import guest_image  # noqa: E402
import report  # noqa: E402
import terminal_svg  # noqa: E402
import virt  # noqa: E402
from guest import GuestError  # noqa: E402
from host import HostError, Installed, Sluiced  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ["triad", "matmul", "reduction", "stencil2d", "histogram", "md5"]
# Two programs run at any time in each VM, half a turn apart, so that a VM has work queued also
# while one of its programs starts, checks its results or ends.
LANES = 2
TOLERANCE = 0.03
MIN_EVICTIONS = 20
SAMPLE_S = 0.5


def say(text):
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


class Failure(Exception):
    pass


def parse_arguments():
    p = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.split("\n\n")[0])
    p.add_argument("--seconds", type=float, default=40,
                   help="length of the contended run (default 40)")
    p.add_argument("--vms", type=int, default=2, help="number of virtual machines (default 2)")
    p.add_argument("--weights", help="weights before and after the change, for example 2:1,1:3 "
                   "(the default for two VMs)")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "demo-out",
                   help="where report.json, shares.png and the logs go (default demo-out)")
    p.add_argument("--device", choices=["auto", "soft", "nvidia"], default="auto",
                   help="the GPU: NVIDIA's, or the software GPU (default: NVIDIA's if there is "
                         "one)")
    p.add_argument("--guests", choices=["libvirt", "qemu", "local"], default="libvirt",
                   help="libvirt domains (default), QEMU without libvirt, or local processes")
    p.add_argument("--image", type=pathlib.Path, help="folder with vmlinux and initramfs.cpio, "
                   "instead of making them")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help=argparse.SUPPRESS)
    p.add_argument("--check-arguments", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if not 2 <= a.vms <= 16:
        p.error("--vms takes 2 to 16")
    if a.seconds < 4:
        p.error("--seconds takes at least 4")
    text = a.weights or ",".join(
        [":".join(["2"] + ["1"] * (a.vms - 1)), ":".join(["1"] * (a.vms - 1) + ["3"])])
    try:
        a.halves = [[int(w) for w in half.split(":")] for half in text.split(",")]
    except ValueError:
        p.error(f"--weights takes whole numbers like 2:1,1:3, not {text}")
    if len(a.halves) != 2 or any(len(h) != a.vms or min(h) < 1 for h in a.halves):
        p.error(f"--weights takes two lists of {a.vms} positive weights, for example 2:1,1:3")
    return a


class Client:
    """Where a vGPU's programs run: a VM or, with --local, the host itself."""

    def __init__(self, name, weight):
        self.name, self.weight = name, weight
        self.results = []   # JSON objects of the programs' last lines
        self.problems = []  # what went wrong, in words
        self.device = ""    # what its programs say they run on
        self.lock = threading.Lock()

    def run(self, argv, timeout):
        """Runs one program; returns (status, lines)."""
        raise NotImplementedError

    def lane(self, order, until, nvidia):
        """One program after another until the time is over."""
        turn = 0
        share = (until - time.monotonic()) / (len(PROGRAMS) / LANES)
        while (left := until - time.monotonic()) > 1.0:
            program = order[turn % len(order)]
            turn += 1
            seconds = left if left < 1.5 * share else share
            argv = [f"sluice-suite-{program}", "--seconds", f"{seconds:.1f}", "--json"]
            argv += program_options(program, nvidia, isinstance(self, VmClient))
            try:
                status, lines = self.run(argv, timeout=seconds + 180)
            except GuestError as e:
                with self.lock:
                    self.problems.append(str(e))
                return
            found = None
            for line in reversed(lines):
                if line.startswith("{"):
                    found = json.loads(line)
                    break
            with self.lock:
                if found:
                    self.results.append(found)
                    self.device = found.get("device", "")
                if status != 0 or not found:
                    self.problems.append(f"{self.name}: {' '.join(argv)} ended with status "
                                         f"{status}: "
                                         + " | ".join(lines[-5:]))
                    if not found:
                        return


# On a real GPU the programs' defaults are over in microseconds; these give launches of 0.1 to 5 ms
# on an H200. The results are then checked at the end of each program only: a check takes seconds.
GPU_SIZES = {
    "triad": ["--size", "67108864"], "matmul": ["--size", "2048", "--inner", "2048"],
    "reduction": ["--size", "268435456"], "stencil2d": ["--size", "8192"],
    "histogram": ["--size", "536870912"], "md5": ["--size", "8388608"]}

# A guest under TCG checks its results at a twentieth of the speed and has less memory.
GPU_SIZES_IN_GUESTS = {
    "triad": ["--size", "16777216"], "matmul": ["--size", "2048", "--inner", "2048"],
    "reduction": ["--size", "67108864"], "stencil2d": ["--size", "4096"],
    "histogram": ["--size", "67108864"], "md5": ["--size", "4194304"]}
GPU_GUEST_MIB = 2048
# Room for the programs' pinned buffers.
GPU_SETTINGS = '[vgpu]\nregion = "8G"\n'


def program_options(program, nvidia, in_guest):
    if not nvidia:
        return []
    return (GPU_SIZES_IN_GUESTS if in_guest else GPU_SIZES)[program] + ["--verify", "last"]


class VmClient(Client):
    def boot(self, libvirt, image, sluiced, nvidia):
        work = sluiced.work / self.name
        work.mkdir(exist_ok=True)
        xml_file, jobs = work / "domain.xml", work / "jobs"
        xml_file.write_text(virt.domain_xml(
            self.name, image[0], image[1], jobs, work / "console.log",
            guest_mib=GPU_GUEST_MIB if nvidia else 256))
        libvirt.define(xml_file)
        libvirt.attach(sluiced, self.name, "--weight", self.weight,
                       "--memory", "16G" if nvidia else "2G")
        self.guest = libvirt.boot(self.name, jobs)
        self.wait_for_gpu()

    def wait_for_gpu(self):
        # The agent is up once a program gets its answer from the GPU.
        end = time.monotonic() + 60
        while True:
            status, text = self.guest.run("sluice-suite-probe", 120)
            if status == 0:
                break
            if time.monotonic() > end:
                raise Failure(f"{self.name}: no vGPU in the guest: {text}")
            time.sleep(0.5)
        seen = text.strip().splitlines()[0] if text.strip() else "a GPU"
        say(f"{self.name}: booted, sees {seen}")

    def run(self, argv, timeout):
        job = self.guest.start(argv)
        return job.wait(timeout), job.lines


class QemuClient(VmClient):
    """A guest by QEMU's command line."""

    def boot(self, image, sluiced, cleanup, nvidia):
        sluiced.ctl("create", self.name, "--weight", self.weight)
        self.qemu = virt.Qemu(self.name, sluiced.work / self.name, image[0], image[1],
                              sluiced.vgpu_socket(self.name),
                              guest_mib=GPU_GUEST_MIB if nvidia else 256)
        cleanup.append(self.qemu.kill)
        self.guest = self.qemu.boot()
        self.wait_for_gpu()


class LocalClient(Client):
    def boot(self, sluiced, build):
        sluiced.ctl("create", self.name, "--weight", self.weight)
        self.env = sluiced.client_env(self.name)
        self.bin = build / "kernels/suite"

    def run(self, argv, timeout):
        try:
            p = subprocess.run([self.bin / argv[0], *argv[1:]], env=self.env, timeout=timeout,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except subprocess.TimeoutExpired as e:
            raise GuestError(f"{self.name}: no end of {argv} within {timeout} s") from e
        return p.returncode, p.stdout.splitlines()


def seen_by_owner(sluiced, seconds):
    """`sluicectl top` over the last seconds: the command and what it prints."""
    seconds = max(1, min(10, int(seconds)))
    return (f"sluicectl top --interval {seconds} --count 1",
            sluiced.run("top", "--interval", seconds, "--count", 1))


def sample_until(sluiced, clients, until, history, stop):
    while not stop.is_set():
        history.append(sluiced.stats())
        report.live_table(history, clients)
        if time.monotonic() >= until:
            return
        time.sleep(max(0, min(SAMPLE_S, until - time.monotonic())))


def wait_for_contention(sluiced, timeout=120):
    end = time.monotonic() + timeout
    while True:
        stats = sluiced.stats()
        if all(v["launches_done"] > 0 for v in stats["vgpus"].values()) and stats["contended_ns"]:
            return
        if time.monotonic() > end:
            raise Failure("the programs never had work queued at the same time; see the logs")
        time.sleep(0.1)


def make_packages(args, out, run_dir):
    """What an owner installs. Returns the guest's package, and where the host's programs are: the
    host's packages are unpacked in a folder, so that nothing is left of them here."""
    debs = subprocess.run([ROOT / "scripts/build-packages", args.build, out, "sluice",
                           "sluice-softgpu", "sluice-guest-agent"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.split()
    by_name = {pathlib.Path(d).name.split("_")[0]: pathlib.Path(d) for d in debs}
    root = run_dir / "host"
    for name in ("sluice", "sluice-softgpu"):
        subprocess.run(["dpkg-deb", "-x", by_name[name], root], check=True)
    say(f"packages: {', '.join(d.name for d in by_name.values())}")
    return by_name["sluice-guest-agent"], Installed(root)


def make_image(args, deb):
    """(vmlinux, initramfs) with the guest package and the programs."""
    if args.image:
        return args.image / "vmlinux", args.image / "initramfs.cpio"
    programs = [args.build / "kernels/suite" / f"sluice-suite-{p}" for p in PROGRAMS + ["probe"]]
    return guest_image.build(args.build / "guest-cache", args.build / "guest-image", deb, programs)


def at_once(actions):
    """Runs all actions side by side; Failure with what went wrong in any."""
    errors = []

    def guarded(action):
        try:
            action()
        except (Failure, GuestError, HostError, virt.VirtError, OSError) as e:
            errors.append(str(e))
    threads = [threading.Thread(target=guarded, args=(a,)) for a in actions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise Failure("; ".join(errors))


def start_clients(args, cleanup, sluiced, run_dir, deb, nvidia):
    """The clients of --guests, booted all at once."""
    weights = args.halves[0]
    names = [f"vm{i + 1}" for i in range(args.vms)]
    if args.guests == "local":
        clients = [LocalClient(n, w) for n, w in zip(names, weights)]
        boots = [lambda c=c: c.boot(sluiced, args.build.resolve()) for c in clients]
    else:
        image = make_image(args, deb)
        say("guest image: Debian's kernel, libc, busybox, the package and the programs")
        out = args.out.resolve()
        cleanup.append(lambda: [shutil.copy(f, out / f"{f.parent.name}.console.log") for n in names
                                for f in (run_dir / n).glob("*console*")])
        if args.guests == "qemu":
            clients = [QemuClient(n, w) for n, w in zip(names, weights)]
            boots = [lambda c=c: c.boot(image, sluiced, cleanup, nvidia) for c in clients]
        else:
            libvirt = virt.Libvirt(run_dir / "libvirt", sluiced)
            cleanup.append(libvirt.stop)
            libvirt.start()
            say(f"libvirtd of our own runs ({libvirt.uri})")
            clients = [VmClient(n, w) for n, w in zip(names, weights)]
            boots = [lambda c=c: c.boot(libvirt, image, sluiced, nvidia) for c in clients]
    at_once(boots)
    return clients


def start_lanes(clients, until, nvidia):
    """Programs in each client until then, LANES at a time."""
    lanes = []
    for c in clients:
        for i in range(LANES):
            shift = i * len(PROGRAMS) // LANES
            order = PROGRAMS[shift:] + PROGRAMS[:shift]
            lanes.append(threading.Thread(target=c.lane, args=(order, until, nvidia), daemon=True))
            lanes[-1].start()
    return lanes


def contend(args, cleanup, sluiced, clients):
    """Both halves: (history of samples, each half's figures, commands and what they printed)."""
    history, halves, seen, stop = [], [], [], threading.Event()
    cleanup.append(stop.set)
    begin = time.monotonic()
    for i, weights in enumerate(args.halves):
        if i > 0:
            for c, w in zip(clients, weights):
                sluiced.ctl("set", c.name, "--weight", w)
                c.weight = w
                seen.append((f"sluicectl set {c.name} --weight {w}", ""))
            say(f"weights set to {':'.join(map(str, weights))}")
        first = sluiced.stats()
        sample_until(sluiced, clients, begin + args.seconds * (i + 1) / len(args.halves), history,
                     stop)
        halves.append(report.half(weights, first, sluiced.stats(), [c.name for c in clients]))
        seen.append(seen_by_owner(sluiced, args.seconds / len(args.halves) - 2))
    return history, halves, seen


def run(args, cleanup):
    started = float(os.environ.get("SLUICE_DEMO_STARTED", time.time()))
    out = args.out.resolve()
    work = out / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # Unix socket paths are short: the run folder is not below --out.
    run_dir = pathlib.Path(tempfile.mkdtemp(prefix="sluice-demo."))
    cleanup.append(lambda: shutil.rmtree(run_dir, ignore_errors=True))
    run_dir.chmod(0o711)  # a sluiced that is not root reaches what is in it
    extra = GPU_SETTINGS if args.device == "nvidia" or os.path.exists("/dev/nvidiactl") else ""
    deb = programs = None
    if args.guests != "local":
        deb, programs = make_packages(args, work, run_dir)
    sluiced = Sluiced(args.build, run_dir, device=args.device, extra=extra, programs=programs)
    cleanup.append(lambda: shutil.copy(sluiced.log_path, out / "sluiced.log")
                   if sluiced.log_path.exists() else None)
    cleanup.append(sluiced.stop)
    sluiced.start()
    nvidia = sluiced.ctl("info")["device"]["kind"] == "nvidia"
    say("sluiced runs")
    clients = start_clients(args, cleanup, sluiced, run_dir, deb, nvidia)

    say(f"{args.vms} x {LANES} programs at a time, weights {':'.join(map(str, args.halves[0]))}")
    # A little more than both halves.
    lanes = start_lanes(clients, time.monotonic() + args.seconds + 3, nvidia)
    wait_for_contention(sluiced)
    history, halves, seen = contend(args, cleanup, sluiced, clients)
    final = sluiced.stats()
    say("time is over; the programs check their last results")
    for t in lanes:
        t.join(300)
        if t.is_alive():
            raise Failure("a program did not end")
    names = [c.name for c in clients]
    result = report.make(halves, final, clients, names, time.time() - started, args,
                         sluiced.ctl("info"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(result, indent=2) + "\n")
    report.plot(history, halves, names, out)
    (out / "top.svg").write_text(terminal_svg.draw(seen))
    report.print_summary(result, names)
    failures = report.failures(result, names, TOLERANCE, MIN_EVICTIONS)
    failures += [p for c in clients for p in c.problems]
    if failures:
        raise Failure("\n  ".join(["the run does not count:"] + failures))


def main():
    args = parse_arguments()
    if args.check_arguments:
        return
    cleanup = []

    def interrupted(signum, _frame):
        raise KeyboardInterrupt(signal.Signals(signum).name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    status = 0
    try:
        if args.guests == "libvirt" and os.geteuid() == 0:
            virt.enter_private_namespace()
        run(args, cleanup)
    except (Failure, HostError, GuestError, virt.VirtError, guest_image.ImageError,
            subprocess.CalledProcessError) as e:
        print(f"demo: {e}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt as e:
        print(f"demo: interrupted ({e})", file=sys.stderr)
        status = 130
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for action in reversed(cleanup):
            try:
                action()
            except Exception as e:  # noqa: BLE001  the next clean-up step must run too
                print(f"demo: cleaning up: {e}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()

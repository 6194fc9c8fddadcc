# SPDX-License-Identifier: Apache-2.0
"""sluiced as the demo and the system tests run it: own folder, own admin socket, stopped at the
end."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time


class HostError(Exception):
    pass


def driver_folder(work):
    """A folder in which libcuda.so.1 is NVIDIA's: programs were linked with the guest's."""
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = [line.split("=> ")[1] for line in known.splitlines()
             if line.strip().startswith("libcuda.so.1 ") and "x86-64" in line]
    if not paths:
        raise HostError("there is no libcuda.so.1 of NVIDIA's driver")
    folder = work / "driver"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(paths[0])
    return folder


class Built:
    """Where the host's programs are in a meson build folder."""

    def __init__(self, build):
        self.sluiced = build / "mediator/daemon/sluiced"
        self.sluicectl = build / "mediator/cli/sluicectl"
        self.worker = build / "mediator/worker/sluice-worker"
        self.spawner = build / "mediator/spawner/sluice-spawner"
        self.hook = build / "mediator/libvirt/sluice-libvirt-hook"
        self.events = build / "mediator/libvirt/sluice-libvirt-events"
        self.soft_library = build / "mediator/softgpu/libsluice-softcuda.so"


class Installed:
    """Where they are below `root`, a folder in which the packages are unpacked."""

    def __init__(self, root):
        self.sluiced = root / "usr/sbin/sluiced"
        self.sluicectl = root / "usr/bin/sluicectl"
        self.worker = root / "usr/libexec/sluice/sluice-worker"
        self.spawner = root / "usr/libexec/sluice/sluice-spawner"
        self.hook = root / "usr/sbin/sluice-libvirt-hook"
        self.events = root / "usr/libexec/sluice/sluice-libvirt-events"
        self.soft_library = next(root.glob("usr/lib/*/sluice/libsluice-softcuda.so"))


class Sluiced:
    """A running mediator. `build` is a meson build folder, whose programs run unless `programs`
    (Built, Installed) are others; everything it writes is below `work`. Of the configuration:
    `workers` goes into its section of that name, `extra` behind `[device]`."""

    def __init__(self, build, work, device="soft", soft_sms=4, extra="", env=None, programs=None,
                 workers=""):
        self.build = pathlib.Path(build).resolve()
        self.programs = programs or Built(self.build)
        self.work = pathlib.Path(work).resolve()
        self.run_dir = self.work / "run"
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.admin = self.run_dir / "admin.sock"
        self.log_path = self.work / "sluiced.log"
        self.config = self.work / "sluice.toml"
        self.device = device
        self.process = None
        self.env = {**os.environ, **(env or {})}
        self.daemon_command = [self.programs.sluiced, "--config", self.config]
        self.ctl_command = [self.programs.sluicectl, "--socket", self.admin]
        self.config.write_text(
            f'runtime_dir = "{self.run_dir}"\n'
            f'state_dir = "{self.work}/state"\n'
            f'worker = "{self.programs.worker}"\n'
            f'[workers]\nspawner = "{self.programs.spawner}"\n{workers}'
            f'[admin]\nsocket = "{self.admin}"\n'
            f'[device]\nkind = "{device}"\n'
            f'soft_library = "{self.programs.soft_library}"\n'
            f'soft_sms = {soft_sms}\n' + extra)

    def start(self):
        log = open(self.log_path, "ab")
        self.process = subprocess.Popen(
            self.daemon_command, stdout=log, stderr=log, env=self.env, start_new_session=True)
        end = time.monotonic() + 30
        while True:
            if self.process.poll() is not None:
                raise HostError("sluiced ended at once:\n" + self.log())
            if self.admin.exists():
                p = self._ctl("list", "--json")
                if p.returncode == 0:
                    return self
            if time.monotonic() > end:
                raise HostError("sluiced does not answer on its admin socket:\n" + self.log())
            time.sleep(0.05)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _ctl(self, *args, env=None):
        return subprocess.run([*self.ctl_command, *map(str, args)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def run(self, *args, env=None):
        """sluicectl ARGS; returns what it prints, HostError with its message otherwise."""
        p = self._ctl(*args, env=env)
        if p.returncode != 0:
            raise HostError(f"sluicectl {' '.join(map(str, args))}: {p.stderr.strip()}")
        return p.stdout

    def ctl(self, *args):
        """sluicectl ARGS --json; returns the decoded answer, HostError with its message
        otherwise."""
        p = self._ctl(*args, "--json")
        if p.returncode != 0:
            raise HostError(f"sluicectl {' '.join(map(str, args))}: {p.stderr.strip()}")
        return json.loads(p.stdout) if p.stdout.strip() else None

    def request(self, method, **params):
        """What the admin socket answers, as sluicectl would not ask."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.admin))
            s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method,
                                  "params": params}).encode() + b"\n")
            return json.loads(s.makefile("rb").readline())

    def stats(self):
        """Cumulative counters of all vGPUs by name; "contended_ns" and "now_ns" beside them."""
        answer = self.ctl("stats")
        answer["vgpus"] = {v["name"]: v for v in answer["vgpus"]}
        return answer

    def vgpu_socket(self, name):
        return self.run_dir / "vgpu" / f"{name}.sock"

    def local_socket(self, name):
        return self.run_dir / "vgpu" / f"{name}.local"

    def client_env(self, name):
        """Environment of a local process that uses vGPU `name` without a VM."""
        return {**os.environ, "SLUICE_SOCKET": str(self.local_socket(name)),
                "LD_LIBRARY_PATH": str(self.build / "guest-agent/shim")}

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        return self.process.returncode if self.process else None

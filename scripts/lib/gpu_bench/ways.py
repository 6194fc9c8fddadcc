# SPDX-License-Identifier: Apache-2.0
"""The ways to share a GPU that gpu-bench compares, and what runs while one is measured.

A way is a row of WAYS. A Host is one that is in use: its tenants, with the MPS server and the
sluiced that it needs. The tenant `a` is the one that others should not delay (the light one, the
inference, the high priority); `b`, `c`, .. are the others.
"""
import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from gpu_bench.tenant import Tenant
from host import Sluiced, driver_folder

ORDINARY = "ordinary"
LOCK, SLICES = "lock", "slices"
FAVOURED = "a"
# Percent of the SMs, under MPS with thread percentages: twice as many for the others.
PERCENT = {True: "34", False: "66"}


@dataclasses.dataclass(frozen=True)
class Way:
    title: str
    mps: bool = False      # contexts side by side
    sluice: str = ""       # sluiced's [scheduler]; empty: without Sluice
    soft: str = ""         # SLUICE_SOFT_MODE of the software GPU; empty: not there
    clients: str = ""      # MPS client settings: "priority" or "percent"
    manners: str = ORDINARY  # what programs do of their own: LOCK, SLICES

    @property
    def mediated(self):
        return bool(self.sluice)


EVICTION = 'policy = "wfq"\nslices = false\nturns = "eviction"\n'

# In the order in which they are measured: what matters most first, for runs that are cut short.
WAYS = {
    "slices": Way("the driver's time slices", soft="timeslice"),
    "sluice-shared": Way("Sluice, shared, turns by priority", mps=True,
                         sluice='policy = "wfq"\nturns = "priority"\n', soft="mps"),
    "mps-priority": Way("MPS, client priorities", mps=True, clients="priority"),
    "sluice-slices": Way("Sluice, contexts, time slices",
                         sluice='policy = "wfq"\nslices = true\n', soft="timeslice"),
    "mps": Way("MPS", mps=True, soft="mps"),
    "sluice": Way("Sluice, contexts, eviction", sluice=EVICTION, soft="fcfs"),
    "sluice-shared-srt": Way("Sluice, shared, wfq-srt", mps=True,
                             sluice='policy = "wfq-srt"\nturns = "priority"\n', soft="mps"),
    "in-turn": Way("one launch after the other", soft="timeslice", manners=LOCK),
    "mps-percent": Way("MPS, thread percentages", mps=True, clients="percent"),
    "slicing": Way("MPS, kernels cut by their program", mps=True, soft="mps", manners=SLICES),
    "sluice-mps": Way("Sluice, shared, eviction", mps=True, sluice=EVICTION),
    "sluice-space": Way("Sluice, shared, in space", mps=True,
                        sluice='policy = "wfq"\nspatial = true\n', soft="mps"),
}


class Mps:
    """An MPS server of our own, for several users, as Sluice's workers are."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-bench-mps."))
        self.folder.chmod(0o777)
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
                    "CUDA_MPS_LOG_DIRECTORY": str(self.folder)}
        subprocess.run(["nvidia-cuda-mps-control", "-M", "-d"], check=True,
                       env={**os.environ, **self.env})
        return self.env

    def __exit__(self, *_):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 1\n", text=True,
                       env={**os.environ, **self.env}, stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        shutil.rmtree(self.folder, ignore_errors=True)


class Host:
    """A way in use. A context manager: all that it started has ended afterwards."""

    def __init__(self, name, bench):
        self.name, self.way, self.bench = name, WAYS[name], bench
        self.tenants, self.problems = {}, []
        self.sluiced = None

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu-bench."))
        self.work.chmod(0o711)
        self.stack.callback(shutil.rmtree, self.work, ignore_errors=True)
        self.lock = self.work / "lock"
        try:
            self.env = self._surroundings()
            if self.way.mediated:
                self._start_sluiced()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, kind, *_):
        for tenant in self.tenants.values():
            if kind:
                tenant.process.kill()
            tenant.end()
        if self.sluiced:
            log = self.sluiced.log()
            self.problems += [line for line in log.splitlines() if "policy-violation" in line][:5]
            if kind:
                print(log[-3000:], flush=True)
        self.stack.close()

    def _surroundings(self):
        if self.bench.nvidia:
            env = dict(self.stack.enter_context(Mps())) if self.way.mps else {}
            if not self.way.mediated:
                env["LD_LIBRARY_PATH"] = str(driver_folder(self.work))
            return env
        if self.way.mediated:
            return {}
        return {"SLUICE_SOFT_GPU": str(self.work / "gpu"), "SLUICE_SOFT_MODE": self.way.soft,
                "SLUICE_SOFT_SMS": "4",
                "LD_LIBRARY_PATH": str(self.bench.build / "kernels/suite/soft")}

    def _start_sluiced(self):
        device = f"nvidia_sms = {self.bench.sms}\n" if self.bench.nvidia else ""
        self.trace = self.work / "trace.jsonl"
        self.sluiced = Sluiced(self.bench.build, self.work, device=self.bench.device, soft_sms=4,
                               extra=f'{device}[scheduler]\n{self.way.sluice}'
                                     f'trace = "{self.trace}"\n',
                               env=self.env)
        self.stack.callback(self.sluiced.stop)
        self.sluiced.start()

    # ---- tenants ---------------------------------------------------------------------------------
    def tenant(self, name, original=False):
        """The tenant of this name, started if it is not there; its vGPU has the same name.
        `original`: its kernels are not rewritten."""
        if name not in self.tenants:
            self.tenants[name] = Tenant(name, self.bench.build / "tests/bench/bench-tenant",
                                        self._client_env(name, original))
        return self.tenants[name]

    def end(self, name):
        """Ends the tenant, and removes its vGPU: a host has 64."""
        self.tenants.pop(name).end()
        if self.sluiced:
            self.sluiced.ctl("delete", name)

    def several(self, *names, original=False):
        """Tenants, started side by side."""
        return [self.tenant(n, original) for n in names]

    def _client_env(self, name, original):
        if self.sluiced:
            self.sluiced.ctl("create", name, "--weight", 100)
            env = self.sluiced.client_env(name)
            return {**env, "SLUICE_REWRITE": "off"} if original else env
        env = {**os.environ, **self.env}
        favoured = name == FAVOURED
        if self.bench.nvidia and self.way.clients == "priority":
            env["CUDA_MPS_CLIENT_PRIORITY"] = "0" if favoured else "1"
        if self.way.clients == "percent":
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = PERCENT[favoured]
        return env

    def set(self, name, **settings):
        """sluicectl set; nothing without Sluice."""
        if self.sluiced:
            self.tenant(name)
            options = [x for k, v in settings.items() for x in ("--" + k, v)]
            self.sluiced.ctl("set", name, *options)

    # ---- how programs launch -----------------------------------------------------------------
    def waits(self, gap_us=0):
        """The pattern of a program that waits for each launch, in this way's manners."""
        return f"lock:{self.lock}:{gap_us}" if self.way.manners == LOCK else f"wait:{gap_us}"

    def saturates(self, blocks, launch_us):
        """... of one that launches without a pause. Cut: slices of some 200 us."""
        if self.way.manners == SLICES:
            return f"slices:{max(64, int(blocks * 200 / launch_us))}"
        return self.waits()

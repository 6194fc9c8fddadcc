# SPDX-License-Identifier: Apache-2.0
"""The vGPUs of a node's containers.

A node offers N shares, the devices PREFIX-0 to PREFIX-(N-1). A container that gets some of them has
one vGPU, named like the first: its weight, and its memory where that is limited, are those of one
share times their number.

Each vGPU has a folder with links to its sockets. The kubelet mounts that folder into the container.
A folder, because sockets are made anew when sluiced restarts: a mounted file would stay the old
one.
"""
import os
import pathlib
import shutil
import threading
import time

from . import LOCAL_SOCKET, QEMU_SOCKET
from .admin import AdminError, Refused

MOST_SHARES = 1024
MOST_WEIGHT = 10000
# What a vGPU has of what neither its pod nor the node says (sluiced has defaults of its own for
# weight and latency).
PLAIN = {"memory_bytes": 0, "priority": 0, "min_permille": 0, "max_permille": 0, "group": ""}


class Shares:
    """The devices' names, and what one of them is worth. Never changes."""

    def __init__(self, count, prefix, weight, memory_bytes, defaults):
        self.count, self.prefix = count, prefix
        self.weight, self.memory_bytes, self.defaults = weight, memory_bytes, defaults

    def ids(self):
        return [f"{self.prefix}-{n}" for n in range(self.count)]

    def number(self, device):
        """Also of a device that was offered when there were more. -1: no such name."""
        head, _, digits = device.rpartition("-")
        if head != self.prefix or not digits.isdigit() or len(digits) > 4:
            return -1
        n = int(digits)
        return n if str(n) == digits else -1

    def offers(self, device):
        return 0 <= self.number(device) < self.count

    def vgpu(self, devices):
        """The name of the vGPU of who has these."""
        return f"{self.prefix}-{min(self.number(d) for d in devices)}"

    def settings(self, devices, said):
        """All settings of that vGPU. `said`: what its pod says, as vgpu.set takes it."""
        worth = {"weight": self.weight * len(devices)}
        if self.memory_bytes:
            worth["memory_bytes"] = self.memory_bytes * len(devices)
        return {**PLAIN, **self.defaults, **worth, **said}


class Vgpus:
    """Makes and removes them, over the admin socket. Any thread; one change at a time."""

    def __init__(self, admin, shares, folder, owner):
        self.admin, self.shares, self.owner = admin, shares, owner
        self.folder = pathlib.Path(folder)
        self.lock = threading.RLock()
        # By name: when the kubelet last spoke of it. What was seen of pods before is stale.
        self._asked_at = {}
        self._applied = {}  # by name: the settings that it has from us

    def list(self):
        """All of sluiced, by name."""
        return {v["name"]: v for v in self.admin.call("vgpu.list")}

    def ours(self, vgpu):
        return vgpu is not None and vgpu.get("owner") == self.owner

    def make(self, devices):
        """A fresh one. One that is left of an earlier container goes, with its sessions."""
        name = self.shares.vgpu(devices)
        with self.lock:
            there = self.list()
            for device in devices:
                if self.ours(there.get(device)):
                    self.remove(device)
            self._create(name, self.shares.settings(devices, {}))
            self._asked_at[name] = time.monotonic()
        return name

    def prepare(self, devices, said):
        """Before its container starts: it is there, with these settings."""
        with self.lock:
            self._ensure(devices, said)
            self._asked_at[self.shares.vgpu(devices)] = time.monotonic()

    def follow(self, devices, said, seen_at):
        """The same for a container that runs, as was seen at that moment."""
        with self.lock:
            if self._asked_at.get(self.shares.vgpu(devices), 0.0) <= seen_at:
                self._ensure(devices, said)

    def _ensure(self, devices, said):
        name = self.shares.vgpu(devices)
        wanted = self.shares.settings(devices, said)
        there = self.list().get(name)
        if there is None:
            self._create(name, wanted)
            return
        if not self.ours(there):
            raise Refused(f"the vGPU {name} was made by somebody else; 'sluicectl delete {name}' "
                          "on the node")
        before = self._applied.get(name, {})
        if "latency" in before and "latency" not in wanted:
            wanted["latency"] = self.admin.call("info")["vgpu_defaults"]["latency"]
        change = {k: v for k, v in wanted.items() if k not in before or before[k] != v}
        if change:
            self.admin.call("vgpu.set", name=name, **change)
            self._applied[name] = wanted
        if not self._linked(name, there):
            self._link(name, there)

    def remove_old(self, name, moment):
        """Unless the kubelet has spoken of it after that moment. True: it is gone."""
        with self.lock:
            if self._asked_at.get(name, 0.0) > moment:
                return False
            self.remove(name)
            return True

    def remove(self, name):
        with self.lock:
            try:
                self.admin.call("vgpu.delete", name=name)
            finally:
                self._applied.pop(name, None)
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def remove_folders(self, but):
        """Of vGPUs that are no more. `but`: names to leave."""
        with self.lock:
            for path in self.folder.glob(f"{self.shares.prefix}-*"):
                if self.shares.number(path.name) >= 0 and path.name not in but:
                    shutil.rmtree(path, ignore_errors=True)

    def host_folder(self, name):
        return str(self.folder / name)

    def _create(self, name, settings):
        vgpu = self.admin.call("vgpu.create", name=name, owner=self.owner, **settings)
        self._applied[name] = settings
        try:
            self._link(name, vgpu)
        except OSError as e:
            self.remove(name)
            raise AdminError(f"{self.folder / name}: {e.strerror}; it must be on the file system "
                             "of sluiced's sockets, below the same mount") from None

    def _links(self, name, vgpu):
        folder = self.folder / name
        return ((vgpu["socket"], folder / QEMU_SOCKET),
                (vgpu["local_socket"], folder / LOCAL_SOCKET))

    def _linked(self, name, vgpu):
        try:
            return all(os.path.samefile(a, b) for a, b in self._links(name, vgpu))
        except OSError:
            return False

    def _link(self, name, vgpu):
        # What somebody left at the place of a folder of ours is not followed.
        (self.folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        for socket, link in self._links(name, vgpu):
            fresh = link.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            os.link(socket, fresh)
            os.replace(fresh, link)

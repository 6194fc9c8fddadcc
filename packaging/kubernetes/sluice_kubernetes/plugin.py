# SPDX-License-Identifier: Apache-2.0
"""The device plugin: offers shares of this node's GPU to the kubelet, makes a vGPU for each
container that gets some, and removes it when the pod has ended.

    registered ── the kubelet's socket is another one, or ours is gone ──▶ served anew, registered
    the kubelet answers, and has ended its ListAndWatch ──▶ the same: it begins none by itself
    another plugin of the resource serves ──▶ waits until it has ended, and does nothing before
    sluiced does not answer ──▶ all devices Unhealthy, until it does

What follows the pods (`Follower.look`) runs every few seconds:
  - a vGPU of ours that no container has any more is removed, after a grace;
  - one that is missing (sluiced was restarted) is made again, for programs that come;
  - what a pod's annotations say now is put into force.
"""
import concurrent.futures
import logging
import os
import pathlib
import socket
import threading
import time

import grpc

from . import (LOCAL_SOCKET, POD_FOLDER, deviceplugin_v1beta1_pb2 as messages,
               deviceplugin_v1beta1_pb2_grpc as service, pods, settings)
from .admin import AdminError, Refused

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER_TIMEOUT_S = 10
# A ListAndWatch holds a thread until its kubelet is gone.
THREADS = 16

log = logging.getLogger("sluice-device-plugin")


class Devices:
    """The devices' health, and who waits for it to change. Any thread."""

    def __init__(self, ids):
        self._changed = threading.Condition()
        self._healthy = dict.fromkeys(ids, False)
        self._version = 0

    def set_healthy(self, healthy):
        """`healthy`: the names of those that are."""
        now = {d: d in healthy for d in self._healthy}
        with self._changed:
            if now == self._healthy:
                return
            log.info("%d of %d devices are healthy", sum(now.values()), len(now))
            self._healthy = now
            self._version += 1
            self._changed.notify_all()

    def wake(self):
        """Who watches asks goes_on() again."""
        with self._changed:
            self._changed.notify_all()

    def watch(self, goes_on):
        """All devices, at once and after each change, as long as goes_on()."""
        version = -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda: version != self._version or not goes_on())
                if not goes_on():
                    return
                version, healthy = self._version, dict(self._healthy)
            yield messages.ListAndWatchResponse(devices=[
                messages.Device(ID=d, health="Healthy" if good else "Unhealthy")
                for d, good in healthy.items()])


class Plugin(service.DevicePluginServicer):
    """The kubelet's calls. Several at once."""

    def __init__(self, vgpus, devices, follower, rest_s):
        self.vgpus, self.shares, self.devices = vgpus, vgpus.shares, devices
        self.follower, self.rest_s = follower, rest_s
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._watches, self._left_at = 0, None

    def left(self):
        """Whether somebody has watched, and nobody has for rest_s."""
        with self._lock:
            return (not self._watches and self._left_at is not None
                    and time.monotonic() - self._left_at >= self.rest_s)

    def GetDevicePluginOptions(self, request, context):
        return options()

    def ListAndWatch(self, request, context):
        with self._lock:
            self._watches += 1
        try:
            if context.add_callback(self.devices.wake):
                yield from self.devices.watch(
                    lambda: context.is_active() and not self.stopped.is_set())
        finally:
            with self._lock:
                self._watches -= 1
                self._left_at = time.monotonic()

    def GetPreferredAllocation(self, request, context):
        """Devices without a vGPU of an earlier container first: nothing has to be ended for
        them."""
        try:
            there = self.vgpus.list()
        except AdminError:
            there = {}
        answer = messages.PreferredAllocationResponse()
        for r in request.container_requests:
            must = list(dict.fromkeys(r.must_include_deviceIDs))
            self._check(context, [*must, *r.available_deviceIDs], some=False)
            free = sorted(set(r.available_deviceIDs) - set(must),
                          key=lambda d: (d in there, self.shares.number(d)))
            more = r.allocation_size - len(must)
            if more < 0 or more > len(free):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT,
                              f"{r.allocation_size} devices are asked for; {len(must)} must be "
                              f"among them, and {len(free)} more are available")
            answer.container_responses.add(deviceIDs=must + free[:more])
        return answer

    def Allocate(self, request, context):
        asked = [list(r.devices_ids) for r in request.container_requests]
        for devices in [*asked, *([sum(asked, [])] if asked else [])]:
            self._check(context, devices)
        answer = messages.AllocateResponse()
        for devices in asked:
            try:
                name = self.vgpus.make(devices)
            except Refused as e:
                refuse(context, grpc.StatusCode.FAILED_PRECONDITION, e)
            except (AdminError, OSError) as e:
                refuse(context, grpc.StatusCode.UNAVAILABLE, e)
            answer.container_responses.add(
                envs={"SLUICE_VGPU": name, "SLUICE_SOCKET": f"{POD_FOLDER}/{LOCAL_SOCKET}"},
                mounts=[messages.Mount(container_path=POD_FOLDER, read_only=True,
                                       host_path=self.vgpus.host_folder(name))])
            log.info("%s: made, shares: %d", name, len(devices))
        return answer

    def PreStartContainer(self, request, context):
        """The pod is known now, so what its annotations say is put into force, or keeps the
        container from starting. The vGPU may have gone since Allocate: the node was restarted."""
        devices = list(request.devices_ids)
        self._check(context, devices)
        try:
            self.follower.prepare(devices)
        except (settings.SettingsError, Refused) as e:
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, e)
        except (AdminError, pods.PodsError, RuntimeError, OSError) as e:
            refuse(context, grpc.StatusCode.UNAVAILABLE, e)
        return messages.PreStartContainerResponse()

    def _check(self, context, devices, some=True):
        wrong = [d for d in devices if not self.shares.offers(d)]
        if wrong:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT,
                          f"there is no device '{wrong[0][:63]}'; there are "
                          f"{self.shares.prefix}-0 to {self.shares.prefix}-{self.shares.count - 1}")
        if some and not devices:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a container asks for no device")
        if some and len(set(devices)) != len(devices):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a device is asked for twice")


class Follower:
    """Follows the node's pods. `api` None: annotations are not read."""

    def __init__(self, vgpus, devices, tool, resource, socket, api, allowed, grace_s):
        self.vgpus, self.shares, self.devices, self.tool = vgpus, vgpus.shares, devices, tool
        self.resource, self.socket, self.api = resource, socket, api
        self.allowed, self.grace_s = allowed, grace_s
        self._reported = {}
        self._last_said = {}  # by holder, for when the API server does not answer
        self._began = time.monotonic()

    def prepare(self, devices):
        """Before a container starts with these."""
        said = {}
        if self.api:
            holder = next((h for h in pods.holders(self.socket, self.resource)
                           if set(h.devices) == set(devices)), None)
            if holder:
                log.info("%s: %s", self.shares.vgpu(devices), holder)
                said = self._said(holder)
            else:
                # An init container: the kubelet does not list those.
                log.warning("%s: the kubelet lists no container with it; its annotations are not "
                            "read", self.shares.vgpu(devices))
        self.vgpus.prepare(devices, said)

    def look(self):
        """Once. Nothing that fails here ends it: the next look comes."""
        began = time.monotonic()
        try:
            there = self.vgpus.list()
        except AdminError as e:
            self._report("", str(e))
            self.devices.set_healthy(())
            return
        ids = self.shares.ids()
        self.devices.set_healthy({d for d in ids if d not in there or self.vgpus.ours(there[d])})
        try:
            holders = pods.holders(self.socket, self.resource)
        except pods.PodsError as e:
            # Who has ended is not known: nothing is removed.
            self._report("", str(e))
            return
        self._report("", None)
        known = [h for h in holders if all(self.shares.number(d) >= 0 for d in h.devices)]
        held = {self.shares.vgpu(h.devices): h for h in known}
        self._last_said = {h: s for h, s in self._last_said.items() if h in known}
        reached = True
        for name, holder in held.items():
            reached = self._follow(name, holder, began, reached)
        self._collect(there, held, began)

    def _follow(self, name, holder, began, ask):
        """`ask`: the API server, else what it has said last counts. False: it is not reached."""
        problem = None
        try:
            if ask:
                self._last_said[holder] = self._said(holder)
        except (settings.SettingsError, pods.PodsError, RuntimeError) as e:
            problem, ask = str(e), not isinstance(e, pods.Unreachable)
        try:
            # A vGPU that is missing is made again, whatever cannot be read now.
            if holder in self._last_said:
                self.vgpus.follow(list(holder.devices), self._last_said[holder], began)
        except (AdminError, OSError) as e:
            problem = str(e)
        self._report(name, f"{holder}: nothing changed: {problem}" if problem else None)
        return ask

    def _collect(self, there, held, began):
        for name, vgpu in there.items():
            if name in held or not self.vgpus.ours(vgpu) or self.shares.number(name) < 0:
                continue
            if began - self._began < self.grace_s:
                continue
            try:
                if self.vgpus.remove_old(name, began - self.grace_s):
                    log.info("%s: removed, its pod has ended", name)
            except AdminError as e:
                self._report(name, str(e))
        if began - self._began >= self.grace_s:
            with self.vgpus.lock:
                try:
                    self.vgpus.remove_folders({*held, *self.vgpus.list()})
                except AdminError as e:
                    self._report("", str(e))

    def _said(self, holder):
        """What the pod says of its vGPU, as vgpu.set takes it."""
        if not self.api:
            return {}
        ours, _ = settings.split(settings.named(self.api.annotations(holder)))
        for name in ours:
            if self.allowed is not None and name not in self.allowed:
                raise settings.SettingsError(
                    f"annotation {settings.ANNOTATIONS}{name}: this node allows "
                    + (", ".join(sorted(self.allowed)) or "none"))
        return self.tool.request(ours)

    def _report(self, name, problem):
        """Once each time that it is another one."""
        if problem == self._reported.get(name):
            return
        self._reported[name] = problem
        if problem:
            log.warning("%s%s", f"{name}: " if name else "", problem)


class Server:
    """Serves the plugin beside the kubelet's socket and keeps it registered. One thread; `waits`,
    for another plugin of the resource to end, may be read by any."""

    def __init__(self, folder, resource, plugin_of):
        self.folder, self.resource, self.plugin_of = pathlib.Path(folder), resource, plugin_of
        self.endpoint = resource.replace("/", "_") + ".sock"
        self.path = self.folder / self.endpoint
        self._server = self._plugin = self._ours = self._kubelet = None
        self.waits = False

    def keep(self):
        """To be called again and again."""
        kubelet = identity(self.folder / KUBELET_SOCKET)
        if self._server and identity(self.path) == self._ours and kubelet == self._kubelet:
            # One that is away removes our socket when it is back.
            if not self._plugin.left() or not answers(self.folder / KUBELET_SOCKET):
                return
            log.warning("the kubelet has ended its watch of %s", self.resource)
        self.stop()
        if kubelet is None:
            return
        waited, self.waits = self.waits, answers(self.path)
        if self.waits:
            if not waited:
                log.warning("another plugin serves %s at %s; this one goes on when it has ended",
                            self.resource, self.path)
            return
        try:
            self._serve()
            self._register()
            self._kubelet = kubelet
        except grpc.RpcError as e:
            self.stop()
            if e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise RuntimeError(f"the kubelet refuses {self.resource}: {e.details()}") from None
            log.warning("the kubelet does not answer: %s", e.details())

    def stop(self):
        if not self._server:
            return
        self._plugin.stopped.set()
        self._plugin.devices.wake()
        self._server.stop(1).wait()
        if identity(self.path) == self._ours:
            self.path.unlink(missing_ok=True)
        self._server = self._plugin = self._ours = self._kubelet = None

    def _serve(self):
        self._plugin = self.plugin_of()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(THREADS))
        service.add_DevicePluginServicer_to_server(self._plugin, self._server)
        # As it ends gRPC removes what is where it has listened: by then maybe another plugin's.
        at = self.path.with_suffix("." + os.urandom(4).hex())
        if self._server.add_insecure_port(f"unix:{at}") == 0:
            self._server = None
            raise OSError(f"{at}: cannot be listened on")
        self._server.start()
        at.rename(self.path)
        self._ours = identity(self.path)

    def _register(self):
        with grpc.insecure_channel(f"unix:{self.folder / KUBELET_SOCKET}") as channel:
            service.RegistrationStub(channel).Register(messages.RegisterRequest(
                version=VERSION, endpoint=self.endpoint, resource_name=self.resource,
                options=options()), timeout=REGISTER_TIMEOUT_S)
        log.info("registered as %s", self.resource)


def options():
    return messages.DevicePluginOptions(pre_start_required=True,
                                        get_preferred_allocation_available=True)


def identity(path):
    """Tells whether a path still names the same file; None: none."""
    try:
        s = os.lstat(path)
        return (s.st_dev, s.st_ino, s.st_ctime_ns)
    except OSError:
        return None


def answers(path):
    """Whether somebody listens at this socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.setblocking(False)
        try:
            s.connect(str(path))
        except BlockingIOError:  # as many wait as it lets
            pass
        except OSError:
            return False
    return True


def refuse(context, code, error):
    log.error("refused: %s", error)
    context.abort(code, f"Sluice: {error}")

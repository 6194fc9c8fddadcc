#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The device plugin between a real sluiced, on the software GPU, and a fake kubelet and API server.

    plugin_test.py BUILD_DIR [unittest's arguments]

A container is played by a program that is started with the environment of Allocate's answer and
finds the host's folder where the mount would be.
"""
import concurrent.futures
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import fakes
import grpc
import support
import wire
from host import Sluiced

PREFIX = "vgpu.sluice.example/"
RESOURCE = "sluice.example/vgpu"
OWNER = "kubernetes:" + RESOURCE
SHARES = 4
Code = grpc.StatusCode


def all_of(health, **but):
    return {**{f"kube-{n}": health for n in range(SHARES)},
            **{k.replace("_", "-"): v for k, v in but.items()}}


class WithPlugin(support.Case):
    """sluiced, a kubelet, an API server and a plugin, registered; its devices are watched."""
    OPTIONS = ()

    def setUp(self):
        self.work = self.folder()
        self.sluiced = Sluiced(support.BUILD, self.work)
        self.addCleanup(self.sluiced.stop)
        self.sluiced.start()
        (self.work / "plugins").mkdir()
        self.kubelet = fakes.Kubelet(self.work / "plugins", self.work / "pods.sock").start()
        self.addCleanup(self.kubelet.stop)
        self.api = fakes.ApiServer()
        self.addCleanup(self.api.stop)
        self.links = self.sluiced.run_dir / "pods"
        self.plugin = None
        # After its peers, which it waits for.
        self.addCleanup(lambda: self.plugin.stop())
        self.start_plugin()

    def options(self):
        return ("--shares", SHARES, "--admin-socket", self.sluiced.admin, "--folder", self.links,
                "--kubelet-folder", self.kubelet.folder, "--pod-resources",
                self.kubelet.pods_socket, "--api-server", self.api.url, "--account",
                self.work / "account", "--grace", 0.3, "--interval", 0.05, *self.OPTIONS)

    def start_plugin(self, registrations=1):
        self.plugin = support.Running(self.work, "sluice-device-plugin", *self.options())
        return self.registered(registrations)

    def registered(self, count):
        """The plugin's peer after so many registrations, all devices healthy."""
        request = self.kubelet.registrations(count)[-1]
        self.peer = fakes.PluginPeer(self.kubelet.folder / request["endpoint"]).watch()
        self.addCleanup(self.peer.close)
        self.assertEqual(self.peer.wait_for(all_of("Healthy")), all_of("Healthy"),
                         self.plugin.log())
        return request

    def vgpus(self):
        return {v["name"]: v for v in self.sluiced.ctl("list")}

    def shown(self, name):
        v = self.vgpus()[name]
        return {k: v[k] for k in ("weight", "memory_bytes", "priority", "latency", "min_permille",
                                  "max_permille", "group")}

    def pod(self, name, devices, **said):
        """A pod gets devices, as a kubelet does it; its containers' answer."""
        self.api.annotations["default", name] = {PREFIX + k: v for k, v in said.items()}
        (answer,) = self.peer.allocate(devices)
        self.kubelet.set_pod("default", name, devices)
        self.peer.start(*devices)
        return answer

    def environment(self, answer):
        """What a container's program has; the mount's place on the host is in its stead."""
        (mount,) = answer["mounts"]
        socket = answer["envs"]["SLUICE_SOCKET"]
        self.assertTrue(socket.startswith(mount["container_path"] + "/"), answer)
        return {**os.environ, **answer["envs"],
                "SLUICE_SOCKET": socket.replace(mount["container_path"], mount["host_path"]),
                "LD_LIBRARY_PATH": str(support.BUILD / "guest-agent/shim")}

    def run_program(self, answer):
        p = subprocess.run([support.BUILD / "kernels/suite/sluice-suite-probe"],
                           env=self.environment(answer), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, p.stdout + self.sluiced.log()[-2000:])

    def refused(self, code, *texts, method="Allocate", **values):
        with self.assertRaises(grpc.RpcError) as e:
            self.peer.plugin(method, **values)
        self.assertEqual(e.exception.code(), code, e.exception.details())
        for text in texts:
            self.assertIn(text, e.exception.details())

    def wait_for_log(self, text):
        self.eventually(lambda: text in self.plugin.log(), f"'{text}' in the log")


class Plugin(WithPlugin):
    OPTIONS = ("--memory-per-share", "64M", "--default", "latency=batch")

    def test_registration(self):
        self.assertEqual(self.kubelet.registrations(1)[0], {
            "version": "v1beta1", "endpoint": "sluice.example_vgpu.sock",
            "resource_name": RESOURCE,
            "options": {"pre_start_required": True, "get_preferred_allocation_available": True}})
        self.assertEqual(self.peer.plugin("GetDevicePluginOptions"),
                         {"pre_start_required": True, "get_preferred_allocation_available": True})

    def test_a_pod_from_its_beginning_to_its_end(self):
        answer = self.pod("a", ["kube-1"])
        self.assertEqual(answer["envs"], {"SLUICE_VGPU": "kube-1",
                                          "SLUICE_SOCKET": "/run/sluice-vgpu/vgpu.local"})
        self.assertEqual(answer["mounts"], [{"container_path": "/run/sluice-vgpu",
                                             "host_path": str(self.links / "kube-1"),
                                             "read_only": True}])
        self.assertEqual((answer["devices"], answer["cdi_devices"]), ([], []))
        self.assertEqual(self.vgpus()["kube-1"]["owner"], OWNER)
        self.assertEqual(self.shown("kube-1"), {
            "weight": 100, "memory_bytes": 64 << 20, "priority": 0, "latency": "batch",
            "min_permille": 0, "max_permille": 0, "group": ""})
        # QEMU's socket is there, too, and nothing else.
        inside = self.links / "kube-1"
        self.assertEqual({p.name for p in inside.iterdir()}, {"vgpu.sock", "vgpu.local"})
        self.assertTrue(all(stat.S_ISSOCK(p.lstat().st_mode) for p in inside.iterdir()))
        self.run_program(answer)
        # Looks pass by, and it stays.
        self.peer.start("kube-1")
        self.assertIn("kube-1", self.vgpus())
        self.kubelet.set_pod("default", "a", [])
        self.eventually(lambda: not self.vgpus(), "the vGPU is removed")
        self.eventually(lambda: not list(self.links.iterdir()), "its folder is removed")

    def test_shares_add_up(self):
        self.pod("a", ["kube-3", "kube-0", "kube-2"])
        self.assertEqual(set(self.vgpus()), {"kube-0"})
        shown = self.shown("kube-0")
        self.assertEqual((shown["weight"], shown["memory_bytes"]), (300, 192 << 20))

    def test_annotations(self):
        self.pod("a", ["kube-0"], weight="700", latency="low", min="10", max="50", priority="2",
                 memory="1G")
        wanted = {"weight": 700, "memory_bytes": 1 << 30, "priority": 2, "latency": "low",
                  "min_permille": 100, "max_permille": 500, "group": ""}
        self.assertEqual(self.shown("kube-0"), wanted)
        # Set by hand: it holds until an annotation changes.
        self.sluiced.ctl("set", "kube-0", "--weight", 5)
        said = self.api.annotations["default", "a"]
        said[PREFIX + "max"] = "60"
        wanted = {**wanted, "weight": 5, "max_permille": 600}
        self.eventually(lambda: self.shown("kube-0") == wanted, "the annotation is followed")
        said[PREFIX + "weight"] = "nonsense"
        self.wait_for_log("annotation " + PREFIX + "weight: weight is 'nonsense'")
        self.assertEqual(self.shown("kube-0"), wanted)
        # What is not said any more is as it is by default.
        self.api.annotations["default", "a"] = {}
        wanted = {"weight": 100, "memory_bytes": 64 << 20, "priority": 0, "latency": "batch",
                  "min_permille": 0, "max_permille": 0, "group": ""}
        self.eventually(lambda: self.shown("kube-0") == wanted, "the defaults are back")

    def test_bad_annotations_keep_a_container_from_starting(self):
        hostile = ("0", "300'/><a/>", "--socket=/x", "3\n", "\u0663", "3" * 10_000)
        for n, value in enumerate(hostile):
            with self.subTest(value=value[:20]), self.assertRaises(grpc.RpcError) as e:
                self.pod(f"p{n}", ["kube-0"], weight=value)
            self.kubelet.set_pod("default", f"p{n}", [])
            self.assertEqual(e.exception.code(), Code.FAILED_PRECONDITION)
            self.assertIn("annotation " + PREFIX + "weight", e.exception.details())
        with self.assertRaises(grpc.RpcError) as e:
            self.pod("b", ["kube-0"], group="nobody")
        self.assertIn("nobody", e.exception.details())
        # Mended, it starts.
        self.api.annotations["default", "b"] = {PREFIX + "weight": "9"}
        self.peer.start("kube-0")
        self.assertEqual(self.shown("kube-0")["weight"], 9)

    def test_the_api_server_does_not_answer_right(self):
        self.peer.allocate(["kube-0"])
        self.kubelet.set_pod("default", "a", ["kube-0"])
        for answer, text in (((403, "no"), "403"), ((403, "no"), "RBAC"), ((500, "x"), "500"),
                             ((200, "{"), "/api/v1/namespaces/default/pods/a"),
                             ((200, "[]"), "pods/a"), ((200, '{"metadata":3}'), "pods/a"),
                             ((200, "[" * 100_000), ""), ((200, "\udcff"), "pods/a"),
                             ((200, '{"metadata":{"annotations":{"a":"' + "b" * (4 << 20)),
                              "pods/a"), ((200, ""), "pods/a")):
            self.api.answer = answer
            self.refused(Code.UNAVAILABLE, text, method="PreStartContainer",
                         devices_ids=["kube-0"])
        self.api.answer = None  # 404: the pod is gone, the kubelet will say so
        self.peer.start("kube-0")
        self.kubelet.set_pod("..", "a", ["kube-1"])
        self.peer.allocate(["kube-1"])
        self.refused(Code.UNAVAILABLE, "'..' is no name", method="PreStartContainer",
                     devices_ids=["kube-1"])

    def test_the_api_server_sends_elsewhere(self):
        other = fakes.ApiServer()
        self.addCleanup(other.stop)
        self.peer.allocate(["kube-0"])
        self.kubelet.set_pod("default", "a", ["kube-0"])
        self.api.answer = (307, "")
        self.api.location = other.url + "/api/v1/namespaces/default/pods/a"
        self.refused(Code.UNAVAILABLE, "307", method="PreStartContainer", devices_ids=["kube-0"])
        self.assertEqual(other.requests, [], "it would have had the token")

    def test_a_device_again(self):
        first = self.pod("a", ["kube-0"], weight="700")
        program = subprocess.Popen(
            [support.BUILD / "kernels/suite/sluice-suite-triad", "--seconds", "1000"],
            env=self.environment(first), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.eventually(lambda: self.vgpus()["kube-0"]["sessions"] == 1, "the program has begun")
        # The kubelet gives the device to somebody else before it says that `a` has ended.
        self.api.annotations["default", "b"] = {}
        (second,) = self.peer.allocate(["kube-0"])
        self.assertNotEqual(program.wait(support.TIMEOUT_S), 0)
        self.kubelet.set_pod("default", "a", [])
        self.kubelet.set_pod("default", "b", ["kube-0"])
        self.peer.start("kube-0")
        self.assertEqual(self.shown("kube-0")["weight"], 100)
        self.run_program(second)

    def test_two_pods_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda n: self.pod(f"p{n}", [f"kube-{n}"], weight=str(n + 1)),
                                    range(2)))
        self.assertEqual([self.shown(f"kube-{n}")["weight"] for n in range(2)], [1, 2])
        for a in answers:
            self.run_program(a)

    def test_several_containers_of_one_call(self):
        answers = self.peer.allocate(["kube-0"], ["kube-2", "kube-3"])
        self.assertEqual([a["envs"]["SLUICE_VGPU"] for a in answers], ["kube-0", "kube-2"])
        self.assertEqual(self.shown("kube-2")["weight"], 200)

    def test_calls_that_are_malformed(self):
        for devices in ([["kube-4"]], [["kube-01"]], [["kube-"]], [["x"]], [["../kube-0"]], [[""]],
                        [["kube--1"]], [["kube-\u0663"]], [[]], [["kube-0", "kube-0"]],
                        [["kube-0"], ["kube-0"]], [["kube-1"], ["kube-9"]], [["a" * 100_000]]):
            with self.subTest(str(devices)[:40]):
                self.refused(Code.INVALID_ARGUMENT, "device",
                             container_requests=[{"devices_ids": d} for d in devices])
                if len(devices) == 1:
                    self.refused(Code.INVALID_ARGUMENT, "device", method="PreStartContainer",
                                 devices_ids=devices[0])
        for data in (b"\x0a\x7f<", b"\x07", b"\xff" * 20):
            with self.assertRaises(grpc.RpcError):
                self.peer.raw("/v1beta1.DevicePlugin/Allocate", data)
        with self.assertRaises(grpc.RpcError) as e:
            self.peer.raw("/v1beta1.DevicePlugin/Nothing", b"")
        self.assertEqual(e.exception.code(), Code.UNIMPLEMENTED)
        self.assertEqual(self.vgpus(), {})
        self.assertEqual(self.peer.plugin("Allocate"), {"container_responses": []})
        self.run_program(self.pod("a", ["kube-0"]))

    def test_preferred_allocation(self):
        def preferred(available, must, size):
            (answer,) = self.peer.plugin("GetPreferredAllocation", container_requests=[{
                "available_deviceIDs": available, "must_include_deviceIDs": must,
                "allocation_size": size}])["container_responses"]
            return answer["deviceIDs"]

        ids = [f"kube-{n}" for n in (3, 1, 0, 2)]
        self.assertEqual(preferred(ids, [], 2), ["kube-0", "kube-1"])
        self.assertEqual(preferred(ids, ["kube-3"], 2), ["kube-3", "kube-0"])
        # One whose pod has just ended still has a vGPU.
        self.pod("a", ["kube-0"])
        self.assertEqual(preferred(ids, [], 2), ["kube-1", "kube-2"])
        self.assertEqual(preferred(ids, [], 4)[-1], "kube-0")
        for available, must, size in ((ids, [], 5), (["kube-0"], ["kube-1"], 0), (["x"], [], 1),
                                      (ids, [], -1)):
            self.refused(Code.INVALID_ARGUMENT, "device", method="GetPreferredAllocation",
                         container_requests=[{"available_deviceIDs": available,
                                              "must_include_deviceIDs": must,
                                              "allocation_size": size}])

    def test_a_folder_on_another_file_system(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
            if os.stat(elsewhere).st_dev == os.stat(self.work).st_dev:
                self.skipTest("/dev/shm is no other file system")
            self.plugin.stop()
            self.links = elsewhere
            self.start_plugin(2)
            self.refused(Code.UNAVAILABLE, "must be on the file system of sluiced's sockets",
                         container_requests=[{"devices_ids": ["kube-0"]}])
            self.assertEqual(self.vgpus(), {})

    def test_a_vgpu_of_somebody_else(self):
        self.sluiced.ctl("create", "kube-2")
        unwell = all_of("Healthy", kube_2="Unhealthy")
        self.assertEqual(self.peer.wait_for(unwell), unwell)
        self.refused(Code.FAILED_PRECONDITION, "kube-2", container_requests=[
            {"devices_ids": ["kube-2"]}])
        self.refused(Code.FAILED_PRECONDITION, "made by somebody else",
                     method="PreStartContainer", devices_ids=["kube-2"])
        self.sluiced.ctl("delete", "kube-2")
        self.assertEqual(self.peer.wait_for(all_of("Healthy")), all_of("Healthy"))
        # Nor does it remove what it has not made.
        self.sluiced.ctl("create", "vm1")
        self.pod("a", ["kube-0"])
        self.kubelet.set_pod("default", "a", [])
        self.eventually(lambda: set(self.vgpus()) == {"vm1"}, "its own is removed")

    def test_https_with_the_clusters_certificate(self):
        account = self.work / "account"
        account.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=cluster",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", account / "key",
                        "-out", account / "ca.crt"], check=True, stderr=subprocess.DEVNULL)
        both = self.work / "both.pem"
        both.write_text((account / "key").read_text() + (account / "ca.crt").read_text())
        self.api.stop()
        self.api = fakes.ApiServer(both)
        self.addCleanup(self.api.stop)
        self.plugin.stop()
        (account / "token").write_text("first\n")
        self.start_plugin(2)
        self.pod("a", ["kube-0"], weight="7")
        self.assertEqual(self.shown("kube-0")["weight"], 7)
        path, headers = self.api.requests[0]
        self.assertEqual(path, "/api/v1/namespaces/default/pods/a")
        self.assertEqual(headers["Authorization"], "Bearer first")
        self.assertIn("PartialObjectMetadata", headers["Accept"])
        (account / "token").write_text("second\n")
        self.peer.start("kube-0")
        self.assertEqual(self.api.requests[-1][1]["Authorization"], "Bearer second")
        # Another certificate is not the cluster's.
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=other", "-keyout",
                        "/dev/null", "-out", account / "ca.crt"], check=True,
                       stderr=subprocess.DEVNULL)
        self.refused(Code.UNAVAILABLE, "CERTIFICATE_VERIFY_FAILED", method="PreStartContainer",
                     devices_ids=["kube-0"])


class Restarts(WithPlugin):
    def test_the_kubelet(self):
        answer = self.pod("a", ["kube-0"], weight="7")
        for again in (2, 3):
            self.kubelet.stop()
            self.kubelet.start()
            self.assertEqual(self.registered(again)["resource_name"], RESOURCE)
        self.assertEqual(self.shown("kube-0")["weight"], 7)
        self.run_program(answer)

    def test_the_kubelet_ends_its_watch(self):
        """As after an error: it does not begin another by itself, and offers no device."""
        answer = self.pod("a", ["kube-0"], weight="7")
        self.peer.close()
        self.registered(2)
        self.run_program(answer)
        self.pod("b", ["kube-1"])

    def test_the_kubelet_is_away(self):
        self.pod("a", ["kube-0"])
        self.kubelet.stop()
        self.wait_for_log("the kubelet does not list pods")
        self.assertIn("kube-0", self.vgpus())

    def test_the_plugins_socket_goes(self):
        (self.kubelet.folder / "sluice.example_vgpu.sock").unlink()
        self.registered(2)
        self.pod("a", ["kube-0"])

    def test_sluiced(self):
        answer = self.pod("a", ["kube-0"], weight="7")
        self.run_program(answer)
        os.kill(self.sluiced.process.pid, signal.SIGKILL)
        self.sluiced.process.wait()
        self.assertEqual(self.peer.wait_for(all_of("Unhealthy")), all_of("Unhealthy"))
        self.refused(Code.UNAVAILABLE, "systemctl start sluiced",
                     container_requests=[{"devices_ids": ["kube-1"]}])
        self.refused(Code.UNAVAILABLE, "systemctl start sluiced", method="PreStartContainer",
                     devices_ids=["kube-0"])
        self.sluiced.start()
        self.assertEqual(self.peer.wait_for(all_of("Healthy")), all_of("Healthy"))
        # The pod runs on: its next program finds the vGPU again, at the same place.
        self.eventually(lambda: "kube-0" in self.vgpus(), "the vGPU is made again")
        self.eventually(lambda: self.shown("kube-0")["weight"] == 7, "with its settings")
        self.eventually(lambda: os.path.samefile(self.links / "kube-0/vgpu.local",
                                                 self.sluiced.local_socket("kube-0")),
                        "its socket is linked")
        self.run_program(answer)

    def test_sluiced_is_stopped_and_continued(self):
        """It is there and does not answer. Waited for for less than 20 s."""
        self.pod("a", ["kube-0"])
        self.plugin.stop()
        self.plugin = support.Running(self.work, "sluice-device-plugin", *self.options(),
                                      answer_within_s=5)
        self.registered(2)
        self.sluiced.process.send_signal(signal.SIGSTOP)
        try:
            self.refused(Code.UNAVAILABLE, "sluiced has not answered within 5 s",
                         container_requests=[{"devices_ids": ["kube-1"]}])
            self.assertEqual(self.peer.wait_for(all_of("Unhealthy")), all_of("Unhealthy"))
        finally:
            self.sluiced.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.peer.wait_for(all_of("Healthy")), all_of("Healthy"))
        self.pod("b", ["kube-1"])

    def test_sluiced_while_the_api_server_is_away(self):
        answer = self.pod("a", ["kube-0"], weight="7")
        self.pod("b", ["kube-1"], latency="low")
        looked = len(self.api.requests)
        self.eventually(lambda: len(self.api.requests) > looked + 2, "pods are looked at")
        self.api.stop()
        self.sluiced.stop()
        self.assertEqual(self.peer.wait_for(all_of("Unhealthy")), all_of("Unhealthy"))
        self.sluiced.start()
        self.eventually(lambda: set(self.vgpus()) == {"kube-0", "kube-1"}, "vGPUs are made again")
        self.assertEqual(self.shown("kube-0")["weight"], 7)
        self.assertEqual(self.shown("kube-1")["latency"], "low")
        self.run_program(answer)
        self.refused(Code.UNAVAILABLE, "/api/v1/namespaces/default/pods/a",
                     method="PreStartContainer", devices_ids=["kube-0"])

    def test_the_plugin(self):
        answer = self.pod("a", ["kube-0"], weight="7")
        self.pod("b", ["kube-1"])
        self.assertEqual(self.plugin.stop(), 0, self.plugin.log())
        self.assertFalse((self.kubelet.folder / "sluice.example_vgpu.sock").exists())
        self.assertEqual(set(self.vgpus()), {"kube-0", "kube-1"})
        # Meanwhile a pod ends, and an annotation changes.
        self.kubelet.set_pod("default", "b", [])
        self.api.annotations["default", "a"] = {PREFIX + "weight": "8"}
        self.start_plugin(2)
        self.eventually(lambda: set(self.vgpus()) == {"kube-0"}, "what nobody has is removed")
        self.eventually(lambda: self.shown("kube-0")["weight"] == 8, "annotations are followed")
        self.run_program(answer)
        self.plugin.kill()
        self.start_plugin(3)
        self.pod("c", ["kube-1"])

    def test_the_plugin_is_stopped_and_continued(self):
        """As by a debugger, or where the node sleeps: for longer than it waits for signals."""
        for again in (2, 3):
            self.plugin.process.send_signal(signal.SIGSTOP)
            time.sleep(0.3)
            self.plugin.process.send_signal(signal.SIGCONT)
            (self.kubelet.folder / "sluice.example_vgpu.sock").unlink()
            self.registered(again)
        self.pod("a", ["kube-0"])
        self.assertEqual(self.plugin.stop(), 0, self.plugin.log())

    def test_the_plugin_offers_less(self):
        self.pod("a", ["kube-3", "kube-2"], weight="7")
        self.plugin.stop()
        less = [str(o) for o in self.options()]
        less[1] = "1"
        self.plugin = support.Running(self.work, "sluice-device-plugin", *less)
        self.peer = fakes.PluginPeer(self.kubelet.folder / self.kubelet.registrations(2)[1][
            "endpoint"]).watch()
        self.addCleanup(self.peer.close)
        self.assertEqual(self.peer.wait_for({"kube-0": "Healthy"}), {"kube-0": "Healthy"})
        # A pod that has what is not offered any more keeps it to its end.
        self.api.annotations["default", "a"] = {PREFIX + "weight": "8"}
        self.eventually(lambda: self.shown("kube-2")["weight"] == 8, "annotations are followed")
        self.refused(Code.INVALID_ARGUMENT, "kube-0 to kube-0",
                     container_requests=[{"devices_ids": ["kube-3"]}])
        self.kubelet.set_pod("default", "a", [])
        self.eventually(lambda: not self.vgpus(), "the vGPU is removed")

    def test_the_node(self):
        """After a restart of the node the kubelet starts containers without a new Allocate."""
        answer = self.pod("a", ["kube-0", "kube-1"], weight="7")
        self.plugin.stop()
        self.sluiced.stop()
        shutil.rmtree(self.links)
        self.sluiced.start()
        self.start_plugin(2)
        self.peer.start("kube-0", "kube-1")
        self.assertEqual(self.shown("kube-0")["weight"], 7)
        self.run_program(answer)

    def another(self):
        """A second plugin of the same resource on this node."""
        other = support.Running(self.folder(), "sluice-device-plugin", *self.options())
        self.addCleanup(other.stop)
        return other

    def assert_waits(self, plugin):
        self.eventually(lambda: "another plugin serves sluice.example/vgpu at" in plugin.log(),
                        "it waits")

    def test_a_second_plugin_waits_for_the_first_one_to_end(self):
        """As where an update starts the new one first, or two sets of them are there."""
        answer = self.pod("a", ["kube-0"], weight="7")
        other = self.another()
        self.assert_waits(other)
        # It does nothing: a pod that ended is the first one's.
        self.pod("b", ["kube-1"])
        self.kubelet.set_pod("default", "b", [])
        self.eventually(lambda: set(self.vgpus()) == {"kube-0"}, "the vGPU is removed")
        self.assertNotIn("kube-1", other.log())
        self.assertEqual(len(self.kubelet.registrations(1)), 1)
        self.assertEqual(self.plugin.stop(), 0, self.plugin.log())
        self.registered(2)
        self.run_program(answer)
        self.pod("c", ["kube-1"])

    def test_a_second_plugin_that_was_faster_stays(self):
        self.plugin.process.send_signal(signal.SIGSTOP)
        (self.kubelet.folder / "sluice.example_vgpu.sock").unlink()
        other = self.another()
        self.registered(2)
        self.plugin.process.send_signal(signal.SIGCONT)
        self.assert_waits(self.plugin)
        self.assertEqual(self.plugin.stop(), 0, self.plugin.log())
        self.pod("a", ["kube-0"])
        self.assertEqual(len(self.kubelet.registrations(2)), 2)
        self.assertNotIn("another plugin", other.log())

    def test_the_kubelet_refuses(self):
        self.kubelet.refuses = "version v1beta1 is not supported"
        self.kubelet.stop()
        self.kubelet.start()
        self.assertEqual(self.plugin.wait(), 1)
        self.assertIn("the kubelet refuses sluice.example/vgpu: version v1beta1 is not supported",
                      self.plugin.log())


class Narrow(WithPlugin):
    OPTIONS = ("--allow", "latency,max")

    def test_a_node_allows_some_annotations(self):
        self.pod("a", ["kube-0"], latency="low", max="50")
        self.assertEqual(self.shown("kube-0")["latency"], "low")
        with self.assertRaises(grpc.RpcError) as e:
            self.pod("b", ["kube-1"], weight="10000")
        self.assertEqual(e.exception.code(), Code.FAILED_PRECONDITION)
        self.assertIn(PREFIX + "weight: this node allows latency, max", e.exception.details())
        self.assertEqual(self.shown("kube-1")["weight"], 100)


class WithoutAnnotations(WithPlugin):
    OPTIONS = ("--no-annotations",)

    def test_nobody_is_asked(self):
        self.pod("a", ["kube-0"], weight="700")
        self.assertEqual(self.shown("kube-0")["weight"], 100)
        self.assertEqual(self.api.requests, [])
        self.assertNotIn("WARNING", self.plugin.log())


class CommandLine(support.Case):
    def test_mistakes(self):
        for options, text in (
                (("--shares", 0), "--shares must be 1 to"),
                (("--shares", 100, "--weight-per-share", 101), "--weight-per-share"),
                (("--memory-per-share", "8Q"), "--memory-per-share: memory"),
                (("--default", "latency=fast"), "--default: latency: latency must be low"),
                (("--default", "weight=3"), "--weight-per-share"), (("--default", "x"), "NAME=V"),
                (("--resource", "vgpu"), "DOMAIN/NAME"),
                (("--resource", "kubernetes.io/vgpu"), "no domain of Kubernetes"),
                (("--prefix", "a/b"), "--prefix"), (("--interval", "0"), "--interval"),
                ((), "no API server is known")):
            more = () if not options else ("--no-annotations",)
            with self.subTest(options):
                env = support.environment()
                env.pop("KUBERNETES_SERVICE_HOST", None)
                p = subprocess.run(support.program("sluice-device-plugin", *options, *more),
                                   env=env, capture_output=True, text=True,
                                   timeout=support.TIMEOUT_S)
                self.assertEqual(p.returncode, 2, p.stderr)
                self.assertIn(text, p.stderr)


class Table(support.Case):
    def test_what_is_generated_has_the_published_numbers(self):
        """The messages that protoc made of our .proto files, against wire.py."""
        code = ("import importlib, json, sys\n"
                "out = {}\n"
                "for name in sys.argv[1:]:\n"
                "  m = importlib.import_module('sluice_kubernetes.' + name + '_pb2').DESCRIPTOR\n"
                "  out[name] = [m.package,\n"
                "    {t.name: {f.number: [f.name, f.type, f.label] for f in t.fields}\n"
                "     for t in m.message_types_by_name.values()},\n"
                "    {f'/{s.full_name}/{c.name}': [c.input_type.name, c.output_type.name]\n"
                "     for s in m.services_by_name.values() for c in s.methods}]\n"
                "print(json.dumps(out))\n")
        names = ["hooks_info", "hooks_v1alpha2", "hooks_v1alpha3", "deviceplugin_v1beta1",
                 "podresources_v1"]
        text = subprocess.run([sys.executable, "-c", code, *names], check=True, text=True,
                              stdout=subprocess.PIPE, env={
                                  **support.environment(),
                                  "PYTHONPATH": str(support.BUILD / "packaging/kubernetes")}).stdout
        # protobuf's numbers of types: 5 int32, 8 bool, 9 string, 11 a message, 12 bytes.
        types = {wire.INT32: 5, wire.BOOL: 8, wire.STRING: 9, wire.BYTES: 12}
        methods = {}
        for package, messages, services in json.loads(text).values():
            methods.update({m: tuple(v) for m, v in services.items()})
            for message, fields in messages.items():
                for number, (name, kind, label) in fields.items():
                    published = wire.MESSAGES[message][int(number)]
                    self.assertEqual((name, kind, label == 3), (
                        published[0], types.get(published[1], 11), published[2]),
                        f"{package}.{message}")
        self.assertEqual(methods, wire.METHODS)


if __name__ == "__main__":
    support.main()

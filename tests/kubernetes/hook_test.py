#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The KubeVirt hook sidecar beside a fake virt-launcher.

    hook_test.py BUILD_DIR [unittest's arguments]
"""
import concurrent.futures
import signal
import subprocess
import xml.etree.ElementTree as ET

import fakes
import grpc
import support
import wire
from virt import domain_xml

PREFIX = "vgpu.sluice.example/"
SOCKET = "/run/sluice-vgpu/vgpu.sock"
SETTINGS = "{https://sluice.example/vgpu/1}vgpu"
Code = grpc.StatusCode


def domain(name="default_vm1", machine="q35"):
    """As KubeVirt has it: namespaces and metadata of its own."""
    text = domain_xml(name, "/vmlinux", "/initrd", "/job", "/console")
    return text.replace("machine='q35'", f"machine='{machine}'").replace(
        "<domain type='qemu'>",
        "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><metadata>"
        "<kubevirt xmlns='http://kubevirt.io'><uid>7</uid></kubevirt></metadata>").replace(
        "</domain>", "<qemu:commandline><qemu:arg value='-x'/></qemu:commandline></domain>")


def vmi(annotations=None, name="vm1", shares="1"):
    resources = {"limits": {"sluice.example/vgpu": shares}} if shares else {}
    return {"kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"domain": {"resources": resources}}}


def ours(**settings):
    return {**{PREFIX + k: v for k, v in settings.items()}, "other.example/weight": "<&'\">"}


class Hook(support.Case):
    @classmethod
    def setUpClass(cls):
        cls.work = cls.folder()
        cls.socket = cls.work / "sluice-vgpu.sock"
        cls.sidecar = support.Running(cls.work, "sluice-kubevirt-hook", "--socket", cls.socket)
        cls.addClassCleanup(cls.sidecar.stop)
        cls.launcher = fakes.VirtLauncher(cls.socket)
        cls.addClassCleanup(cls.launcher.close)

    def parts(self, xml):
        """(metadata's settings, the server's path, vectors, whether there is an IOMMU)."""
        root = ET.fromstring(xml)
        (shmem,) = root.findall("devices/shmem")
        self.assertEqual(shmem.find("model").get("type"), "ivshmem-doorbell")
        (vgpu,) = root.findall("metadata/" + SETTINGS)
        self.assertEqual(len(vgpu), 0)
        iommu = root.find("devices/iommu")
        return (vgpu.attrib, shmem.find("server").get("path"), shmem.find("msi").get("vectors"),
                iommu is not None and root.find("features/ioapic").get("driver") == "qemu")

    def refused(self, code, *texts, domain_xml=None, asked=None, **kw):
        with self.assertRaises(grpc.RpcError) as e:
            self.launcher.define(domain() if domain_xml is None else domain_xml,
                                 vmi(**kw) if asked is None else asked)
        self.assertEqual(e.exception.code(), code, e.exception.details())
        for text in texts:
            self.assertIn(text, e.exception.details())
        return e.exception.details()

    def test_info(self):
        info = self.launcher.info()
        self.assertEqual(info["versions"], ["v1alpha3", "v1alpha2"])
        self.assertEqual(info["name"], "sluice-vgpu")
        # Not PreCloudInitIso: virt-launcher would then ask no other sidecar for it.
        self.assertEqual({p["name"] for p in info["hookPoints"]}, {"OnDefineDomain", "Shutdown"})

    def test_a_domain_gets_its_vgpu(self):
        said = ours(weight="300", memory="8G", priority="3", latency="low", min="10", max="50",
                    group="team-a")
        for version in ("v1alpha3", "v1alpha2"):
            with self.subTest(version):
                xml = self.launcher.define(domain(), vmi(said), version)
                self.assertEqual(self.parts(xml), (
                    {k[len(PREFIX):]: v for k, v in said.items() if k.startswith(PREFIX)},
                    SOCKET, "17", True))
                root = ET.fromstring(xml)
                # What was there is there.
                self.assertEqual(root.find("metadata/{http://kubevirt.io}kubevirt/"
                                           "{http://kubevirt.io}uid").text, "7")
                self.assertIn("<qemu:arg value=\"-x\"", xml)
                self.assertEqual(len(root.findall("devices/serial")), 2)

    def test_without_annotations(self):
        for said in (None, {}, {"a/b": "c"}):
            self.assertEqual(self.parts(self.launcher.define(domain(), vmi(said))),
                             ({}, SOCKET, "17", True))

    def test_a_name_that_no_vgpu_could_have(self):
        name = "a" * 63 + "_" + "b" * 63
        xml = self.launcher.define(domain(name), vmi(ours(weight="2")))
        self.assertEqual(ET.fromstring(xml).findtext("name"), name)

    def test_a_domain_that_has_everything(self):
        once = self.launcher.define(domain(), vmi(ours(weight="300")))
        self.assertEqual(self.launcher.define(once, vmi(ours(weight="300"))), once)
        other = self.launcher.define(once, vmi(ours(latency="batch", slots="3")))
        self.assertEqual(self.parts(other), ({"latency": "batch"}, SOCKET, "4", True))
        self.assertEqual(len(ET.fromstring(other).findall("devices/iommu")), 1)

    def test_a_domain_with_another_device_of_the_kind(self):
        other = self.launcher.define(domain(), vmi()).replace(SOCKET, "/somewhere/else")
        self.refused(Code.INVALID_ARGUMENT, "/somewhere/else", "one only", domain_xml=other)
        twice = domain().replace("<memballoon", "<shmem name='a'><model type='ivshmem-doorbell'/>"
                                 f"<server path='{SOCKET}'/></shmem><shmem name='b'>"
                                 "<model type='ivshmem-doorbell'/></shmem><memballoon")
        self.refused(Code.INVALID_ARGUMENT, "more than one <shmem>", domain_xml=twice)

    def test_the_device(self):
        define = self.launcher.define
        self.assertFalse(self.parts(define(domain(), vmi(ours(iommu="leave"))))[3])
        self.assertFalse(self.parts(define(domain(machine="pc"), vmi()))[3])
        self.assertEqual(self.parts(define(domain(), vmi(ours(slots="64"))))[2], "65")
        self.refused(Code.INVALID_ARGUMENT, "virtual IOMMU", "machine is 'pc'",
                     domain_xml=domain(machine="pc"), annotations=ours(iommu="required"))

    def test_bad_annotations_are_named(self):
        cases = (
            ("weight", "0", "1 to 10000"), ("weight", "10001", "1 to 10000"),
            ("weight", "", "1 to 10000"), ("weight", "3.5", "1 to 10000"),
            ("weight", " 3", "1 to 10000"), ("weight", "-1", "1 to 10000"),
            ("priority", "32", "0 to 31"), ("latency", "fast", "low, normal or batch"),
            ("min", "101", "0 to 100"), ("max", "x", "0 to 100"), ("memory", "8Q", "memory"),
            ("memory", "99999999999999G", "memory"), ("group", "a b", "group's name"),
            ("group", "../x", "group's name"), ("wieght", "3", "weight, memory, priority"),
            ("Weight", "3", "weight, memory, priority"), ("", "3", "no such setting"),
            ("iommu", "on", "where-possible, required, leave"), ("slots", "0", "1 to 64"),
            ("slots", "65", "1 to 64"), ("slots", "\u0663", "ASCII"), ("weight", 3, "in quotes"),
            ("weight", None, "in quotes"), ("weight", ["3"], "in quotes"))
        for name, value, allowed in cases:
            with self.subTest(name=name, value=value):
                self.refused(Code.INVALID_ARGUMENT, "annotation " + PREFIX + name, allowed,
                             annotations={PREFIX + name: value})
        self.refused(Code.INVALID_ARGUMENT, "annotations " + PREFIX, "min is more than max",
                     annotations=ours(min="20", max="10"))

    def test_hostile_annotations(self):
        evil = ("300'/><shmem name='x'/><a b='", "300\"><domain/>", "]]>", "<!--", "&x;", "&#60;",
                "300\n<a/>", "300\0", "\ud800", "--socket", "\u202e300", "3" * 100_000)
        names = ("xmlns", "xmlns:sluice", "weight='1' memory", "weight=1", "--socket", "-", "a\0b",
                 "wei\nght", "sluice:weight", "><evil/>", "w" * 100_000)
        for name in ("weight", "memory", "latency", "min", "group", "priority"):
            for value in evil:
                with self.subTest(name=name, value=value[:40]):
                    self.refused(Code.INVALID_ARGUMENT, "annotation " + PREFIX + name,
                                 annotations={PREFIX + name: value})
        for name in names:
            for value in ("300", "https://sluice.example/vgpu/1", "/etc/passwd"):
                with self.subTest(name=name[:40], value=value):
                    text = self.refused(Code.INVALID_ARGUMENT, "annotation " + PREFIX,
                                        annotations={PREFIX + name: value})
                    self.assertLess(len(text), 500)
                    self.assertTrue(text.isprintable(), text)
        self.test_without_annotations()

    def test_calls_that_are_malformed(self):
        for bad in (b"", b"{", b"[]", b"3", b"null", b"\xff\xfe", b'{"metadata":3}',
                    b'{"metadata":{"annotations":3},"spec":3}', b"[" * 100_000,
                    b'{"metadata":{},"spec":[]}',
                    b'{"metadata":{},"spec":{"domain":{"resources":{"limits":[]}}}}'):
            with self.subTest(vmi=bad[:60]):
                self.refused(Code.INVALID_ARGUMENT, "VMI", asked=bad)
        bad = vmi()
        bad["metadata"]["annotations"] = [PREFIX]
        self.refused(Code.INVALID_ARGUMENT, "annotations is no object", asked=bad)
        for bad in (b"", b"<domain", b"<network/>", b"\0", b"<domain/>",
                    b"<!DOCTYPE a [<!ENTITY e 'x'>]><domain><name>&e;</name></domain>",
                    b"<domain><name>v</name>" + b"<a>" * 50_000):
            with self.subTest(domain=bad[:40]):
                self.refused(Code.INVALID_ARGUMENT, "the domain", domain_xml=bad)
        path = "/kubevirt.hooks.v1alpha3.Callbacks/OnDefineDomain"
        with self.assertRaises(grpc.RpcError):  # no protobuf: a length beyond the end
            self.launcher.raw(path, b"\x0a\x7f<")
        with self.assertRaises(grpc.RpcError) as e:
            self.launcher.raw(path, b"\x0a\x85\x80\x80\x04" + b"x" * (8 << 20 | 5))
        self.assertEqual(e.exception.code(), Code.RESOURCE_EXHAUSTED)
        with self.assertRaises(grpc.RpcError) as e:
            self.launcher.raw("/kubevirt.hooks.v1alpha2.Callbacks/Shutdown", b"")
        self.assertEqual(e.exception.code(), Code.UNIMPLEMENTED)
        self.test_without_annotations()

    def test_fields_of_a_later_version_are_passed_over(self):
        path = "/kubevirt.hooks.v1alpha3.Callbacks/OnDefineDomain"
        late = b"\x82\x7d\x03abc" + b"\x78\x05"  # fields 2000 and 15
        data = wire.encode("OnDefineDomainParams", {
            "domainXML": domain().encode(), "vmi": b'{"metadata":{"annotations":null},"spec":'
            b'{"domain":{"resources":{"requests":{"sluice.example/vgpu":2}}}}}'})
        answer = wire.decode("OnDefineDomainResult", self.launcher.raw(path, late + data))
        self.assertEqual(self.parts(answer["domainXML"]), ({}, SOCKET, "17", True))

    def test_a_kind_of_resources_that_is_null(self):
        asked = vmi()
        asked["spec"]["domain"]["resources"]["requests"] = None
        self.assertEqual(self.parts(self.launcher.define(domain(), asked))[1], SOCKET)

    def test_a_vmi_that_asks_for_no_share(self):
        for shares in (None, "0", 0):
            self.refused(Code.FAILED_PRECONDITION, "sluice.example/vgpu", "default/vm1",
                         "spec.domain.resources.limits", shares=shares)

    def test_many_at_once(self):
        def one(n):
            name = f"default_vm{n}"
            xml = self.launcher.define(domain(name), vmi(ours(weight=str(n + 1)), name))
            return ET.fromstring(xml).findtext("name"), self.parts(xml)[0]["weight"]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(one, range(16)))
        self.assertEqual(got, [(f"default_vm{n}", str(n + 1)) for n in range(16)])

    def test_cloud_init_is_left_as_it_is(self):
        for version in ("v1alpha2", "v1alpha3"):
            answer = self.launcher.call(f"/kubevirt.hooks.{version}.Callbacks/PreCloudInitIso",
                                        cloudInitNoCloudSource=b'{"a":1}', vmi=b"{}",
                                        cloudInitData=b'{"b":2}')
            self.assertEqual(answer, {"cloudInitNoCloudSource": b'{"a":1}',
                                      "cloudInitData": b'{"b":2}'})


class Life(support.Case):
    def start(self, socket):
        sidecar = support.Running(socket.parent, "sluice-kubevirt-hook", "--socket", socket)
        self.addCleanup(sidecar.stop)
        launcher = fakes.VirtLauncher(socket)
        self.addCleanup(launcher.close)
        launcher.info()
        return sidecar, launcher

    def test_it_ends_when_its_virtual_machine_does(self):
        socket = self.folder() / "a.sock"
        sidecar, launcher = self.start(socket)
        launcher.call("/kubevirt.hooks.v1alpha3.Callbacks/Shutdown")
        self.assertEqual(sidecar.wait(), 0, sidecar.log())
        self.assertFalse(socket.exists())

    def test_it_comes_again_after_a_crash(self):
        socket = self.folder() / "a.sock"
        sidecar, _ = self.start(socket)
        sidecar.kill()
        self.assertTrue(socket.exists())
        sidecar, launcher = self.start(socket)
        self.assertIn("<shmem", launcher.define(domain(), vmi()))
        self.assertEqual(sidecar.stop(), 0, sidecar.log())

    def test_a_signal_ends_it_whatever_it_does(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            sockets = [self.folder() / "a.sock" for _ in range(3)]
            sidecars = [support.Running(s.parent, "sluice-kubevirt-hook", "--socket", s)
                        for s in sockets]
            for sidecar, socket in zip(sidecars, sockets):
                self.addCleanup(sidecar.stop)
                self.eventually(socket.exists, "it listens")
                # In its start: it has said nothing yet, or is about to wait.
                sidecar.process.send_signal(number)
            self.assertEqual([s.wait() for s in sidecars], [0, 0, 0])

    def test_a_socket_that_cannot_be(self):
        p = subprocess.run(support.program("sluice-kubevirt-hook", "--socket", "/nowhere/a.sock"),
                           env=support.environment(), capture_output=True, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assertIn("/nowhere/a.sock", p.stderr)

    def test_without_its_tool(self):
        socket = self.folder() / "a.sock"
        sidecar = support.Running(socket.parent, "sluice-kubevirt-hook", "--socket", socket,
                                  "--tool", "/nowhere/tool")
        self.addCleanup(sidecar.stop)
        launcher = fakes.VirtLauncher(socket)
        self.addCleanup(launcher.close)
        with self.assertRaises(grpc.RpcError) as e:
            launcher.define(domain(), vmi())
        self.assertEqual(e.exception.code(), Code.INTERNAL)
        self.assertIn("/nowhere/tool", e.exception.details())


if __name__ == "__main__":
    support.main()

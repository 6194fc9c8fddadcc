# SPDX-License-Identifier: Apache-2.0
"""libvirt: the hook program by itself, its schemas, and a domain under a libvirtd of our own."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
from xml.etree import ElementTree

import support
import virt
from guest import Guest
from host import HostError

NAMESPACE = "https://sluice.example/vgpu/1"
UUID = "c7a5fdbd-edaf-9455-926a-d65c16db1809"
SCHEMAS = support.ROOT / "debian/schema"


def settings(attributes, inside=""):
    return f"<sluice:vgpu xmlns:sluice='{NAMESPACE}' {attributes}>{inside}</sluice:vgpu>"


def wait_until(condition):
    end = time.monotonic() + support.TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come about")
        time.sleep(0.1)


# What an owner may get wrong in <sluice:vgpu>, and a word of the error.
BAD_SETTINGS = [
    (settings("weight='0'"), "weight"),
    (settings("weight='10001'"), "weight"),
    (settings("weight='many'"), "weight"),
    (settings("wieght='3'"), "'wieght'"),
    (settings("memory='8 GB'"), "memory"),
    (settings("memory='-1'"), "memory"),
    (settings("priority='32'"), "priority"),
    (settings("latency='soon'"), "latency"),
    (settings("mode='loose'"), "mode"),
    (settings("min='101'"), "min"),
    (settings("max='half'"), "max"),
    (settings("group='../../etc'"), "group"),
    (settings("", "<weight>3</weight>"), "must be empty"),
]


# Of ours, and not known to this release.
UNKNOWN_ELEMENTS = [settings("").replace(":vgpu", ":other"),
                    settings("weight='3'").replace("/1'", "/2'")]


class Hook(support.WithSluiced):
    """The program as libvirt runs it: words, XML on standard input, a status, a reason."""

    def setUp(self):
        self.env = {"SLUICE_ADMIN_SOCKET": str(self.sluiced.admin),
                    "SLUICE_VGPU_SOCKETS": str(self.sluiced.run_dir / "vgpu")}

    def xml(self, name="vm1", metadata=settings("weight='300' memory='8G'"), path=None, vectors=5,
            uuid=UUID, shmems=1):
        path = path or self.sluiced.vgpu_socket(name)
        shmem = (f"<shmem name='vgpu0'><model type='ivshmem-doorbell'/><server path='{path}'/>"
                 f"<msi vectors='{vectors}' ioeventfd='on'/></shmem>")
        return (f"<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><metadata>{metadata}"
                f"</metadata><devices>{shmem * shmems}</devices></domain>")

    def hook(self, operation, xml, sub=None, env=None):
        sub = sub or ("end" if operation == "release" else "begin")
        program = support.BUILD / "mediator/libvirt/sluice-libvirt-hook"
        p = subprocess.run([program, "vm1", operation, sub, "-"], input=xml, env=env or self.env,
                           text=True, timeout=support.TIMEOUT_S, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        self.assertEqual(p.stdout, "", "libvirt takes what a hook prints for a new XML")
        return p.returncode, p.stderr

    def names(self):
        return {v["name"] for v in self.sluiced.ctl("list")}

    def denied(self, xml, *words, operation="prepare"):
        status, reason = self.hook(operation, xml)
        self.assertEqual(status, 1, f"let through: {xml}")
        self.assertTrue(reason.startswith("Sluice: ") and reason.count("\n") == 1, reason)
        for word in words:
            self.assertIn(word, reason)

    def test_a_vgpu_lives_as_long_as_its_domain(self):
        self.assertEqual(self.hook("prepare", self.xml()), (0, ""))
        v = self.sluiced.ctl("show", "vm1")
        self.assertEqual((v["weight"], v["memory_bytes"], v["slots"]), (300, 8 << 30, 4))
        for operation in ("start", "started", "reconnect"):
            self.assertEqual(self.hook(operation, self.xml()), (0, ""))
        self.assertEqual(self.hook("release", self.xml()), (0, ""))
        self.assertEqual(self.names(), {"a", "b"})
        self.assertEqual(self.hook("release", self.xml()), (0, ""),
                         "again, as after a denied start")

    def test_malformed_domains_are_denied_by_element(self):
        for metadata, word in BAD_SETTINGS:
            self.denied(self.xml(metadata=metadata), "<sluice:vgpu>", word)
        self.denied(self.xml(metadata=settings("") * 2), "more than one <sluice:vgpu>")
        for metadata in UNKNOWN_ELEMENTS:
            for shmems in (0, 1):
                self.denied(self.xml(metadata=metadata, shmems=shmems), "unknown element",
                            metadata.split()[0])
        self.denied(self.xml(shmems=0), "<shmem", "'sluicectl attach'")
        self.denied(self.xml(shmems=2), "more than one <shmem>")
        self.denied(self.xml(path="vm1.sock"), "<server path")
        self.denied(self.xml(vectors=1), "<shmem>", "vectors")
        self.denied(self.xml(vectors=4000), "<shmem>", "vectors")
        self.denied(self.xml(name="../a", path="/run/x.sock"), "cannot name a vGPU")
        self.denied(self.xml(uuid="../../../etc/x"), "<uuid>")
        self.denied(self.xml()[:-20], "line")
        self.denied("", "domain XML")
        self.denied(" " * (5 << 20), "4 MiB")
        self.denied("<!DOCTYPE d [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>" + self.xml(), "type")
        # libvirt ends a running domain when the hook fails as libvirtd comes back.
        for metadata in (settings(""), BAD_SETTINGS[0][0]):
            self.assertEqual(self.hook("reconnect", self.xml(metadata=metadata)), (0, ""))
        # Nothing came of any, and their ends need nothing either.
        self.assertEqual(self.hook("release", self.xml(metadata=BAD_SETTINGS[0][0])), (0, ""))
        self.assertEqual(self.names(), {"a", "b"})

    def test_domains_without_a_vgpu_need_no_sluiced(self):
        env = {**self.env, "SLUICE_ADMIN_SOCKET": str(self.work / "nobody")}
        plain = self.xml(metadata="", shmems=0)
        other = self.xml(metadata="<o:vgpu xmlns:o='urn:o' weight='x'/>", path="/run/other/x.sock")
        for operation in ("prepare", "start", "release", "reconnect", "migrate"):
            self.assertEqual(self.hook(operation, plain, env=env), (0, ""))
            self.assertEqual(self.hook(operation, other, env=env), (0, ""))
        status, reason = self.hook("prepare", self.xml(), env=env)
        self.assertEqual(status, 1)
        self.assertIn("systemctl start sluiced", reason)
        # The end of a domain goes on when sluiced has gone.
        self.hook("prepare", self.xml())
        self.assertEqual(self.hook("release", self.xml(), env=env), (0, ""))
        self.sluiced.ctl("delete", "vm1")

    def test_a_sluiced_that_starts_is_waited_for(self):
        """As systemd starts it anew after an upgrade. Its socket comes when the hook has looked."""
        admin = self.work / "comes.sock"
        self.addCleanup(self.sluiced.ctl, "delete", "vm1")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.hook, "prepare", self.xml(),
                               env={**self.env, "SLUICE_ADMIN_SOCKET": str(admin)})
            time.sleep(0.5)
            admin.symlink_to(self.sluiced.admin)
            self.assertEqual(done.result(), (0, ""))
        self.assertIn("vm1", self.names())

    def test_a_vgpu_of_somebody_else_is_left(self):
        # Made by hand: used with the domain's settings, and not deleted.
        xml = self.xml(name="a", vectors=17)
        self.assertEqual(self.hook("prepare", xml), (0, ""))
        self.assertEqual(self.sluiced.ctl("show", "a")["weight"], 300)
        self.assertEqual(self.hook("release", xml), (0, ""))
        self.assertIn("a", self.names())
        self.denied(self.xml(name="a", path=self.work / "elsewhere.sock"), "another socket")
        # Another virtual machine has it.
        with socket.socket(socket.AF_UNIX) as qemu:
            qemu.connect(str(self.sluiced.vgpu_socket("b")))
            qemu.recv(8)
            self.denied(self.xml(name="b"), "is connected")
        # A second domain's end takes nothing of the first.
        self.hook("prepare", self.xml())
        self.hook("release", self.xml(uuid=UUID.replace("c7", "d8")))
        self.assertIn("vm1", self.names())
        # A renamed domain's vGPU goes with it.
        self.assertEqual(self.sluiced.ctl("show", "vm1")["owner"], "libvirt:" + UUID)
        self.hook("release", self.xml(name="vm1-renamed"))
        self.assertEqual(self.names(), {"a", "b"})

    def test_what_an_earlier_domain_left_is_no_domains(self):
        other = UUID.replace("c7", "d8")
        plain = self.xml(metadata=settings(""))
        for left in (self.xml(uuid=other), self.xml(name="vm1-before-it-was-renamed")):
            self.assertEqual(self.hook("prepare", left), (0, ""))
            self.assertEqual(self.hook("prepare", plain), (0, ""))
            v = self.sluiced.ctl("show", "vm1")
            self.assertEqual((v["weight"], v["memory_bytes"]), (100, 0), "settings that were left")
            self.assertEqual(v["owner"], "libvirt:" + UUID)
            self.assertEqual(self.names(), {"a", "b", "vm1"})
            self.hook("release", plain)
        # As virt-clone copies a domain: the copy is to have another socket, whoever starts first.
        copy = self.xml(name="vm2", uuid=other, path=self.sluiced.vgpu_socket("vm1"))
        for first, second in ((plain, copy), (copy, plain)):
            self.assertEqual(self.hook("prepare", first), (0, ""))
            self.denied(second, "is the socket of vGPU", "'sluicectl attach vm2'")
            self.hook("release", first)
        # A pod's, made for it by the device plugin.
        made = self.sluiced.request("vgpu.create", name="vm1", owner="kubernetes:pod")
        self.assertIn("result", made)
        self.denied(plain, "kubernetes:pod", "'virsh domrename'")
        self.assertEqual(self.hook("release", plain), (0, ""))
        self.sluiced.ctl("delete", "vm1")

    def test_sluiced_refuses_with_its_reason(self):
        self.denied(self.xml(metadata=settings("group='nobodys'")), "nobodys")
        self.denied(self.xml(), "cannot be migrated", operation="migrate")

    def test_domains_start_at_once(self):
        results = {}
        names = [f"many{i}" for i in range(6)]
        xml = {n: self.xml(name=n, uuid=UUID[:-1] + n[-1]) for n in names}

        def run(operation, n):
            results[operation, n] = self.hook(operation, xml[n])
        for operation in ("prepare", "release"):
            threads = [threading.Thread(target=run, args=(operation, n)) for n in names]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual({results[operation, n] for n in names}, {(0, "")})
            self.assertEqual(self.names() - {"a", "b"},
                             set(names) if operation == "prepare" else set())

    @unittest.skipUnless(shutil.which("xmllint"), "needs xmllint")
    def test_the_schemas_say_what_the_hook_says(self):
        def valid(text):
            file = self.work / "metadata.xml"
            file.write_text(text)
            return [subprocess.run(["xmllint", "--noout", option,
                                    SCHEMAS / f"sluice-vgpu.{kind}", file],
                                   stderr=subprocess.DEVNULL, timeout=60).returncode == 0
                    for option, kind in (("--relaxng", "rng"), ("--schema", "xsd"))]
        good = settings("weight='300' memory='8G' priority='31' latency='low' min='5' max='50' "
                        "group='tenant-1' mode='strict'")
        self.assertEqual(valid(good), [True, True])
        self.assertEqual(valid(settings("")), [True, True])
        for metadata in [m for m, _ in BAD_SETTINGS] + UNKNOWN_ELEMENTS:
            self.assertEqual(valid(metadata), [False, False], metadata)

    def test_each_attribute_is_documented(self):
        _, denied = self.hook("prepare", self.xml(metadata=settings("class='low'")))
        known = re.search("unknown attribute 'class'; there are (.*)", denied)[1]
        known = set(re.findall(r"\w+", known)) - {"and"}
        self.assertIn("latency", known)
        for kind in ("rng", "xsd"):
            documented = {
                attribute.get("name") for attribute in
                ElementTree.parse(SCHEMAS / f"sluice-vgpu.{kind}").iter()
                if attribute.tag.endswith("}attribute") and any(
                    e.tag.endswith("}documentation") and e.text.strip() for e in attribute.iter())}
            self.assertEqual(documented, known, kind)
        table = (SCHEMAS.parent.parent / "docs/operating/libvirt.md").read_text().split(
            "| attribute | value | meaning |")[1].split("\n\n")[0]
        rows = re.findall("(?m)^[|] (`.*?) [|]", table)
        self.assertEqual(set(re.findall("`([a-z]+)`", " ".join(rows))), known)


class AdminProxy:
    """Between one sluicectl and sluiced. Calls `then` when `method` was answered, before sluicectl
    has the answer."""

    def __init__(self, path, admin, method, then):
        self.path, self.method, self.then = path, f'"{method}"'.encode(), then
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, args=(admin,))
        self.thread.start()

    def serve(self, admin):
        with self.listener, self.listener.accept()[0] as client, \
                socket.socket(socket.AF_UNIX) as sluiced:
            sluiced.connect(str(admin))
            answers = sluiced.makefile("rb")
            for line in client.makefile("rb"):
                sluiced.sendall(line)
                answer = answers.readline()
                if self.method in line:
                    self.then()
                client.sendall(answer)


# Enough to start and end: it boots from nothing.
SMALL = """<domain type='qemu'><name>vm1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='none'/></devices>
</domain>"""


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
class Copies(support.WithSluiced):
    """What virt-clone and 'virsh domrename' leave of a domain's vGPU."""

    def test_a_copy_and_a_renamed_domain(self):
        libvirt = virt.Libvirt(self.work / "libvirt", self.sluiced)
        self.addCleanup(libvirt.stop)
        libvirt.start()

        def define(name, xml):
            (self.work / f"{name}.xml").write_text(xml)
            libvirt.define(self.work / f"{name}.xml")

        def ctl(*arguments):
            return self.sluiced.run(*arguments, "--connect", libvirt.uri, env=libvirt.env)

        def vgpu(name):
            v = self.sluiced.ctl("show", name)
            return v["weight"], v["slots"], v["socket"]
        for name in ("vm1", "vm2", "vm3"):
            self.addCleanup(libvirt.virsh, "undefine", name, check=False)
            self.addCleanup(libvirt.destroy, name)
        define("vm1", SMALL)
        ctl("attach", "vm1", "--weight", 300, "--slots", 5)
        xml = libvirt.virsh("dumpxml", "vm1").stdout
        uuid = xml.split("<uuid>")[1].split("</uuid>")[0]
        define("vm2", xml.replace(f"<uuid>{uuid}</uuid>", "").replace("<name>vm1<", "<name>vm2<"))
        libvirt.virsh("start", "vm1")
        denied = libvirt.virsh("start", "vm2", check=False)
        self.assertNotEqual(denied.returncode, 0)
        self.assertIn("'sluicectl attach vm2'", denied.stderr)
        ctl("attach", "vm2")
        libvirt.virsh("start", "vm2")
        for name in ("vm1", "vm2"):
            self.assertEqual(vgpu(name), (300, 5, str(self.sluiced.vgpu_socket(name))))
        libvirt.destroy("vm2")
        # Its settings are gone as well: what `list` calls attached can be detached.
        libvirt.virsh("metadata", "vm2", "--config", "--uri", NAMESPACE, "--remove")
        libvirt.virsh("domrename", "vm2", "vm3")
        self.assertRegex(ctl("list"), r"(?m)^vm3 +shut off +- +attached")
        ctl("detach", "vm3")
        self.assertRegex(ctl("list"), r"(?m)^vm3 +shut off +- +none")


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
class Domain(support.WithSluiced):
    def test_a_domain_makes_and_removes_its_vgpu(self):
        libvirt = virt.Libvirt(self.work / "libvirt", self.sluiced)
        self.addCleanup(libvirt.stop)
        libvirt.start()
        xml_file, jobs = self.work / "vm1.xml", self.work / "vm1.jobs"
        xml_file.write_text(virt.domain_xml("vm1", *support.image(), jobs,
                                            self.work / "vm1.console"))
        libvirt.define(xml_file)
        self.assertEqual(self.listed(libvirt), ("shut off", "none", None))
        plain = libvirt.virsh("dumpxml", "vm1").stdout
        self.refuses(libvirt, "no domain.*'sluicectl list --domains'", "attach", "vm2")
        self.refuses(libvirt, "has no vGPU", "detach", "vm1")
        self.refuses(libvirt, "memory", "attach", "vm1", "--memory", "lots")
        shown = self.ctl(libvirt, "attach", "vm1", "--print", "--weight", 300)
        self.assertIn("weight=\"300\"", shown)
        self.assertEqual(libvirt.virsh("dumpxml", "vm1").stdout, plain, "--print changes nothing")

        self.ctl(libvirt, "attach", "vm1", "--group", "nobodys")
        denied = libvirt.virsh("start", "vm1", check=False)
        self.assertNotEqual(denied.returncode, 0)
        self.assertIn("nobodys", denied.stderr)
        self.assertTrue(self.gone("vm1"))
        self.refuses(libvirt, "it has a vGPU", "attach", "vm1")
        self.ctl(libvirt, "detach", "vm1")
        self.assertNotIn("shmem", libvirt.virsh("dumpxml", "vm1").stdout)

        self.ctl(libvirt, "reserve", "vm1")
        self.refuses(libvirt, "has room", "reserve", "vm1")
        self.refuses(libvirt, "does not run", "attach", "vm1", "--live")
        self.ctl(libvirt, "attach", "vm1", "--weight", 300, "--memory", "2G")
        self.assertEqual(self.listed(libvirt), ("shut off", "next-start", None))
        guest = libvirt.boot("vm1", jobs)
        self.assertEqual(self.listed(libvirt), ("running", "present", "vm1"))
        text = self.sluiced.run("list", "--connect", libvirt.uri, env=libvirt.env)
        self.assertRegex(text, r"(?m)^vm1 .* vm1  */")
        self.assertRegex(text, r"(?m)^vm1 +running +vm1 +connected")
        self.assertEqual(self.sluiced.ctl("show", "vm1")["weight"], 300)
        self.metadata_is_followed(libvirt)
        # The agent is up a moment after the guest.
        wait_until(lambda: guest.run("sluice-suite-probe", support.TIMEOUT_S)[0] == 0)
        self.assertRegex(self.sluiced.run("show", "vm1"), r"(?m)^guest agent on, release \d")
        self.doctor_finds_the_domain(libvirt)
        self.assertIn("from its next start on", self.ctl(libvirt, "detach", "vm1"))
        self.assertFalse(self.gone("vm1"), "the running domain keeps its vGPU")
        self.live(libvirt)
        guest = self.saved(libvirt, guest, jobs)
        # The end of QEMU by a crash is an end as well.
        pid = int(pathlib.Path("/run/libvirt/qemu/vm1.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not libvirt.running("vm1"))
        wait_until(lambda: self.gone("vm1"))

    def doctor_finds_the_domain(self, libvirt):
        """Of this host's own checks (KVM, cgroups) nothing is asked: it may have or lack them."""
        checks = self.doctor(libvirt)
        for name in ("sluiced", "version", "libvirtd", "hook", "events", "domains", "iommu",
                     "window", "agents"):
            self.assertEqual(checks[name]["state"], "right", checks[name])
        self.assertIn("vm1", checks["libvirtd"]["fact"])
        nobody = self.doctor(libvirt, self.work / "nobody")
        self.assertEqual(nobody["sluiced"]["state"], "wrong", nobody["sluiced"])
        self.assertIn("systemctl start sluiced", nobody["sluiced"]["mend"])
        self.assertEqual(nobody["agents"]["state"], "skipped")

    def listed(self, libvirt):
        answer = json.loads(self.sluiced.run("--json", "list", "--domains", "--connect",
                                             libvirt.uri, env=libvirt.env))
        self.assertTrue({"a", "b"} <= set(answer["vgpus_without_domain"]), answer)
        (row,) = [d for d in answer["domains"] if d["name"] == "vm1"]
        return row["state"], row["attached"], row["vgpu"]

    def doctor(self, libvirt, admin=None):
        """By name. The status is 1 exactly when something is wrong."""
        p = subprocess.run([support.BUILD / "mediator/cli/sluicectl", "--socket",
                            admin or self.sluiced.admin, "doctor", "--json", "--connect",
                            libvirt.uri], stdout=subprocess.PIPE, text=True, env=libvirt.env,
                           timeout=support.TIMEOUT_S)
        answer = json.loads(p.stdout)
        wrong = [c["name"] for c in answer["checks"] if c["state"] == "wrong"]
        self.assertEqual((p.returncode, answer["right"]), (int(bool(wrong)), not wrong), wrong)
        self.assertTrue(all(c["mend"] for c in answer["checks"] if c["state"] == "wrong"), answer)
        return {c["name"]: c for c in answer["checks"]}

    def live(self, libvirt):
        self.refuses(libvirt, "it has a vGPU", "attach", "vm1", "--live")
        libvirt.virsh("suspend", "vm1")
        self.refuses(libvirt, "'virsh resume vm1'", "detach", "vm1", "--live")
        self.assertFalse(self.gone("vm1"))
        libvirt.virsh("resume", "vm1")
        self.ctl(libvirt, "detach", "vm1", "--live")
        self.assertTrue(self.gone("vm1"))
        self.assertEqual(self.listed(libvirt)[1:], ("none", None))
        self.refuses(libvirt, "runs without a vGPU", "detach", "vm1", "--live")
        xml = libvirt.virsh("dumpxml", "vm1").stdout
        self.assertFalse("shmem" in xml or "sluice:vgpu" in xml, xml)
        self.refuses(libvirt, "nobodys", "attach", "vm1", "--live", "--group", "nobodys")
        # sluicectl was killed after its first step. The event service would mend it in 20 s.
        self.service.send_signal(signal.SIGSTOP)
        self.sluiced.request("vgpu.create", name="vm1",
                             owner="libvirt:" + libvirt.virsh("domuuid", "vm1").stdout.strip())
        self.refuses(libvirt, "'sluicectl delete vm1'", "attach", "vm1", "--live")
        self.sluiced.ctl("delete", "vm1")
        self.service.send_signal(signal.SIGCONT)
        self.libvirtd_dies_during_an_attach(libvirt)
        self.ctl(libvirt, "attach", "vm1", "--live")
        self.detached_by_virsh(libvirt)
        self.ctl(libvirt, "attach", "vm1", "--live", "--weight", 70)
        self.assertEqual(self.sluiced.ctl("show", "vm1")["weight"], 70)
        # The guest's kernel found room for it, and its agent has it.
        wait_until(lambda: self.sluiced.ctl("show", "vm1")["agent"]["epoch"] != 0)

    def detached_by_virsh(self, libvirt):
        """The guest's agent is asked for the device, and gives it back. The event service deletes
        the vGPU."""
        wait_until(lambda: self.sluiced.ctl("show", "vm1")["agent"]["epoch"] != 0)
        xml = libvirt.virsh("dumpxml", "vm1").stdout
        device = self.work / "device.xml"
        device.write_text(xml[xml.index("<shmem"):xml.index("</shmem>")] + "</shmem>")
        libvirt.virsh("detach-device", "vm1", device, "--live")
        wait_until(lambda: "shmem" not in libvirt.virsh("dumpxml", "vm1").stdout)
        wait_until(lambda: self.gone("vm1"))

    def libvirtd_dies_during_an_attach(self, libvirt):
        """After the vGPU was made, before the device is there: nothing is left."""
        proxy = AdminProxy(self.work / "proxy.sock", self.sluiced.admin, "vgpu.create",
                           libvirt.crash)
        p = subprocess.run([support.BUILD / "mediator/cli/sluicectl", "--socket", proxy.path,
                            "attach", "vm1", "--live", "--connect", libvirt.uri], env=libvirt.env,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           timeout=support.TIMEOUT_S)
        proxy.thread.join(support.TIMEOUT_S)
        self.assertEqual(p.returncode, 1, p)
        self.assertIn("sluicectl: write the domain's metadata", p.stderr)
        self.assertTrue(self.gone("vm1"))
        libvirt.restart()
        self.assertTrue(libvirt.running("vm1"))
        self.assertEqual(self.listed(libvirt)[1:], ("none", None))
        self.assertIsNone(self.service.poll(), "the event service goes on")

    def saved(self, libvirt, guest, jobs):
        """sluicectl save and restore. Returns the guest as it goes on."""
        def sessions():
            return self.sluiced.ctl("show", "vm1")["sessions"]

        def has_its_vgpu():
            shown = self.sluiced.ctl("show", "vm1")
            return shown["weight"] == 70 and shown["agent"]["epoch"] != 0
        folder = pathlib.Path("/var/lib/libvirt/qemu/save")
        folder.mkdir(parents=True, exist_ok=True)
        self.refuses(libvirt, "was not saved", "restore", "vm1")
        job = guest.start("sluice-suite-triad --seconds 100000")
        wait_until(sessions)
        self.refuses(libvirt, "1 program on the GPU would end", "save", "vm1")
        self.assertFalse(job.done())
        guest.run("killall sluice-suite-triad", support.TIMEOUT_S)
        job.wait(support.TIMEOUT_S)
        wait_until(lambda: not sessions())
        # A full disk: the domain runs on, with its vGPU.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "full", folder], check=True)
        self.refuses(libvirt, "it runs on, with its vGPU", "save", "vm1")
        subprocess.run(["umount", folder], check=True)
        self.assertTrue(libvirt.running("vm1"))
        self.assertEqual(list(folder.iterdir()), [])
        wait_until(has_its_vgpu)
        guest.run("touch /tmp/before", support.TIMEOUT_S)
        self.ctl(libvirt, "save", "vm1")
        self.assertFalse(libvirt.running("vm1"))
        self.assertTrue(self.gone("vm1"))
        guest.close()
        self.tampered_with(libvirt)
        self.assertIn("'virsh managedsave-remove vm1'", self.ctl(libvirt, "attach", "vm1"))
        self.ctl(libvirt, "detach", "vm1")
        self.ctl(libvirt, "restore", "vm1")
        guest = Guest("vm1", jobs)
        guest.connect(support.TIMEOUT_S, lambda: libvirt.running("vm1"), booted=True)
        self.assertEqual(guest.run("ls /tmp/before", support.TIMEOUT_S)[0], 0,
                         "it goes on where it was saved")
        wait_until(has_its_vgpu)
        wait_until(lambda: guest.run("sluice-suite-probe", support.TIMEOUT_S)[0] == 0)
        self.refuses(libvirt, "was not saved", "restore", "vm1")
        self.assertNotIn("saved", libvirt.virsh("dumpxml", "vm1").stdout)
        return guest

    def tampered_with(self, libvirt):
        """What was saved of the vGPU was edited: the domain does not start without it."""
        right = libvirt.virsh("managedsave-dumpxml", "vm1").stdout
        (saved,) = [line for line in right.splitlines() if ":saved " in line]
        at = right.splitlines().index(saved) + 1
        file = self.work / "saved.xml"
        for text, words in (
                (right.replace(saved, saved.replace('"70"', '"0"')),
                 f"not started: line {at}, <saved>: weight is '0'.*managedsave-edit"),
                (right.replace(saved, saved.replace("/>", ' wieght="3"/>')),
                 f"not started: line {at}, <saved>: unknown attribute 'wieght'"),
                (right.replace(saved, ""), "was not saved by 'sluicectl save'.*'virsh start vm1'")):
            file.write_text(text)
            libvirt.virsh("managedsave-define", "vm1", file)
            self.refuses(libvirt, words, "restore", "vm1")
            self.assertFalse(libvirt.running("vm1"))
            self.assertTrue(self.gone("vm1"))
        file.write_text(right)
        libvirt.virsh("managedsave-define", "vm1", file)

    def metadata_is_followed(self, libvirt):
        """The event service, with a libvirtd that is restarted in between."""
        log = open(self.work / "events.log", "wb")
        program = support.BUILD / "mediator/libvirt/sluice-libvirt-events"
        service = subprocess.Popen([program], stdin=subprocess.DEVNULL, stderr=log,
                                   env={**libvirt.env, **libvirt.hook_env})
        self.addCleanup(service.wait, support.TIMEOUT_S)
        self.addCleanup(service.kill)
        self.service = service

        def says(words):
            wait_until(lambda: words in (self.work / "events.log").read_text())

        def metadata(attributes, element="vgpu"):
            libvirt.virsh("metadata", "vm1", "--uri", NAMESPACE, "--key", "sluice", "--live",
                          "--set", f"<{element} {attributes}/>")

        def weight():
            return self.sluiced.ctl("show", "vm1")["weight"]
        says("following the domains")
        metadata("weight='500' memory='2G'")
        wait_until(lambda: weight() == 500)
        metadata("weight='many'")
        says("nothing changed: <sluice:vgpu>: weight is 'many'")
        self.assertEqual(weight(), 500)
        self.assertEqual(self.sluiced.ctl("show", "vm1")["memory_bytes"], 2 << 30)
        metadata("weight='30'", "other")
        says("nothing changed: <metadata> has an unknown element <sluice:other ")
        libvirt.restart()
        says("there again")
        metadata("weight='40'")
        wait_until(lambda: weight() == 40)
        self.suspended(libvirt)
        self.assertIsNone(service.poll(), (self.work / "events.log").read_text())

    def suspended(self, libvirt):
        """A suspended domain's vGPU gets no turn; a domain with a vGPU is not saved."""
        def paused():
            return self.sluiced.ctl("show", "vm1")["paused"]
        self.assertFalse(paused())
        libvirt.virsh("suspend", "vm1")
        wait_until(paused)
        libvirt.virsh("resume", "vm1")
        wait_until(lambda: not paused())
        for command in (["managedsave", "vm1"], ["save", "vm1", str(self.work / "vm1.saved")]):
            refused = libvirt.virsh(*command, check=False)
            self.assertNotEqual(refused.returncode, 0, command)
            self.assertIn("shmem", refused.stderr)
        self.assertTrue(libvirt.running("vm1"))
        self.assertFalse(paused())

    def ctl(self, libvirt, command, name, *arguments):
        return self.sluiced.run(command, name, "--connect", libvirt.uri, *arguments,
                                env=libvirt.env)

    def refuses(self, libvirt, words, *arguments):
        with self.assertRaisesRegex(HostError, words):
            self.ctl(libvirt, *arguments)

    def gone(self, name):
        try:
            self.sluiced.ctl("show", name)
        except HostError:
            return True
        return False

# SPDX-License-Identifier: Apache-2.0
"""A libvirtd that goes silent at any moment: sluicectl ends with the reason, in bounded time, and
what it has left is in nobody's way."""
import concurrent.futures
import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import unittest

import support
import virt
from cases_libvirt import SMALL

# Of libvirt's answers, those before the domain is found: to connect and to look it up.
TO_FIND = 5
SAVED = "<saved weight='70'/>"


class SilentLibvirt:
    """Between one program and libvirtd. Passes `answers` answers on and withholds the rest."""

    def __init__(self, path, answers):
        self.left, self.silent = answers, False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with self.listener, self.listener.accept()[0] as client, \
                socket.socket(socket.AF_UNIX) as libvirtd:
            libvirtd.connect("/run/libvirt/libvirt-sock")
            back = threading.Thread(target=self.answer, args=(libvirtd, client), daemon=True)
            back.start()
            while data := client.recv(65536):
                libvirtd.sendall(data)
            libvirtd.shutdown(socket.SHUT_RDWR)
            back.join()

    def answer(self, libvirtd, client):
        """A message of libvirt's protocol starts with its length, which counts itself."""
        incoming = libvirtd.makefile("rb")
        while size := incoming.read(4):
            message = size + incoming.read(int.from_bytes(size, "big") - 4)
            if self.left == 0:
                self.silent = True
                continue
            self.left -= 1
            client.sendall(message)


class SilentFromTheStart(unittest.TestCase):
    def test_the_service_that_follows_domains_says_so_and_goes_on(self):
        with tempfile.TemporaryDirectory() as work, socket.socket(socket.AF_UNIX) as libvirtd:
            libvirtd.bind(f"{work}/libvirt")
            libvirtd.listen()
            events = subprocess.Popen(
                [support.BUILD / "mediator/libvirt/sluice-libvirt-events"],
                env={**os.environ, "SLUICE_ADMIN_SOCKET": f"{work}/none",
                     "SLUICE_LIBVIRT_URI": f"qemu+unix:///system?socket={work}/libvirt"},
                stderr=subprocess.PIPE, text=True)
            self.addCleanup(events.stderr.close)
            self.addCleanup(events.wait)
            self.addCleanup(events.kill)
            end = threading.Timer(support.TIMEOUT_S, events.kill)
            end.start()
            self.addCleanup(end.cancel)
            self.assertIn("libvirt has not answered within 10 s; 'systemctl status libvirtd'",
                          events.stderr.readline())
            # And waits for this one.
            libvirtd.settimeout(support.TIMEOUT_S)
            for _ in range(2):
                libvirtd.accept()[0].close()


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
class Silent(support.WithSluiced):
    def setUp(self):
        super().setUp()
        self.libvirt = virt.Libvirt(self.work / "libvirt", self.sluiced)
        self.addCleanup(self.libvirt.stop)
        self.libvirt.start()

    def test_the_service_asks_less_and_less_for_a_sluiced_that_is_gone(self):
        """Each of its questions to libvirt wakes libvirt's loop, which was taken for an event."""
        asked = threading.Semaphore(0)
        with socket.socket(socket.AF_UNIX) as sluiced:
            sluiced.bind(str(self.work / "gone"))
            sluiced.listen()

            def refuse():
                with contextlib.suppress(OSError):
                    while True:
                        sluiced.accept()[0].close()
                        asked.release()
            threading.Thread(target=refuse, daemon=True).start()
            events = subprocess.Popen(
                [support.BUILD / "mediator/libvirt/sluice-libvirt-events"],
                stderr=subprocess.DEVNULL, env={
                    **self.libvirt.env, "SLUICE_ADMIN_SOCKET": str(self.work / "gone"),
                    "SLUICE_LIBVIRT_URI": self.libvirt.uri})
            self.addCleanup(events.wait)
            self.addCleanup(events.kill)
            self.assertTrue(asked.acquire(timeout=support.TIMEOUT_S))
            # Its pauses double, from 0.5 s.
            self.assertIn(False, (asked.acquire(timeout=3) for _ in range(20)))

    def test_libvirt_goes_silent_after_any_answer(self):
        cases = [self.attach, self.detach, self.attach_live, self.restore]
        for case in cases:
            self.define(case.__name__)
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            for done in [pool.submit(case, case.__name__) for case in cases]:
                done.result()

    def define(self, name):
        xml = self.work / f"{name}.xml"
        xml.write_text(SMALL.replace("vm1", name))
        self.libvirt.define(xml)
        self.addCleanup(self.libvirt.virsh, "undefine", name, "--managed-save", check=False)
        self.addCleanup(self.libvirt.destroy, name)

    def ctl(self, *words, timeout_s=support.TIMEOUT_S, uri=None):
        return subprocess.run([self.sluiced.programs.sluicectl, "--socket", self.sluiced.admin,
                               "--timeout", str(timeout_s), *words,
                               "--connect", uri or self.libvirt.uri],
                              env=self.libvirt.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=support.TIMEOUT_S)

    def after_any_answer(self, *words, again, step=1):
        """`again` does the same once more and undoes it. What was said."""
        said, answers = [], TO_FIND
        while True:
            path = self.work / f"{words[1]}.{answers}"
            path.unlink(missing_ok=True)
            libvirtd = SilentLibvirt(path, answers)
            done = self.ctl(*words, timeout_s=1, uri=f"qemu+unix:///system?socket={path}")
            if not libvirtd.silent and done.returncode == 0:
                self.assertGreater(len(said), 1)
                return said
            # Where it has been told to close the connection, all was done.
            if done.returncode != 0:
                self.assertIn("has not answered within 1 s; 'systemctl status libvirtd'",
                              done.stderr)
                said.append(done.stderr)
            again(done)
            # Else libvirtd itself was slow.
            if libvirtd.silent:
                answers += step

    def attach(self, name):
        def again(done):
            repeated = self.ctl("attach", name)
            if repeated.returncode != 0:
                self.assertIn("it has a vGPU", repeated.stderr)
                self.assertTrue(done.returncode == 0 or "it may be done yet" in done.stderr, done)
            self.assertEqual(self.ctl("detach", name).returncode, 0)
        said = self.after_any_answer("attach", name, again=again)
        self.assertTrue(any("define the domain" in s for s in said), said)

    def detach(self, name):
        self.ctl("attach", name)

        def again(done):
            repeated = self.ctl("detach", name)
            if repeated.returncode != 0:
                self.assertIn("it has no vGPU", repeated.stderr)
                self.assertTrue(done.returncode == 0 or "it may be done yet" in done.stderr, done)
            self.assertEqual(self.ctl("attach", name).returncode, 0)
        self.after_any_answer("detach", name, again=again)

    def attach_live(self, name):
        self.ctl("reserve", name)
        self.libvirt.virsh("start", name)

        def vgpus():
            return [v["name"] for v in self.sluiced.ctl("list") if v["name"] == name]

        def again(done):
            repeated = self.ctl("attach", name, "--live")
            if repeated.returncode != 0:
                self.assertIn("it has a vGPU", repeated.stderr)
                self.assertTrue(done.returncode == 0 or "attach the device" in done.stderr, done)
            # A device that came without an answer has its vGPU.
            self.assertEqual(vgpus(), [name])
            self.libvirt.destroy(name)
            self.libvirt.virsh("start", name)
            self.assertEqual(vgpus(), [])
        said = self.after_any_answer("attach", name, "--live", again=again)
        self.assertTrue(any("attach the device" in s for s in said), said)

    def restore(self, name):
        self.ctl("reserve", name)

        def save():
            self.libvirt.destroy(name)
            self.libvirt.virsh("start", name)
            self.libvirt.virsh("metadata", name, "--live", "--uri",
                               "https://sluice.example/saved/1", "--key", "sluice", "--set", SAVED)
            self.libvirt.virsh("managedsave", name)
        save()

        def again(done):
            repeated = self.ctl("restore", name)
            if repeated.returncode != 0:
                self.assertIn("was not saved", repeated.stderr)
            self.assertEqual(self.sluiced.ctl("show", name)["weight"], 70)
            save()
        # libvirt writes the domain and reads it each time.
        self.after_any_answer("restore", name, again=again, step=6)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sluicectl says to mistakes: what was wrong, and what to do; what it waits for; its
completion in bash. No sluiced runs.

    command_line_test.py SLUICECTL [unittest's arguments]
"""
import contextlib
import ctypes
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

SLUICECTL = sys.argv.pop(1)
COMPLETION = pathlib.Path(__file__).resolve().parents[3] / "debian/completions/sluicectl"


class Mistakes(unittest.TestCase):
    def test_each_is_named(self):
        for words, *texts in (
                ("", "A subcommand is required", "--help"),
                ("nonsense", "no command or option 'nonsense'", "--help"),
                ("--nonsense", "no command or option '--nonsense'", "--help"),
                ("--json nonsense list-all", "no command or option 'nonsense'"),
                ("set", "name is required"),
                ("set a --weight", "--weight"),
                ("set a --weight x", "--weight: Value x not in range 1 to 10000"),
                ("set a --weight 0", "--weight: Value 0 not in range 1 to 10000"),
                ("top --count -1", "--count: Value -1 not in range 1 to"),
                ("list --nonsense", "--nonsense"),
                ("create", "name or --domain-xml is required"),
                ("--socket /nonexistent/a list", "/nonexistent/a", "is sluiced running?")):
            with self.subTest(words):
                p = subprocess.run([SLUICECTL, *words.split()], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertNotEqual(p.returncode, 0)
                self.assertEqual(p.stdout, "")
                for text in texts:
                    self.assertIn(text, p.stderr)


class Waits(unittest.TestCase):
    """For a sluiced or a libvirtd that accepts connections and says nothing."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.silent = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.silent.close)
        self.path = folder.name + "/silent.sock"
        self.silent.bind(self.path)
        self.silent.listen(8)
        self.silent.settimeout(120)

    def gives_up(self, *words):
        p = subprocess.run([SLUICECTL, "--socket", self.path, "--timeout", "1", *words],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(p.returncode, 1)
        self.assertIn("sluiced has not answered within 1 s; 'systemctl status sluiced'", p.stderr)
        return p.stderr

    def test_a_sluiced_that_does_not_answer_is_named(self):
        self.assertNotIn("may be done yet", self.gives_up("list", "--vgpus"))

    def doctor(self):
        """What it prints. libvirt is not reached."""
        p = subprocess.run([SLUICECTL, "--socket", self.path, "--timeout", "1", "doctor",
                            "--connect", "qemu+unix:///system?socket=/nonexistent"],
                           stdout=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(p.returncode, 1)
        return p.stdout

    def test_doctor_waits_for_as_long_as_it_is_told(self):
        self.assertIn("it does not answer: sluiced has not answered within 1 s", self.doctor())

    @contextlib.contextmanager
    def answering(self, answers):
        """One client's requests are answered, where `answers` has their method; gives all methods
        that it asks."""
        asked = []

        def serve():
            with self.silent.accept()[0] as peer, peer.makefile("r") as requests:
                for line in requests:
                    request = json.loads(line)
                    asked.append(request["method"])
                    if request["method"] in answers:
                        peer.sendall(json.dumps({"jsonrpc": "2.0", "id": request["id"],
                                                 "result": answers[request["method"]]}).encode()
                                     + b"\n")
        sluiced = threading.Thread(target=serve)
        sluiced.start()
        try:
            yield asked
        finally:
            sluiced.join()

    def test_doctor_asks_a_sluiced_that_went_silent_nothing_more(self):
        with self.answering({"info": {"pid": 1, "policy": "wfq"},
                             "vgpu.list": [{"name": name} for name in "abc"]}) as asked:
            self.assertIn("runs as process 1", self.doctor())
        self.assertEqual(asked, ["info", "vgpu.list", "vgpu.show"])

    def test_a_disk_that_is_full_is_named(self):
        for words, answers in (("metrics", {"metrics": "sluice_uptime_seconds 1\n"}),
                               ("metrics", {"metrics": "sluice_uptime_seconds 1\n" * 10_000}),
                               ("info", {"info": {}}), ("top", {"top": {}}),
                               ("events --follow", {"events": {"events": [{"text": "a"}]}})):
            with self.subTest(words), open("/dev/full", "w") as full, self.answering(answers):
                p = subprocess.run([SLUICECTL, "--socket", self.path, *words.split()], stdout=full,
                                   stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertEqual(p.returncode, 1)
                self.assertIn("stdout: ", p.stderr)

    def test_what_it_may_do_when_it_goes_on_is_said(self):
        for words in ("create a", "set a --weight 2", "delete a", "group g"):
            with self.subTest(words):
                self.assertIn("it may be done yet", self.gives_up(*words.split()))

    def test_as_many_wait_as_its_queue_has_places_for(self):
        others = []
        try:
            while True:
                others.append(socket.socket(socket.AF_UNIX))
                others[-1].setblocking(False)
                others[-1].connect(self.path)
        except BlockingIOError:
            self.assertNotIn("may be done yet", self.gives_up("delete", "a"))
        finally:
            for s in others:
                s.close()

    def says(self, *words):
        """What it prints first, on stderr. It is not waited for."""
        p = subprocess.Popen([SLUICECTL, *words], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
        late = threading.Timer(120, p.kill)
        late.start()
        try:
            return p.stderr.readline()
        finally:
            late.cancel()
            p.kill()
            p.communicate()

    def test_what_it_waits_for_is_said(self):
        self.assertIn(f"waiting for sluiced to answer on {self.path}, for up to 60 s",
                      self.says("--socket", self.path, "list"))

    def test_that_it_waits_for_libvirt_is_said(self):
        try:
            ctypes.CDLL("libvirt.so.0")
        except OSError:
            self.skipTest("needs libvirt's library")
        self.assertIn("waiting for libvirt to answer",
                      self.says("detach", "vm1", "--connect",
                                f"qemu+unix:///system?socket={self.path}"))


class Completion(unittest.TestCase):
    """With a sluicectl that lists these."""
    DOMAINS = ("DOMAIN STATE", "vm1 running", "vm-2 shut off", "$(touch${IFS}$PWNED) running",
               "`touch${IFS}$PWNED` running", "~root running", "x;y running")

    def complete(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "sluicectl")
            fake.write_text("#!/bin/sh\ncat <<'E'\n" + "\n".join(self.DOMAINS) + "\nE\n")
            fake.chmod(0o755)
            made = pathlib.Path(folder, "made")
            p = subprocess.run(
                ["bash", "-c", '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluicectl; '
                 'printf "%s\\n" "${COMPREPLY[@]}"', COMPLETION, *words],
                env={"PATH": f"{folder}:{os.environ['PATH']}", "PWNED": str(made)},
                stdout=subprocess.PIPE, text=True, timeout=60, check=True)
            self.assertFalse(made.exists(), "a domain's name was run")
            return p.stdout.split()

    def test_names_are_not_run(self):
        for command, words in (("attach", ["vm-2", "vm1"]), ("show", ["vm-2", "vm1"])):
            self.assertEqual(sorted(self.complete("sluicectl", command, "")), words)
        self.assertEqual(self.complete("sluicectl", "attach", "vm1"), ["vm1"])


if __name__ == "__main__":
    unittest.main(verbosity=2)

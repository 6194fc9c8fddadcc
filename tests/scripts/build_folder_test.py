#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib/build_folder.py on a small project: whatever state a build folder is in, it has the
options asked for afterwards, and so the whole suite."""
import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LIB = pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"
sys.path.insert(0, str(LIB))
import build_folder  # noqa: E402

PROJECT = """project('small', meson_version: '>=1.0.0')
if get_option('tests')
  test('one', find_program('true'), suite: 'unit')
endif
"""
OPTIONS = """option('tests', type: 'boolean', value: true)
option('word', type: 'string', value: 'a')
"""


class BuildFolder(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="sluice-build-folder."))
        self.addCleanup(shutil.rmtree, self.top)
        self.source = self.make_source("source")
        self.build = self.top / "build"

    def make_source(self, name):
        source = self.top / name
        source.mkdir()
        (source / "meson.build").write_text(PROJECT)
        (source / "meson_options.txt").write_text(OPTIONS)
        return source

    def reconcile(self, *options, source=None, fails=False):
        """What it printed, called as a function: that takes no new Python for each call."""
        printed = io.StringIO()
        failure = None
        with contextlib.redirect_stderr(printed):
            try:
                build_folder.main(self.build, source or self.source, *options)
            except SystemExit as e:
                failure = str(e)
        self.assertEqual(failure is not None, fails, failure or printed.getvalue())
        return printed.getvalue() + (failure or "")

    def program(self, *options, fails=False):
        """The same, called as scripts do."""
        done = subprocess.run([sys.executable, LIB / "build_folder.py", self.build, self.source,
                               *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout

    def suite(self):
        text = (self.build / "meson-info/intro-tests.json").read_text()
        return [t["name"] for t in json.loads(text)]

    def option(self, name):
        options = json.loads((self.build / "meson-info/intro-buildoptions.json").read_text())
        return next(o["value"] for o in options if o["name"] == name)

    def test_the_demo_first_and_then_the_tests(self):
        self.reconcile("tests=false")
        self.assertEqual(self.suite(), [])
        self.assertIn("tests=true", self.reconcile("tests=true"))
        self.assertEqual(self.suite(), ["one"])

    def test_the_tests_first_and_then_the_demo(self):
        self.reconcile("tests=true")
        self.reconcile("word=b")  # the demo does not name `tests` where there is a folder
        self.assertEqual(self.suite(), ["one"])
        self.assertEqual(self.option("word"), "b")

    def test_nothing_happens_where_nothing_differs(self):
        self.reconcile("tests=true", "word=b", "optimization=1")
        before = (self.build / "build.ninja").stat().st_mtime_ns
        self.assertEqual(self.program("tests=true", "word=b", "optimization=1"), "")
        self.assertEqual((self.build / "build.ninja").stat().st_mtime_ns, before)

    def test_arguments_of_a_compiler(self):
        project = self.source / "meson.build"
        project.write_text(PROJECT.replace("'small'", "'small', 'c'"))
        self.reconcile("c_args=-g1")
        self.reconcile("c_args=-g1 -O1")
        self.assertEqual(self.option("c_args"), ["-g1", "-O1"])
        self.assertEqual(self.reconcile("c_args=-g1 -O1"), "")

    def test_an_option_that_is_newer_than_the_folder(self):
        self.reconcile("tests=true")
        with open(self.source / "meson_options.txt", "a") as f:
            f.write("option('late', type: 'boolean', value: false)\n")
        self.reconcile("late=true")
        self.assertIs(self.option("late"), True)

    def test_a_folder_of_another_source(self):
        self.reconcile("tests=false", source=self.make_source("other"))
        self.assertIn("set up anew", self.reconcile("tests=true"))
        self.assertEqual(self.suite(), ["one"])

    def test_a_folder_that_was_moved(self):
        self.reconcile("tests=true")
        moved = self.top / "moved"
        self.build.rename(moved)
        self.build = moved
        self.assertIn("set up anew", self.reconcile("tests=true"))

    def test_broken_folders(self):
        self.reconcile("tests=false")
        whole = self.top / "whole"
        shutil.copytree(self.build, whole)
        for broken, how in (("build.ninja", "missing"), ("meson-private/coredata.dat", "missing"),
                            ("meson-private/coredata.dat", "empty"),
                            ("meson-info/intro-buildoptions.json", "empty")):
            with self.subTest(file=broken, how=how):
                shutil.rmtree(self.build)
                shutil.copytree(whole, self.build)
                (self.build / broken).unlink()
                if how == "empty":
                    (self.build / broken).touch()
                self.reconcile("tests=true")
                self.assertEqual(self.suite(), ["one"])

    def test_an_interrupted_set_up(self):
        (self.build / "meson-private").mkdir(parents=True)
        self.reconcile("tests=true")
        self.assertEqual(self.suite(), ["one"])

    def test_what_is_no_build_folder_is_left_alone(self):
        self.build.mkdir()
        (self.build / "thesis.txt").write_text("mine")
        self.assertIn("no build folder", self.program("tests=true", fails=True))
        self.assertEqual((self.build / "thesis.txt").read_text(), "mine")

    def test_a_mistake_in_the_project_loses_no_folder(self):
        self.reconcile("tests=false")
        (self.build / "object.o").write_text("an hour's work")
        (self.source / "meson.build").write_text(PROJECT + "nonsense(\n")
        self.assertIn("nonsense", self.reconcile("tests=true", fails=True))
        self.assertTrue((self.build / "object.o").exists())
        self.assertEqual([p.name for p in self.top.iterdir() if p.name.startswith(".set-up")], [])

    def test_an_option_given_twice_is_refused(self):
        self.assertIn("usage", self.program("word=a", "word=b", fails=True))


if __name__ == "__main__":
    unittest.main()

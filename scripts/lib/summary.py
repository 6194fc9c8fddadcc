#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what a run of scripts/test left: a line for each suite, then one that says
`N passed, N failed, N skipped`.

usage: summary.py RESULTS [--require SUITE...] [--slowest N] [--failed]

RESULTS holds, as far as the run made them:
  release.json, release.cases/   meson's testlog.json of the release build, and what GoogleTest
                                 wrote of each program's cases; a test counts under its suite
  asan.json, asan.cases/         the same of the sanitizer build; all of it is the suite `asan`
  system.xml                     JUnit of the system tests; the suite `system`. So are others.
  again/                         the same of tests that failed and ran once more, alone: what became
                                 of them there counts; UNSTABLE names those that passed

A test counts as its cases where they are known, else as one. Exit status 1 if anything failed, if a
required suite is missing, or if no test of a required suite passed: each with a sentence.
--slowest N prints instead a table of the N slowest tests, for CONTRIBUTING.md; --failed a line
`RUN TEST` for each test that failed, RUN being release, asan, system, guests, debian_guest,
debian_13 or ubuntu_host.
"""
import argparse
import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

OK = {"OK", "EXPECTEDFAIL"}


class Suite:
    def __init__(self):
        self.tests = self.passed = self.failed = self.skipped = 0
        self.seconds = 0.0
        self.reasons = []  # why tests were skipped


def gtest_cases(folder, program):
    """(passed, names of failed, skipped, why skipped) of a program; None: GoogleTest wrote
    nothing."""
    passed, failed, skipped, reasons = 0, [], 0, []
    files = sorted(folder.glob(f"{program}.xml")) if program else []
    for file in files:
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError:
            return None  # the program died while it wrote: the test itself has failed
        for case in root.iter("testcase"):
            if case.find("failure") is not None:
                failed.append(f"{case.get('classname')}.{case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
                reason = case.find("skipped")
                if reason is not None and reason.get("message"):
                    reasons.append(reason.get("message").splitlines()[-1])
            else:
                passed += 1
    return (passed, failed, skipped, reasons) if files else None


def meson_runs(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def meson_failed(run):
    return run["result"] not in OK | {"SKIP"}


def junit_cases(file):
    return list(ElementTree.parse(file).getroot().iter("testcase")) if file.exists() else []


def case_name(case):
    """A class that could not be set up stands for its cases: "setUpClass (module.Class)"."""
    name = f"{case.get('classname') or ''}.{case.get('name')}"
    return name.rpartition("(")[2].rstrip(")")


def case_failed(case):
    return case.find("failure") is not None or case.find("error") is not None


def failed_tests(results):
    """(run, test) of each, as meson and tests/system/run.py take their names."""
    for file in sorted(results.glob("*.json")):
        for run in meson_runs(file):
            if meson_failed(run):
                yield file.stem, run["name"].rpartition(" / ")[2]
    for run in ("system", "guests", "debian_guest", "debian_13", "ubuntu_host"):
        for case in junit_cases(results / f"{run}.xml"):
            if case_failed(case):
                yield run, case_name(case)


class Report:
    def __init__(self):
        self.unstable = []  # names
        self.suites = collections.defaultdict(Suite)
        self.failures = []  # names
        self.problems = []  # sentences
        self.times = []     # (seconds, suite, test)

    def add(self, suite, test, seconds, passed, failed, skipped, reasons=()):
        row = self.suites[suite]
        row.tests += 1
        row.passed += passed
        row.failed += len(failed)
        row.skipped += skipped
        row.seconds += seconds
        row.reasons += reasons
        self.failures += [f"{suite}  {name}" for name in failed]
        self.times.append((seconds, suite, test))

    def add_meson(self, file, one_suite=None):
        again = {run["name"]: run for run in meson_runs(file.parent / "again" / file.name)}
        for first in meson_runs(file):
            repeated = meson_failed(first) and first["name"] in again
            run = again[first["name"]] if repeated else first
            cases_of = (file.parent / "again" if repeated else file.parent) / f"{file.stem}.cases"
            where, _, name = run["name"].rpartition(" / ")
            suite = one_suite or where.partition(":")[2] or "unnamed"
            cases = gtest_cases(cases_of, pathlib.Path(run["command"][0]).name)
            good = run["result"] in OK
            if repeated and good:
                self.unstable.append(f"{suite}  {name}")
            if run["result"] == "SKIP":
                counts = 0, [], 1
            elif cases is None:
                counts = int(good), [] if good else [name], 0
            else:
                counts = cases
                if good and not cases[0] and not cases[1] and not cases[2]:
                    counts = 0, [f"{name} (it ran no case)"], 0
                elif not good and not cases[1]:
                    counts = cases[0], [f"{name} ({run['result']})"], cases[2]
            self.add(suite, name, run["duration"], *counts)

    def add_junit(self, file):
        again = junit_cases(file.parent / "again" / file.name)
        for case in junit_cases(file):
            name, bad = case_name(case), case_failed(case)
            repeated = [c for c in again if f"{case_name(c)}.".startswith(f"{name}.")]
            if bad and repeated and not any(map(case_failed, repeated)):
                bad = False
                self.unstable.append(f"{file.stem}  {name}")
            skipped = case.find("skipped") is not None and not bad
            self.add(file.stem, name, float(case.get("time") or 0), int(not bad and not skipped),
                     [name] if bad else [], int(skipped))

    def require(self, suites):
        for name in suites:
            if name not in self.suites:
                self.problems.append(f"the suite '{name}' is missing: none of its tests ran")
            elif not self.suites[name].passed:
                self.problems.append(f"no test of the suite '{name}' passed")

    def print(self):
        for name in self.unstable:
            print(f"UNSTABLE  {name}: failed beside other tests, passed alone; find out why")
        for failure in self.failures:
            print(f"FAILED  {failure}")
        print(f"{'suite':<14}{'tests':>7}{'cases passed':>14}{'failed':>8}{'skipped':>9}"
              f"{'seconds':>9}")
        for name, row in sorted(self.suites.items()):
            print(f"{name:<14}{row.tests:>7}{row.passed:>14}{row.failed:>8}{row.skipped:>9}"
                  f"{row.seconds:>9.0f}")
        for name, row in sorted(self.suites.items()):
            for reason in sorted(set(row.reasons)):
                print(f"SKIPPED  {name}: {reason}")
        for problem in self.problems:
            print(f"FAILED  {problem}")
        total = [sum(getattr(row, what) for row in self.suites.values())
                 for what in ("passed", "failed", "skipped")]
        print(f"{total[0]} passed, {total[1] + len(self.problems)} failed, {total[2]} skipped")
        return bool(total[0]) and not total[1] and not self.problems


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("results", type=pathlib.Path)
    p.add_argument("--require", nargs="*", default=[])
    p.add_argument("--slowest", type=int)
    p.add_argument("--failed", action="store_true")
    a = p.parse_args()
    if a.failed:
        for run, test in failed_tests(a.results):
            print(run, test)
        return 0
    report = Report()
    for file in sorted(a.results.glob("*.json")):
        report.add_meson(file, None if file.stem == "release" else file.stem)
    for file in sorted(a.results.glob("*.xml")):
        report.add_junit(file)
    if a.slowest:
        print("| seconds | suite | test |\n|---|---|---|")
        for seconds, suite, test in sorted(report.times, reverse=True)[:a.slowest]:
            print(f"| {seconds:.1f} | {suite} | `{test}` |")
        return 0
    report.require(a.require)
    return 0 if report.print() else 1


if __name__ == "__main__":
    sys.exit(main())

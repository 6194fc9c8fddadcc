#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each case of GoogleTest programs in several ways and compares what comes out.

    ways.py --build DIR [--device nvidia] [--nvidia-runtime DIR] [--jobs N] [--out FILE] PROGRAM...

PROGRAM is a path below DIR. The ways:
    native          NVIDIA's driver, our libcudart                      (--device nvidia)
    nvidia          NVIDIA's driver and NVIDIA's libcudart in DIR       (--nvidia-runtime)
    channel         through a sluiced, to NVIDIA's driver
    software        the software GPU alone
    soft-channel    through a sluiced, to the software GPU
Without --device nvidia only the last two run. Cases of tests/cudart/of_the_guest.txt, of what only
the guest's library has, do not run on the software GPU alone; those of suites NotOnNvidia*, of what
NVIDIA's driver takes or ends the program for, not on that.

Cases run 20 to a process; one that ends its process costs no other. A case agrees when every way
passes it and its calls answer the same errors as in the first way (SLUICE_CASES_ANSWERS,
tests/cudart/gate/cases/cases.h). Prints what does not agree and a count for each way, and writes
all of it to FILE.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced, driver_folder  # noqa: E402

OF_THE_GUEST = (ROOT / "tests/cudart/of_the_guest.txt").read_text().split()

TIMEOUT_S = 120
AT_ONCE = 20  # cases in one process
STATES = {"[       OK ": "passed", "[  FAILED  ": "failed", "[  SKIPPED ": "skipped"}


def cases_of(program, env):
    """The program's cases in its order: "Suite.Name"."""
    p = subprocess.run([program, "--gtest_list_tests"], env=env, stdout=subprocess.PIPE, text=True,
                       timeout=TIMEOUT_S, check=True)
    suite, cases = "", []
    for line in p.stdout.splitlines():
        name = line.split("#")[0]
        if name.startswith(" "):
            cases.append(suite + name.strip())
        elif name.strip().endswith("."):
            suite = name.strip()
    return cases


def of_the_guest(case):
    return any(fnmatch.fnmatchcase(case, pattern) for pattern in OF_THE_GUEST)


def runs_on(way, case):
    if way in ("native", "nvidia") and case.startswith("NotOnNvidia"):
        return False
    return way != "software" or not of_the_guest(case)


def read_cases(text):
    """{case: outcome} of what a program printed; the state of the last may be None: not ended."""
    found, case = {}, None
    for line in text.splitlines():
        mark, _, rest = line.partition("] ")
        if mark == "[ RUN      ":
            case = rest.strip()
            found[case] = {"state": None, "answers": [], "text": ""}
        elif case and mark in STATES:
            found[case]["state"] = STATES[mark]
            case = None
        elif case and line.startswith("answer: "):
            found[case]["answers"].append(line)
        elif case:
            found[case]["text"] += line + "\n"
    return found


def run(program, cases, env):
    """{case: outcome} of cases in one process; where one ends it, in one more for the others."""
    env = {**env, "SLUICE_CASES_ANSWERS": "1", "GTEST_COLOR": "no"}
    outcomes, left = {}, list(cases)
    while left:
        command = [program, "--gtest_filter=" + ":".join(left)]
        try:
            p = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", timeout=TIMEOUT_S)
            text, end = p.stdout, f"ended {p.returncode}"
        except subprocess.TimeoutExpired as late:
            text, end = (late.output or b"").decode(errors="replace"), "late"
        found = read_cases(text)
        for case, outcome in found.items():
            if outcome["state"] is None:
                outcome["state"] = end
        if not set(left) & found.keys():  # it did not come to the first
            found = {left[0]: {"state": end, "answers": [], "text": text[-2000:]}}
        outcomes.update(found)
        left = [case for case in left if case not in outcomes]
    return outcomes


class Ways:
    def __init__(self, a, work):
        self.runs = {}  # name: environment
        self.sluiced = []
        cudart = str(a.build / "guest-agent/cudart")
        soft = work / "software"  # under the name by which programs look for a driver
        soft.mkdir()
        (soft / "libcuda.so.1").symlink_to(a.build / "mediator/softgpu/libsluice-softcuda.so")
        if a.device == "nvidia":
            driver = str(driver_folder(work))
            self.runs["native"] = self.libraries([cudart, driver])
            if a.nvidia_runtime:
                self.runs["nvidia"] = self.libraries([a.nvidia_runtime, driver])
            self.channel("channel", a, work, cudart, "nvidia")
        self.runs["software"] = self.libraries([cudart, str(soft)])
        self.channel("soft-channel", a, work, cudart, "soft")

    @staticmethod
    def libraries(folders):
        return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}

    def channel(self, name, a, work, cudart, device):
        folder = work / name
        folder.mkdir()
        folder.chmod(0o711)
        it = Sluiced(a.build, folder, device=device)
        self.sluiced.append(it)
        it.start()
        it.ctl("create", "a", "--weight", 1)
        env = it.client_env("a")
        env["LD_LIBRARY_PATH"] = os.pathsep.join([cudart, env["LD_LIBRARY_PATH"]])
        self.runs[name] = env

    def stop(self):
        for it in self.sluiced:
            it.stop()


def other_answers(way, here, first, there):
    """Where two ways answer differently the same call of a case. Of the software GPU alone
    NOT_SUPPORTED only says that it is the guest's library that does it."""
    of_first = dict(line.rsplit(" = ", 1) for line in there)
    for line in here:
        call, answer = line.rsplit(" = ", 1)
        other = of_first.get(call, answer)
        lacks = way == "software" and "(801)" in answer or first == "software" and "(801)" in other
        if answer != other and not lacks:
            yield f"{call} = {answer}, {first}: {other}"


def differences(outcomes):
    """[(way, what)] of one case's outcomes by way."""
    first = next(iter(outcomes))
    found = []
    for way, o in outcomes.items():
        if o["state"] not in ("passed", "skipped"):
            found.append((way, f"{o['state']}: {o['text'].strip()[-600:]}"))
        elif way != first and o["state"] == outcomes[first]["state"] == "passed":
            lines = list(other_answers(way, o["answers"], first, outcomes[first]["answers"]))
            if lines:
                found.append((way, "; ".join(lines)))
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("programs", nargs="+")
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--device", choices=("soft", "nvidia"), default="soft")
    p.add_argument("--nvidia-runtime")
    p.add_argument("--jobs", type=int, default=min(os.cpu_count(), 8))
    p.add_argument("--filter", default="", help="only cases with this in their names")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    a.build = a.build.resolve()
    with tempfile.TemporaryDirectory(prefix="sluice-ways.") as work:
        pathlib.Path(work).chmod(0o711)
        ways = Ways(a, pathlib.Path(work))
        try:
            results = {}
            with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
                waiting = {}
                for program in a.programs:
                    path = a.build / program
                    cases = [c for c in cases_of(path, ways.runs["software"]) if a.filter in c]
                    for way, env in ways.runs.items():
                        mine = [c for c in cases if runs_on(way, c)]
                        for k in range(0, len(mine), AT_ONCE):
                            job = pool.submit(run, path, mine[k:k + AT_ONCE], env)
                            waiting[job] = (path.name, way)
                for done in concurrent.futures.as_completed(waiting):
                    program, way = waiting[done]
                    for case, outcome in done.result().items():
                        results.setdefault(f"{program}: {case}", {})[way] = outcome
        finally:
            ways.stop()
    ordered = {case: {w: results[case][w] for w in ways.runs if w in results[case]}
               for case in sorted(results)}
    agree = 0
    for case, outcomes in ordered.items():
        found = differences(outcomes)
        agree += not found
        for way, what in found:
            print(f"{case}, {way}: {what}")
    counts = {way: {} for way in ways.runs}
    for outcomes in ordered.values():
        for way, o in outcomes.items():
            counts[way][o["state"]] = counts[way].get(o["state"], 0) + 1
    print(json.dumps({"cases": len(ordered), "agree": agree, "ways": counts}))
    if a.out:
        a.out.write_text(json.dumps({"cases": len(ordered), "agree": agree, "ways": counts,
                                     "results": ordered}, indent=1))
    sys.exit(0 if agree == len(ordered) else 1)


if __name__ == "__main__":
    main()

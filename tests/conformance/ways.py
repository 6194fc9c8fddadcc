#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each case of a GoogleTest program in a process of its own, in several ways, and compares.

    ways.py --build DIR [--device nvidia] [--nvidia-runtime DIR] [--jobs N] [--out FILE] PROGRAM...

PROGRAM is a path below DIR. The ways:
    native          NVIDIA's driver, our libcudart                      (--device nvidia)
    nvidia          NVIDIA's driver and NVIDIA's libcudart in DIR       (--nvidia-runtime)
    channel         through a sluiced, to NVIDIA's driver
    software        the software GPU alone
    soft-channel    through a sluiced, to the software GPU
Without --device nvidia only the last two run. Cases of tests/cudart/of_the_guest.txt, of what only
the guest's library has, do not run on the software GPU alone.

A case agrees when every way passes it and its calls answer the same errors as in the first way
(SLUICE_CASES_ANSWERS, tests/cudart/gate/cases/cases.h). Prints what does not agree and a count for
each way, and writes all of it to FILE.
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
from host import Sluiced  # noqa: E402

OF_THE_GUEST = (ROOT / "tests/cudart/of_the_guest.txt").read_text().split()

TIMEOUT_S = 120
SYSTEM_LIBRARIES = "/usr/lib/x86_64-linux-gnu"


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


def run(program, case, env):
    """{"state": passed, skipped, failed, ended N or late; "answers"; "text"} of one case."""
    env = {**env, "SLUICE_CASES_ANSWERS": "1"}
    try:
        p = subprocess.run([program, "--gtest_filter=" + case], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace",
                           timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        return {"state": "late", "answers": [], "text": str(late.output)[-1000:]}
    answers = [line for line in p.stdout.splitlines() if line.startswith("answer: ")]
    if p.returncode not in (0, 1):
        state = f"ended {p.returncode}"
    elif p.returncode == 1:
        state = "failed"
    else:
        state = "skipped" if "[  SKIPPED ]" in p.stdout else "passed"
    hidden = ("answer: ", "[", "Note")
    shown = [line for line in p.stdout.splitlines() if not line.startswith(hidden)]
    return {"state": state, "answers": answers, "text": "\n".join(shown)[-2000:]}


class Ways:
    def __init__(self, a, work):
        self.runs = {}  # name: environment
        self.sluiced = []
        cudart = str(a.build / "guest-agent/cudart")
        soft = work / "software"  # under the name by which programs look for a driver
        soft.mkdir()
        (soft / "libcuda.so.1").symlink_to(a.build / "mediator/softgpu/libsluice-softcuda.so")
        if a.device == "nvidia":
            self.runs["native"] = self.libraries([cudart, SYSTEM_LIBRARIES])
            if a.nvidia_runtime:
                self.runs["nvidia"] = self.libraries([a.nvidia_runtime, SYSTEM_LIBRARIES])
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


def differences(outcomes):
    """[(way, what)] of one case's outcomes by way."""
    first = next(iter(outcomes))
    found = []
    for way, o in outcomes.items():
        if o["state"] not in ("passed", "skipped"):
            found.append((way, f"{o['state']}: {o['text'].strip()[-600:]}"))
        elif way != first and o["state"] == "passed" and outcomes[first]["state"] == "passed":
            lines = [f"{a} | {first}: {b}" for a, b in zip(o["answers"], outcomes[first]["answers"])
                     if a != b]
            if len(o["answers"]) != len(outcomes[first]["answers"]):
                lines.append(f"{len(o['answers'])} answers, {len(outcomes[first]['answers'])}")
            if lines:
                found.append((way, "answers: " + "; ".join(lines)))
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
                    for case in cases_of(path, ways.runs["software"]):
                        if a.filter in case:
                            for way, env in ways.runs.items():
                                if way == "software" and of_the_guest(case):
                                    continue
                                waiting[pool.submit(run, path, case, env)] = (
                                    f"{path.name}: {case}", way)
                for done in concurrent.futures.as_completed(waiting):
                    case, way = waiting[done]
                    results.setdefault(case, {})[way] = done.result()
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

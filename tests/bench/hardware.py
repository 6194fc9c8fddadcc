#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is prepared and has not run on hardware yet, on a GPU, in under four minutes; one JSON file
and a line for each step.

    meson setup build-static -Dcpp_link_args='-static-libstdc++ -static-libgcc'
    ninja -C build-static tests/golden/clone_gpu tests/bench/preempt_bench tests/bench/ask_cost \\
        mediator/worker/sluice-worker \\
        tests/unit/worker/worker_eviction_test \\
        tests/unit/worker/worker_process_test tests/cccl/timing.stamp
    tests/bench/hardware.py --build build-static --out out/hardware.json

Steps (--only STEP,..): each under a limit of its own; a step that fails or runs into it does not
stop the others. --lib-dir: where sluice-worker's libraries lie (fmt, seccomp), if the
machine has none. Exits 1 if a result was wrong or a step did not end well.
"""
import argparse
import json
import os
import pathlib
import subprocess
import time


def steps(build, library):
    """Name, limit in seconds, environment, command."""
    clone = [build / "tests/golden/clone_gpu", library, "none", "0", "1"]
    timing = build / "tests/cccl/timing"
    bench = [build / "tests/bench/preempt_bench", "--library", library]
    worker = {"SLUICE_TEST_LIBRARY": library,
              "SLUICE_TEST_WORKER": str(build / "mediator/worker/sluice-worker")}
    return [
        # Which layout the driver takes in one buffer, then originals and clones with tensor maps.
        ("tensor", 40, {"SLUICE_CLONE_JOBS": "tensor"}, [*clone, "8"]),
        # Resumable clones on a part of the SMs; a launch whose parameters are aligned as tensor
        # maps are.
        ("worker-resume", 40, worker,
         [build / "tests/unit/worker/worker_eviction_test", "--gtest_filter=*InSpace*"]),
        ("worker-aligned", 20, worker,
         [build / "tests/unit/worker/worker_eviction_test", "--gtest_filter=*TensorMaps*"]),
        # Maps made through the channel's call, clones that copy by them.
        ("worker-tensor", 20, worker,
         [build / "tests/unit/worker/worker_process_test", "--gtest_filter=*TensorMaps*"]),
        ("ask-cost", 45, {}, [build / "tests/bench/ask_cost", "--library", library, "--evictions",
                              "20", "--rounds", "5"]),
        # Launches of 1 ms and more, 1.6 to 6.4 GB each.
        ("cub-long", 120, {},
         [*bench, "--cccl", timing, "--only", "_long", "--seeds", "1", "equality"]),
        ("bfs", 40, {"SLUICE_CLONE_JOBS": "suite"}, [*clone, "4", "suite bfs"]),
        ("cfd", 40, {"SLUICE_CLONE_JOBS": "suite"}, [*clone, "2", "suite cfd"]),
    ]


def run(name, limit, environment, command):
    begin = time.monotonic()
    try:
        done = subprocess.run([str(c) for c in command], env={**os.environ, **environment},
                              timeout=limit,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", check=False)
        code, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as stopped:
        code, text = "limit", (stopped.stdout or b"").decode(errors="replace")
    except OSError as wrong:
        code, text = "absent", str(wrong)
    lines = [line for line in text.splitlines() if line]
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line) if line.startswith("{") else line)
        except json.JSONDecodeError:
            rows.append(line)  # cut off by the limit
    return {"step": name, "code": code, "seconds": round(time.monotonic() - begin, 1),
            "lines": rows}


def brief(step):
    """The lines that say how it went."""
    out = []
    for line in step["lines"]:
        if isinstance(line, dict):
            if "equality" in line:
                out.append("{equality}: {left} times left in {launches} launches, {wrong} wrong, "
                           "longest {longest_us} us".format(**line))
            elif "ask" in line:
                leave = line.get("leave_us", {})
                out.append(f"{line['ask']}, {line['blocks_per_sm']} an SM, every "
                           f"{line['interval_us']} us: {line['asked']:.3f} of the "
                           f"time, {line['ask_ns']:.0f} ns a question; left in {leave.get('p50')} "
                           "us" + ("" if line["right"] else ", WRONG"))
            elif "wrong" in line or "original_differs" in line:
                out.append(json.dumps(line))
        elif not line.startswith(("[ RUN", "[---", "[===", "Running main", "Note:")):
            out.append(line)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-static")
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--lib-dir", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="out/hardware.json")
    args = parser.parse_args()
    if args.lib_dir:
        paths = [args.lib_dir, os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    wanted = [name for name in args.only.split(",") if name]
    todo = [s for s in steps(pathlib.Path(args.build), args.library) if not wanted
            or s[0] in wanted]
    if unknown := set(wanted) - {s[0] for s in todo}:
        raise SystemExit(f"hardware.py: no such step: {', '.join(sorted(unknown))}")
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    results = []
    for step in todo:
        results.append(run(*step))
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"== {results[-1]['step']}: exit {results[-1]['code']}, {results[-1]['seconds']} s")
        print("\n".join(brief(results[-1])), flush=True)
    raise SystemExit(0 if all(r["code"] == 0 for r in results) else 1)


if __name__ == "__main__":
    main()

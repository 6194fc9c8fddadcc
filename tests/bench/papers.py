#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of the papers that are made of single runs: prints them as tables from sluice-sim.

    tests/bench/papers.py --sim build/policies/sim/sluice-sim            # all
    tests/bench/papers.py --sim ... flep-1 preemptive-8                  # these

sluice-sim's own table has means only. docs/results/papers/ shows these figures.
"""
import argparse
import json
import math
import statistics
import subprocess

PROCESSES = (2, 4, 6, 8)
# Table 1 of the paper on preemptive multiprogramming, column "Class 1": by length of kernels.
CLASS_1 = {"lbm": "MEDIUM", "histo": "SHORT", "tpacf": "LONG", "spmv": "SHORT", "mri-q": "MEDIUM",
           "sad": "LONG", "sgemm": "MEDIUM", "stencil": "MEDIUM", "cutcp": "MEDIUM",
           "mri-gridding": "LONG"}
HANDOVERS_US = (15, 90, 300)


def simulate(workload, *policies, options=()):
    """The report of each policy, by its name."""
    command = [ARGS.sim, "-w", workload, "-p", *policies, "--json", "--seed", str(ARGS.seed)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    return {report["policy"]: report for report in map(json.loads, done.stdout.splitlines())}


def table(title, head, rows):
    print(f"\n{title}\n")
    for row in [head, ["---"] * len(head), *rows]:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row)
        print("| " + " | ".join(cells) + " |")


def spread(values):
    return [statistics.fmean(values), min(values), max(values)]


def flep_1():
    runs = simulate("flep-pairs", "fcfs")["fcfs"]["by_run"]
    values = [value for run in runs for name, value in run["ntt"].items() if name.endswith("small")]
    table("FLEP, figure 1: slowdown of the small kernel behind a large one, no preemption",
          ["mean", "least", "most"], [spread(values)])


def flep_9():
    runs = simulate("flep-delay", "hpf")["hpf"]["by_run"]
    rows = []
    for first in range(0, len(runs), 10):
        large = runs[first]["by_vgpu"][0]["name"]
        rows.append([large, *(run["speedup_high"] for run in runs[first:first + 10])])
    table("FLEP, figure 9: speed-up of SPMV by its delay, in eighths of the large kernel's time",
          ["behind", *range(10)], rows)


def preemptive_5():
    rows = []
    for group in ("SHORT", "MEDIUM", "LONG"):
        for kind in ("switch", "drain"):
            row = [group, kind]
            for processes in PROCESSES:
                runs = simulate(f"preemptive-{kind}-{processes}", "ppq")["ppq"]["by_run"]
                row.append(statistics.fmean(run["speedup_high"] for run in runs
                                            if CLASS_1[run["by_vgpu"][0]["name"]] == group))
            rows.append(row)
    table("Preemptive multiprogramming, figure 5: gain of the high priority under ppq, by class",
          ["class", "mechanism", *PROCESSES], rows)


def preemptive_6():
    rows = []
    for kind in ("switch", "drain"):
        for policy in ("ppq", "wfq"):
            row = [f"npq over {policy}", kind]
            for processes in PROCESSES:
                reports = simulate(f"preemptive-{kind}-{processes}", "npq", policy)
                row.append(reports["npq"]["stp"] / reports[policy]["stp"])
            rows.append(row)
    table("Preemptive multiprogramming, figure 6: STP", ["", "mechanism", *PROCESSES], rows)


def preemptive_8():
    rows = []
    for drain in ("drain", "printed"):
        for processes in PROCESSES:
            def antt(kind, policy, processes=processes):
                report = simulate(f"preemptive-equal-{kind}-{processes}", policy)[policy]
                return [run["antt"] for run in report["by_run"]]
            fcfs, switched = antt("switch", "fcfs"), antt("switch", "dss")
            drained = antt(drain, "dss")
            # Improved: by 1 % and more with either mechanism.
            improved = [i for i, base in enumerate(fcfs)
                        if min(switched[i], drained[i]) < base / 1.01]
            lower = sum(drained[i] < switched[i] for i in improved)
            rows.append(["as long as kernels" if drain == "drain" else "as printed", processes,
                         f"{len(improved)} of {len(fcfs)}", f"{lower} of {len(improved)}",
                         math.exp(statistics.fmean(math.log(switched[i] / drained[i])
                                                   for i in improved))])
    table("Preemptive multiprogramming, figure 8: mixes that dss improves",
          ["blocks", "processes", "improved", "draining lower", "ANTT, switch over draining"], rows)


def effisha_k():
    runs = simulate("effisha-adaptive", "piv")["piv"]["by_run"]
    table("EffiSha, section 6.3: k = L / (r l), r = 10, under piv",
          ["slice L, ms", "evicted within, P50 us", "ANTT"],
          [[0.25 * 2**i, run["evict_latency_us"]["p50"], run["antt"]]
           for i, run in enumerate(runs)])


def frs_3():
    policies = ("frs", "srt", "sjf", "rr", "cfs", "wfq")
    reports = simulate("frs", *policies)
    names = ("CEDD", "SPMV", "VA", "CONV", "BS", "PF", "MM", "HST256", "RED")
    table("FRS, figure 3: NTT of each application", ["", *names],
          [[policy, *(reports[policy]["ntt"][name] for name in names)] for policy in policies])


def handovers():
    rows = []
    for title, workload, policy, field in (
            ("EffiSha: ANTT", "effisha-sjf", "piv", "antt"),
            ("EffiSha: ANTT", "effisha-sjf", "dprr", "antt"),
            ("FLEP, pairs: speed-up", "flep-pairs", "hpf", "speedup_high"),
            ("FLEP, pairs: speed-up", "flep-pairs", "wfq", "speedup_high"),
            ("FLEP, equal: ANTT improvement", "flep-equal", "hpf", "antt_improvement"),
            ("FLEP, equal: ANTT improvement", "flep-equal", "wfq", "antt_improvement"),
            ("FLEP, 2:1: useful", "flep-fairness", "ffs", "throughput"),
            ("FLEP, 2:1: useful", "flep-fairness", "wfq", "throughput"),
            ("preemptive, 8: gain of the high", "preemptive-drain-8", "ppq", "speedup_high"),
            ("preemptive, 8: ANTT improvement", "preemptive-equal-drain-8", "dss",
             "antt_improvement"),
            ("FRS: ANTT", "frs", "frs", "antt"), ("FRS: ANTT", "frs", "srt", "antt"),
            ("FRS: ANTT", "frs", "rr", "antt"), ("FRS: ANTT", "frs", "wfq", "antt"),
            ("FRS: DNTT", "frs", "frs", "dntt"), ("FRS: DNTT", "frs", "wfq", "dntt")):
        row = [title, policy, simulate(workload, policy)[policy][field]]
        for handover in HANDOVERS_US:
            report = simulate(workload, policy, options=("--handover", str(handover)))[policy]
            row.append(report[field])
        rows.append(row)
    table("The papers' figures by the length of a hand-over",
          ["figure", "policy", "the paper's", *(f"{us} us" for us in HANDOVERS_US)], rows)


def wfq_handovers():
    rows = []
    for workload, title, field in (
            ("wfq-turns", "equal weights: error of a share, any second", "share_error_settled"),
            ("wfq-turns", "equal weights: useful", "throughput"),
            ("wfq-turns-weights", "weights 1 to 1,000: error in parts of the GPU, any second",
             "share_points_max"),
            ("wfq-turns-weights", "weights 1 to 1,000: least got of owed", "got_of_owed_min")):
        runs = {us: simulate(workload, "wfq", options=("--horizon", "20000", "--handover", str(us)))
                ["wfq"]["by_run"] for us in HANDOVERS_US}
        for i, run in enumerate(runs[HANDOVERS_US[0]]):
            if run["vgpus"] in (4, 16, 64, 256):
                rows.append([title, run["vgpus"],
                             *(f"{runs[us][i][field]:.3f}" for us in HANDOVERS_US)])
    table("wfq given whole, 20 s, by the length of a hand-over",
          ["figure", "vGPUs", *(f"{us} us" for us in HANDOVERS_US)], rows)


FIGURES = {"effisha-k": effisha_k, "flep-1": flep_1, "flep-9": flep_9,
           "preemptive-5": preemptive_5, "preemptive-6": preemptive_6,
           "preemptive-8": preemptive_8, "frs-3": frs_3, "handovers": handovers,
           "wfq-handovers": wfq_handovers}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sim", required=True, help="path of sluice-sim")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    ARGS = parser.parse_args()
    if unknown := set(ARGS.figures) - set(FIGURES):
        parser.error(f"no figure {', '.join(sorted(unknown))}")
    for figure in ARGS.figures or FIGURES:
        FIGURES[figure]()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-sim from outside: its JSON keys, its exit status, what it says of bad input.

    tool_test.py PATH-OF-SLUICE-SIM
"""
import json
import os
import pty
import subprocess
import sys
import tempfile

SIM = sys.argv[1]
failures = []


def run(*args):
    p = subprocess.run([SIM, *args], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def check(what, condition):
    if not condition:
        failures.append(what)


KEYS = {"workload", "policy", "antt", "stp", "dntt", "fairness", "share_error_max", "evictions",
        "speedup_high", "ntt"}

code, out, err = run("--list")
check("--list ends well", code == 0)
names = json.loads(run("--list", "--json")[1])
for row in names["workloads"] + names["policies"]:
    check(f"--list names {row['name']}", row["name"] in out)

code, out, err = run("--workload", "effisha-sjf", "--policy", "piv", "--policy", "wfq", "--json")
check("a built-in workload", code == 0)
lines = [json.loads(line) for line in out.splitlines()]
check("one object for each policy, in order", [o["policy"] for o in lines] == ["piv", "wfq"])
for o in lines:
    check("the keys", KEYS <= o.keys())
    check("one NTT per kernel", len(o["ntt"]) == 11 and all(v >= 0.99 for v in o["ntt"].values()))
    check("figures are numbers",
          all(isinstance(o[k], (int, float)) for k in KEYS - {"workload", "policy", "ntt"}))
first, again, other = (run("-w", "mixed", "-p", "wfq", "--json", "--max-events", "100000", "--seed",
                           seed) for seed in "556")
check("seeds repeat", first[0] == 0 and first == again)
check("another seed has other draws", first != other)

code, out, err = run("-w", "two-to-one", "-p", "wfq", "--max-events", "100", "--json")
check("a limit of events cuts",
      code == 0 and json.loads(out)["cut"] and json.loads(out)["events"] == 100)

# A workload's hand-over can be replaced: 90 us, of which its start of 25 is kept.
code, out, err = run("-w", "flep-pairs", "-p", "hpf", "--handover", "90", "--json")
check("--handover", code == 0 and abs(json.loads(out)["evict_latency_us"]["p50"] - 65) < 0.01)
check("a run has its NTTs", set(json.loads(out)["by_run"][0]["ntt"]) == {"CFD large", "NN small"})
check("no hand-over at all", run("-w", "flep-pairs", "--handover", "0")[0] == 1)

with tempfile.TemporaryDirectory() as d:
    def file(name, text):
        path = os.path.join(d, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    bad = {
        "no such workload": ["-w", "nothing"],
        "no such policy": ["-w", "mixed", "-p", "nothing"],
        "no workload": ["-p", "wfq"],
        "a policy for the other kind of preemptor": ["-w", "mixed", "-p", "loga"],
        "a file that is not there": ["-w", os.path.join(d, "none.json")],
        "not JSON": ["-w", file("a.json", "{")],
        "an unknown key": ["-w", file("b.json", '{"name": "x", "nmae": 1}')],
        "a wrong type": ["-w", file("c.json", '{"name": "x", "gpu": {"sms": "many"}}')],
        "an empty workload": ["-w", file("d.json", "{}")],
        "a program without an end": ["-w", file("e.json", json.dumps({
            "kernels": [{"name": "k"}], "vgpus": [{"name": "v"}],
            "programs": [{"name": "p", "vgpu": "v", "kernel": "k", "arrival": "backlog",
                          "runs": 0}]}))],
        "an empty trace": ["-w", file("f.jsonl", "")],
        "no number": ["-w", "mixed", "--seed", "x"],
        "no runs": ["-w", "mixed", "--runs", "0"],
        "a negative seed": ["-w", "mixed", "--seed", "-1"],
        "a seed beyond 64 bits": ["-w", "mixed", "--seed", "18446744073709551616"],
        "half an option": ["-w", "mixed", "-p"],
        "no time for a slice": ["-w",
                                file("g.json", '{"name": "x", "gpu": {"slice_floor_us": 0}}')],
        "a floor above the ceiling": ["-w",
                                      file("h.json",
                                           '{"name": "x", "gpu": {"slice_floor_us": 9, '
                                           '"slice_ceiling_us": 8}}')],
        "an unknown option": ["-w", "mixed", "--frobnicate"],
        "a plot that cannot be written": ["-w", "two-to-one", "--max-events", "10", "--plot",
                                          os.path.join(d, "no", "x.svg")],
    }
    for what, args in bad.items():
        code, out, err = run(*args)
        check(f"{what}: exit status {code}, stderr {err!r}", code == 1 and err.strip())
        check(f"{what}: an empty message", len(err.strip()) > 10)
    for what, (text, args) in {
            "a directory": ("is a directory", ["-w", d + "/dir.json"]),
            "a directory for a trace": ("is a directory", ["-w", d + "/dir.jsonl"]),
            "a key twice": ("'name' is there twice at line 1, column 20",
                            ["-w", file("i.json", '{"name": "x", "name": "y"}')]),
            "cut off": ("ends too early", ["-w", file("j.json", '{"name": "x", ')]),
            "a missing comma": ("line 2, column 1",
                                ["-w", file("k.json", '{"name": "x"\n"gpu": {}}')]),
            "all beside others": ("stands alone", ["-w", "mixed", "-p", "all", "wfq"]),
            "a plot without a name": ("--plot", ["-w", "mixed", "--plot", ""])}.items():
        for kind in (".json", ".jsonl"):
            os.makedirs(d + "/dir" + kind, exist_ok=True)
        code, out, err = run(*args)
        check(f"{what}: exit status {code}, stderr {err!r}", code == 1 and text in err)

    # Odd and legal: nobody breaks the contract or leaves work for ever, and the simulation ends.
    def two(gpu, x=None, y=None, k=None, **rest):
        return {"gpu": {"sms": 8, "signal_us": 3, "start_us": 4, **gpu}, "horizon_ms": 50,
                "kernels": [{"name": "k", "alone_us": 400, "tasks": 800, **(k or {})}],
                "vgpus": [{"name": "x", "weight": 1}, {"name": "y", "weight": 1000}],
                "programs": [{"name": n, "vgpu": n, "kernel": "k",
                              **(p or {"arrival": "backlog", "runs": 0})} for n,
                              p in (("x", x), ("y", y))], **rest}
    machines = {"whole": {}, "parts": {"spatial": True},
                "slices": {"preemptor": "proportional", "switch_us": 50},
                "one SM": {"sms": 1}, "context switch": {"mechanism": "context-switch"}}
    at_once = {"arrival": "offsets", "offsets_ms": [0, 0, 0, 5, 5]}
    for machine, gpu in machines.items():
        for shape, o in {
                "at the same instant": two(gpu, at_once, at_once),
                "no pause between": two(gpu, {"runs": 9}, {"runs": 9}),
                "opaque": two(gpu, k={"evictable": False}),
                "giant": two(gpu, k={"alone_us": 9e8, "tasks": 4_000_000_000}),
                "1 ns": two(gpu, k={"alone_us": 0.001, "tasks": 1}, horizon_ms=0.1),
                "quanta of nothing": two(gpu,
                                         config={"handover_loss": 0, "min_quantum_ms": 0,
                                                 "max_quantum_ms": 0, "latency_target_ms": 0,
                                                 "short_gap_ms": 0})}.items():
            code, out, err = run("-w", file("odd.json", json.dumps(o)), "-p", "all", "--json")
            check(f"{machine}, {shape}: exit status {code}, {err!r}",
                  code == 0 and len(out.splitlines()) >= 2)

    # Ends, and needs no more memory than it should, whatever the file asks for.
    tiny = two({}, share_window_ms=1e-6)
    code, out, err = run("-w", file("tiny.json", json.dumps({**tiny, "horizon_ms": 1e9})), "--json")
    check(f"windows of a nanosecond for eleven days: {code}, {err!r}",
          code == 0 and json.loads(out)["cut"])
    many = {**two({}), "horizon_ms": 0, "vgpus": [{"name": f"v{i}"} for i in range(2000)],
            "programs": [{"name": f"p{i}", "vgpu": f"v{i % 2000}", "kernel": "k"}
                         for i in range(8000)]}
    code, out, err = run("-w", file("many.json", json.dumps(many)), "-p", "fcfs", "--json")
    check(f"8,000 programs: {code}, {err!r}", code == 0 and len(json.loads(out)["ntt"]) == 8000)
    small = file("small.json", json.dumps(two({})))
    for args in (["--list"], ["-w", small], ["-w", small, "--json"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([SIM, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                               timeout=120)
        check(f"{args}: an output that is full: {p.returncode}, {p.stderr!r}",
              p.returncode == 1 and "No space left" in p.stderr)
    code, out, err = run("-w", small, "--plot", "/dev/full")
    check(f"a plot that is full: {err!r}",
          code == 1 and "/dev/full: cannot be written: No space left" in err)
    cut = os.path.join(d, "cut.jsonl")
    code, out, err = run("-w", small, "--max-events", "100", "--trace", cut)
    check("what cuts the simulation cuts its trace", code == 0 and len(open(cut).readlines()) < 200)

    trace, plot = os.path.join(d, "t.jsonl"), os.path.join(d, "p.svg")
    code, out, err = run("-w", "frs", "--runs", "2", "-p", "frs", "-p", "wfq", "--trace", trace,
                         "--plot", plot)
    check("trace and plot", code == 0 and open(plot).read().rstrip().endswith("</svg>"))
    check(f"a pipe gets no progress: {err!r}", err == "")
    terminal, its_end = pty.openpty()
    p = subprocess.run([SIM, "-w", "frs", "--runs", "2", "-p", "frs", "--json"],
                       stdout=subprocess.PIPE, stderr=its_end, timeout=120)
    os.close(its_end)
    shown = os.read(terminal, 4096).decode()
    os.close(terminal)
    check(f"a terminal gets the progress: {shown!r}",
          p.returncode == 0 and "run 2 of 2: frs" in shown and json.loads(p.stdout))
    code, out, err = run("-w", trace, "-p", "srt", "--json")
    check("the trace replays", code == 0 and len(json.loads(out)["ntt"]) == 9)

    # What is learnt of kernels is kept: the second time the shortest goes first from the first
    # launch on.
    learns = file("m.json", json.dumps({
        "name": "learns", "predictor": "model", "gpu": {"sms": 8},
        "kernels": [{"name": "long", "alone_us": 9000, "tasks": 500},
                    {"name": "short", "alone_us": 300, "tasks": 100}],
        "vgpus": [{"name": n} for n in "abc"],
        "programs": [{"name": n, "vgpu": n, "kernel": k, "runs": 1, "first_ms": at} for n, k, at in
                     (("a", "long", 0), ("b", "long", 0.1), ("c", "short", 0.2))]}))
    model = os.path.join(d, "model.txt")
    antt = []
    for _ in range(2):
        code, out, err = run("-w", learns, "-p", "sjf", "--model", model, "--json")
        check(f"a run with a model: {err!r}", code == 0)
        antt.append(json.loads(out)["antt"] if code == 0 else 0)
    check(f"what was learnt helps the next run: {antt}", antt[1] < antt[0] * 0.8)
    for what, args in {"a model that is none": ["-w", learns, "--model",
                                                file("bad.txt", "nonsense\n")],
                       "a model where none predicts": ["-w", "mixed", "--model", model],
                       "a model that cannot be written": ["-w", learns, "--model",
                                                          os.path.join(d, "no", "m.txt")]}.items():
        code, out, err = run(*args)
        check(f"{what}: exit status {code}, stderr {err!r}", code == 1 and len(err.strip()) > 10)

for f in failures:
    print("FAILED:", f)
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)

# SPDX-License-Identifier: Apache-2.0
"""What the demo shows and leaves: the live table, report.json, shares.png."""
import pathlib
import shutil
import subprocess
import sys


def _shares(first, last, names):
    """Shares of GPU time between two samples, over intervals in which all had work queued."""
    a, b = first["vgpus"], last["vgpus"]
    used = [b[n]["contended_gpu_ns"] - a[n]["contended_gpu_ns"] for n in names]
    total = sum(used)
    return [u / total if total else 0.0 for u in used]


def half(weights, first, last, names):
    return {"weights": weights, "shares": [round(s, 4) for s in _shares(first, last, names)],
            "seconds": round((last["now_ns"] - first["now_ns"]) / 1e9, 3),
            "contended_s": round((last["contended_ns"] - first["contended_ns"]) / 1e9, 3)}


def live_table(history, clients):
    """One block of lines a sample on a terminal (redrawn in place), one line every 5 s
    elsewhere."""
    if len(history) < 2:
        return
    tty = sys.stderr.isatty()
    if not tty and len(history) % 10:
        return
    last, first = history[-1], history[max(0, len(history) - 5)]
    names = [c.name for c in clients]
    shares = _shares(first, last, names)
    weights = [c.weight for c in clients]
    rows = [f"{'vGPU':6} {'weight':>6} {'asked':>6} {'got':>6} {'launches':>9} {'evictions':>9} "
            f"{'evict p50/p99 us':>17} {'right/wrong':>11}"]
    for c, share in zip(clients, shares):
        v = last["vgpus"][c.name]
        e = v["evict_latency_us"]
        right = sum(r["right"] for r in c.results)
        wrong = sum(r["wrong"] for r in c.results)
        rows.append(f"{c.name:6} {c.weight:6} {c.weight / sum(weights):6.1%} {share:6.1%} "
                    f"{v['launches_done']:9} {v['evictions']:9} "
                    f"{e['p50']:8.0f}/{e['p99']:8.0f} {right:5}/{wrong:<5}")
    if tty and getattr(live_table, "drawn", False):
        sys.stderr.write(f"\x1b[{len(rows)}A")
    live_table.drawn = True
    for r in rows:
        sys.stderr.write(("\x1b[2K" if tty else "          ") + r + "\n")
    sys.stderr.flush()


def make(halves, final, clients, names, wall_s, args, info):
    vgpus = final["vgpus"]
    e = final["evict_latency_us"]
    return {
        "halves": halves,
        "evictions": {n: vgpus[n]["evictions"] for n in names},
        "resumes": {n: vgpus[n]["resumes"] for n in names},
        "launches_resumed": {n: vgpus[n]["physical_evictions"] for n in names},
        "eviction_latency_us": {"p50": e["p50"], "p99": e["p99"]},
        "launches": {n: vgpus[n]["launches_done"] for n in names},
        "results_right": sum(r["right"] for c in clients for r in c.results),
        "results_wrong": sum(r["wrong"] for c in clients for r in c.results),
        "programs": sorted({r["program"] for c in clients for r in c.results}),
        "device": clients[0].device or info["device"]["kind"],
        "guests": args.guests,
        "policy": info["policy"],
        "wall_s": round(wall_s, 1),
    }


def failures(result, names, tolerance, min_evictions):
    out = []
    if result["results_wrong"] or not result["results_right"]:
        out.append(f"results: {result['results_right']} right, {result['results_wrong']} wrong")
    for n in names:
        for what in ("evictions", "resumes"):
            if result[what][n] < min_evictions:
                out.append(f"{n}: {result[what][n]} {what}, fewer than {min_evictions}")
    for i, h in enumerate(result["halves"], 1):
        total = sum(h["weights"])
        for n, share, weight in zip(names, h["shares"], h["weights"]):
            if abs(share - weight / total) > tolerance:
                out.append(f"half {i}: {n} got {share:.1%}, asked {weight / total:.1%}")
        if h["contended_s"] < 0.5 * h["seconds"]:
            out.append(f"half {i}: both had work queued for only {h['contended_s']} of "
                       f"{h['seconds']} s")
    return out


def print_summary(result, names):
    print()
    for i, h in enumerate(result["halves"], 1):
        total = sum(h["weights"])
        cells = ", ".join(f"{n} asked {w / total:.1%} got {s:.1%}"
                          for n, w, s in zip(names, h["weights"], h["shares"]))
        print(f"half {i} ({':'.join(map(str, h['weights']))}): {cells}; "
              f"contended {h['contended_s']} of {h['seconds']} s")
    e = result["eviction_latency_us"]
    print(f"evictions {result['evictions']}, eviction latency p50 {e['p50']:.0f} us, p99 "
          f"{e['p99']:.0f} us")
    print(f"results: {result['results_right']} right, {result['results_wrong']} wrong; "
          f"device: {result['device']}; {result['wall_s']} s")


def plot(history, halves, names, out):
    """shares.png: both shares over time (1 s windows), the shares asked as dashed lines."""
    out = pathlib.Path(out)
    if len(history) < 3:
        return
    zero = history[0]["now_ns"]
    window = 4
    rows = []
    for a, b in zip(history, history[window:]):
        # A share is drawn where it is owed: where both had work queued for most of the window.
        if b["contended_ns"] - a["contended_ns"] > 0.4 * (b["now_ns"] - a["now_ns"]):
            t = ((a["now_ns"] + b["now_ns"]) / 2 - zero) / 1e9
            rows.append([t, *_shares(a, b, names)])
    data = out / "shares.dat"
    data.write_text("\n".join(" ".join(f"{x:.4f}" for x in r) for r in rows) + "\n")
    asked, at = [], 0.0
    for h in halves:
        for i, w in enumerate(h["weights"], 1):
            asked.append(f"set arrow from {at},{w / sum(h['weights'])} to {at + h['seconds']},"
                         f"{w / sum(h['weights'])} nohead dashtype 2 linecolor {i} linewidth 2")
        at += h["seconds"]
    script = "\n".join([
        "set terminal pngcairo size 1000,520 font 'sans,11'", f"set output '{out / 'shares.png'}'",
        "set title 'GPU share of each vGPU (dashed: asked by weight)'", "set xlabel 'seconds'",
        "set ylabel 'share of GPU time'", "set yrange [0:1]", "set format y '%.1f'",
        f"set xrange [0:{at}]", "set key outside top center horizontal", "set grid", *asked,
        "plot " +
        ", ".join(f"'{data}' using 1:{i + 1} with lines linewidth 2 linecolor {i} title '{n}'"
                            for i, n in enumerate(names, 1))]) + "\n"
    if not shutil.which("gnuplot"):
        (out / "shares.gp").write_text(script)
        print(f"demo: gnuplot is missing; 'gnuplot {out}/shares.gp' draws the plot",
              file=sys.stderr)
        return
    p = subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.PIPE)
    if p.returncode != 0:
        print(f"demo: no plot: {p.stderr.strip()}", file=sys.stderr)
    data.unlink()

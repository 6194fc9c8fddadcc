# SPDX-License-Identifier: Apache-2.0
"""Rows of figures with their goals; as JSON and as a Markdown table."""
import dataclasses
import json
import math


@dataclasses.dataclass
class Row:
    experiment: str
    way: str
    metric: str
    value: float
    unit: str
    baseline: float = None  # what the value is compared with: alone, or the best alternative
    goal: float = None
    met: bool = None

    def asdict(self):
        return dataclasses.asdict(self)


class Results:
    """`goals`: whether figures are held against them; on a software GPU they say nothing."""

    def __init__(self, goals):
        self.rows, self.goals = [], goals

    def add(self, experiment, way, metric, value, unit, baseline=None, at_most=None,
            at_least=None):
        """A figure; with a goal it is met or missed."""
        goal = at_most if at_most is not None else at_least
        met = None
        if not self.goals:
            goal = None
        if goal is not None:
            met = value <= goal if at_most is not None else value >= goal
        rounded = [None if x is None else float(f"{x:.5g}") for x in (value, baseline, goal)]
        self.rows.append(Row(experiment, way, metric, rounded[0], unit, rounded[1], rounded[2],
                             met))

    def json(self):
        return [r.asdict() for r in self.rows]


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]


def text_of(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return f"{value:.4g}" if abs(value) < 10 else f"{value:.0f}"


def table(rows):
    """Markdown of the rows, as dictionaries: a table for each experiment, a line for each way."""
    out = []
    for experiment in dict.fromkeys(r["experiment"] for r in rows):
        mine = [r for r in rows if r["experiment"] == experiment]
        metrics = list(dict.fromkeys((r["metric"], r["unit"]) for r in mine))
        out += [f"### {experiment}", "",
                "| way | " + " | ".join(f"{m}, {u}" if u else m for m, u in metrics) + " |",
                "|---" * (len(metrics) + 1) + "|"]
        for way in dict.fromkeys(r["way"] for r in mine):
            cells = []
            for metric, unit in metrics:
                found = [r for r in mine if (r["way"], r["metric"], r["unit"]) ==
                         (way, metric, unit)]
                cells.append(_cell(found[0]) if found else "")
            out.append(f"| {way} | " + " | ".join(cells) + " |")
        out.append("")
    return "\n".join(out)


def _cell(row):
    text = text_of(row["value"])
    if row["goal"] is not None:
        text += f" (goal {text_of(row['goal'])}{'' if row['met'] else ': **missed**'})"
    return text


def load(path):
    return json.loads(path.read_text())

# SPDX-License-Identifier: Apache-2.0
"""What is owed to those that come and go, through a live sluiced, as the simulator's `tenant-*`
workloads have it: a light tenant at random times beside 1, 4 and 16 that saturate the GPU; two that
saturate beside more sleepers than fit, and beside sleepers of just over 20 ms; short launches with
short pauses; a minimum, a maximum, a group of which one member sleeps.

What somebody got is the number of launches that its program saw end, times what one takes when
several are queued and nobody else is there. What is owed is a share of what all of them got: what
hand-overs cost is nobody's. Beside it stands what sluiced charged each for; where others use the
processors, only that says something of shares.
"""
from gpu_bench.results import percentile
from gpu_bench.tenant import check, load, own_us, together

NAME = "lag"
TITLE = "owed to those that come and go"
BESIDE = (1, 4, 16)
LIGHT_US, LIGHT_EVERY_US = 50, 5000
SATURATING_US = 1000
# Launches that one which saturates has queued: on a GPU, and on the software GPU, where 16 with
# longer queues take ten seconds to end what they have queued.
QUEUED, QUEUED_SOFT = "queue:8", "queue:2"
# How many, microseconds of work and of sleep: on a GPU and, fewer, on the software GPU.
SLEEPERS = {"crowd": ((32, 900, 21000), (8, 900, 5250)),
            "naps": ((16, 2000, 20500), (8, 2000, 20500))}
THINK_US, PAUSE_US = 20, 10
MEMBER_US, MEMBER_PAUSE_US = 52, 450
MIN_PERCENT, MAX_PERCENT = 20, 25
# The most that a maximum lets through at once, of its share (kBurstNs in policies/parts).
BURST_MS = 5
BIN_MS, SECOND, TENTH = 10, 100, 10
# What is not looked at: lengths are learnt, credits are those of the measurement before.
SETTLING_BINS = 50
LEAST_S = 4
OF_OWED = 0.97


def ways(bench):
    return bench.those("slices", "mps-priority", "sluice", "sluice-slices", "sluice-shared")


class Team:
    """The tenants t0, t1, .., which all load what they need once, and what a unit of each takes."""

    def __init__(self, host, bench):
        self.host, self.bench = host, bench
        self.seconds = max(LEAST_S, 3 * bench.seconds) if bench.nvidia else 3 * bench.seconds
        self.queued = QUEUED if bench.nvidia else QUEUED_SOFT
        self.settling = min(SETTLING_BINS, int(self.seconds * 1000 / BIN_MS / 4))
        self.own = {}
        most = max(BESIDE) + 1
        if host.way.mediated:
            most = max([most] + [2 + self.sleepers(kind)[0] for kind in SLEEPERS])
        self.all = host.several(*(f"t{i}" for i in range(most)))
        self.loaded = []

    def sleepers(self, kind):
        return SLEEPERS[kind][not self.bench.nvidia]

    def load(self, key, us, tenants):
        """Launches of so long, as a queue of them runs."""
        us = self.bench.us(us)
        if us >= self.bench.us(SATURATING_US):
            size = self.bench.blocks["short"]
            program = f"work {max(1, int(us * size['heavy'] / size['heavy_us']))} {size['steps']}"
        else:
            chain = self.bench.chain
            program = f"work {max(1, int(us * chain['blocks_per_us']))} {chain['steps']}"
        load([(t, key, program) for t in tenants])
        self.loaded += [(t, key) for t in tenants]
        # The less of two: where others use the processors, one may be far too long.
        self.own[key] = min(own_us(tenants[0], key, self.queued) for _ in range(2))

    def run(self, *runs, times=1):
        """`runs`: lists of tenants, their program's key, its pattern. Of each tenant its answer,
        with what it got of the GPU in each bin, in microseconds."""
        flat = [(t, key, pattern) for tenants, key, pattern in runs for t in tenants]
        before, after = self.charged_ns(flat), []
        answers = together(flat, times * self.seconds, BIN_MS,
                           when_over=lambda: after.extend(self.charged_ns(flat)))
        bins = int(times * self.seconds * 1000 / BIN_MS)
        for answer, a, b in zip(answers, before, after):
            answer["charged_us"] = (b - a) / 1e3
        for answer, (_, key, _) in zip(answers, flat):
            ends = (answer.pop("ends", []) + [0] * bins)[:bins]
            answer["got_us"] = [round(n * self.own[key], 1) for n in ends[self.settling:]]
        return answers

    def charged_ns(self, runs):
        """Of each tenant, while others had work; nothing without Sluice."""
        if not self.host.sluiced:
            return []
        vgpus = self.host.sluiced.stats()["vgpus"]
        return [vgpus[t.name]["own_contended_gpu_ns"] for t, _, _ in runs]

    def end(self):
        self.bench.wrong += check(self.loaded)
        for tenant in self.all:
            self.host.end(tenant.name)


def run(host, bench):
    team = Team(host, bench)
    team.load("sat", SATURATING_US, team.all[:max(BESIDE) + 1])
    found = {"light": _light(team)}
    if host.way.mediated:
        for kind in SLEEPERS:
            bench.say(f"{NAME}: {host.name}: {kind}")
            found[kind] = _beside_sleepers(team, kind)
        bench.say(f"{NAME}: {host.name}: think, minimum, maximum, group")
        found["think"] = _think(team)
        found["minimum"] = _minimum(team)
        found["maximum"] = _maximum(team)
        found["group"] = _group(team)
    team.end()
    return [(host.name, {"own_us": team.own, **found})]


def _light(team):
    t = team.all
    team.load("light", LIGHT_US, t[:1])
    light = (t[:1], "light", f"poisson:{team.bench.us(LIGHT_EVERY_US)}:1")
    found = {"alone": team.run(light, times=2)}
    for n in BESIDE:
        team.bench.say(f"{NAME}: {team.host.name}: light beside {n}")
        # A turn of 5 ms is 1 % of what each of 16 has in 8 s.
        times = 4 if n > 8 and team.bench.nvidia else 2
        found[str(n)] = team.run(light, (t[1:n + 1], "sat", team.queued), times=times)
    return found


def _beside_sleepers(team, kind):
    count, work_us, sleep_us = team.sleepers(kind)
    asleep = team.all[2:2 + count]
    team.load(kind, work_us, asleep)
    alone = team.run((asleep[:1], kind, f"wait:{team.bench.us(sleep_us)}"))
    beside = team.run((team.all[:2], "sat", team.queued),
                      (asleep, kind, f"wait:{team.bench.us(sleep_us)}"))
    return {"alone": alone[0], "beside": beside, "sleep_us": team.bench.us(sleep_us)}


def _think(team):
    t = team.all
    team.load("think", THINK_US, t[:1])
    pause = f"wait:{team.bench.us(PAUSE_US)}"
    return team.run((t[:1], "think", pause), (t[1:2], "sat", team.queued))


def _minimum(team):
    host, t = team.host, team.all
    host.set("t0", min=MIN_PERCENT)
    host.set("t1", priority=1)
    answers = team.run((t[:2], "sat", team.queued))
    host.set("t0", min=0)
    host.set("t1", priority=0)
    return answers


def _maximum(team):
    host, t = team.host, team.all
    host.set("t0", max=MAX_PERCENT)
    alone = team.run((t[:1], "sat", team.queued))
    beside = team.run((t[:3], "sat", team.queued))
    host.set("t0", max=0)
    return {"alone": alone, "beside": beside}


def _group(team):
    host, t = team.host, team.all
    host.sluiced.ctl("group", "lag", "--weight", 100)
    for name in ("t0", "t1"):
        host.set(name, group="lag")
    team.load("member", MEMBER_US, t[1:2])
    answers = team.run((t[:1], "sat", team.queued),
                       (t[1:2], "member", f"wait:{team.bench.us(MEMBER_PAUSE_US)}"),
                       (t[2:3], "sat", team.queued))
    for name in ("t0", "t1"):
        host.set(name, group="")
    return answers


# ---- what it says ------------------------------------------------------------------------------
def over(a, b):
    """In a run so short that nobody's launch ended there is nothing to compare."""
    return a / b if b else 0.0


def level(got, saturating):
    """The equal share of `saturating` of those that got so much: nobody has more than that but who
    did not want more."""
    rest, count = sum(got), saturating
    asleep = sorted(got[saturating:])
    while asleep and asleep[-1] > rest / (count + len(asleep)):
        count += 1
        asleep.pop()
    return (rest - sum(asleep)) / count


def windows(answers, bins):
    """Of each tenant what it got in each window of so many bins."""
    rows = []
    for answer in answers:
        got, sums = answer["got_us"], []
        width = min(bins, len(got))
        total = sum(got[:width])
        for i in range(width, len(got) + 1):
            sums.append(total)
            if i < len(got):
                total += got[i] - got[i - width]
        rows.append(sums)
    return rows


def parts(answers):
    total = sum(sum(a["got_us"]) for a in answers)
    return [sum(a["got_us"]) / max(1, total) for a in answers]


def charged(answers):
    total = sum(a["charged_us"] for a in answers)
    return [a["charged_us"] / max(1, total) for a in answers]


def least_of_owed(answers, saturating, bins, launch_us):
    """Of those that saturate: the least that one got of what it was owed in any window of so many
    bins, but for one launch."""
    least = 1e9
    for got in zip(*windows(answers, bins)):
        owed = level(list(got), saturating)
        least = min(least, *((g + launch_us) / max(1, owed) for g in got[:saturating]))
    return least


def in_a_fluid(work_us, sleep_us, sleepers, saturating):
    """What a sleeper would get of a GPU that all share at once, the loop being closed."""
    low, high = 1e-6, 1.0
    for _ in range(60):
        x = (low + high) / 2
        each = work_us / (work_us / x + sleep_us)
        low, high = (x, high) if saturating * x + sleepers * each < 1 else (low, x)
    return work_us / (work_us / low + sleep_us)


def rows(measured, results):
    first = measured.get("slices") or next(iter(measured.values()))
    native = first["light"]["alone"][0]
    for way, m in measured.items():
        _light_rows(way, m, native, results)
        if "crowd" in m:
            for kind in SLEEPERS:
                _sleeper_rows(way, kind, m, results)
            _other_rows(way, m, results)


def _light_rows(way, m, native, results):
    more_us = {"sluice-shared": 60, "sluice-slices": 600}.get(way)
    alone = m["light"]["alone"][0]
    for n in map(str, BESIDE):
        name = f"light at random times beside {n}"
        light, *others = m["light"][n]
        for p in ("p50_us", "p99_us"):
            metric = p[:3].upper()
            goal = native[p] + more_us if more_us and p == "p99_us" else None
            results.add(name, way, f"alone {metric}", alone[p], "us", native[p])
            results.add(name, way, metric, light[p], "us", native[p], at_most=goal)
        got = [sum(o["got_us"]) for o in others]
        mean = sum(got) / len(got)
        results.add(name, way, "others off by", 100 * max(abs(over(g, mean) - 1) for g in got), "%",
                    at_most=1 if more_us else None)
        span_us = len(light["got_us"]) * BIN_MS * 1000
        results.add(name, way, "useful", (sum(got) + sum(light["got_us"])) / span_us, "")


def _sleeper_rows(way, kind, m, results):
    answers, sleep_us = m[kind]["beside"], m[kind]["sleep_us"]
    got, asleep, work_us = parts(answers), parts(answers)[2:], m["own_us"][kind]
    name = f"2 saturating, {len(asleep)} sleepers: {kind}"
    of_owed = over(min(got[:2]), level(got, 2))
    results.add(name, way, "saturating, of what is owed", of_owed, "", 1.0, at_least=OF_OWED)
    held = charged(answers)
    of_owed = over(min(held[:2]), level(held, 2))
    results.add(name, way, "charged, of what is owed", of_owed, "", 1.0)
    results.add(name, way, "in any second, but for a launch",
                least_of_owed(answers, 2, SECOND, m["own_us"]["sat"]), "", 1.0, at_least=OF_OWED)
    results.add(name, way, "over the largest of a sleeper", over(min(got[:2]), max(asleep)), "",
                1.0)
    span_us = len(answers[0]["got_us"]) * BIN_MS * 1000
    useful = sum(sum(a["got_us"]) for a in answers) / span_us
    fluid = in_a_fluid(work_us, sleep_us, len(asleep), 2)
    results.add(name, way, "sleepers, of a fluid GPU's", over(min(asleep) * useful, fluid), "",
                1.0)
    for p in ("p50_us", "p99_us"):
        worst = percentile([a[p] for a in answers[2:]], 100)
        results.add(name, way, f"sleepers' {p[:3].upper()}", worst, "us", m[kind]["alone"][p])
    results.add(name, way, "useful", useful, "")


def _other_rows(way, m, results):
    launch = m["own_us"]["sat"]
    got = parts(m["think"])
    name = "20 us of work, 10 us of pause"
    results.add(name, way, "used, of both", got[0], "", 0.5)
    results.add(name, way, "charged, of both", charged(m["think"])[0], "", 0.5,
                at_least=OF_OWED / 2)

    name = f"{MIN_PERCENT} % at least, below a higher priority"
    results.add(name, way, "part", parts(m["minimum"])[0], "", MIN_PERCENT / 100,
                at_least=OF_OWED * MIN_PERCENT / 100)
    results.add(name, way, "charged", charged(m["minimum"])[0], "", MIN_PERCENT / 100)
    least = min(windows(m["minimum"], SECOND)[0])
    width_us = min(SECOND, len(m["minimum"][0]["got_us"])) * BIN_MS * 1000
    results.add(name, way, "least of the GPU in a second", least / width_us, "",
                MIN_PERCENT / 100, at_least=(OF_OWED * MIN_PERCENT / 100) - launch / width_us)

    name = f"{MAX_PERCENT} % at most"
    for which, answers in m["maximum"].items():
        got = windows(answers, TENTH)[0]
        tenth_us = min(TENTH, len(answers[0]["got_us"])) * BIN_MS * 1000
        most = MAX_PERCENT / 100 * (1 + BURST_MS * 1000 / tenth_us) + launch / tenth_us
        results.add(name, way, f"most in 100 ms, {which}", max(got) / tenth_us, "",
                    MAX_PERCENT / 100, at_most=most)
        span_us = len(answers[0]["got_us"]) * BIN_MS * 1000
        results.add(name, way, f"part of the GPU, {which}", sum(answers[0]["got_us"]) / span_us,
                    "", MAX_PERCENT / 100)
        if len(answers) > 1:
            results.add(name, way, f"charged, {which}", charged(answers)[0], "",
                        MAX_PERCENT / 100)

    got = parts(m["group"])
    name = "a group that is owed half, one of two sleeps"
    results.add(name, way, "the group's part", got[0] + got[1], "", 0.5, at_least=OF_OWED / 2)
    held = charged(m["group"])
    results.add(name, way, "charged", held[0] + held[1], "", 0.5)
    results.add(name, way, "the sleeper's part", got[1], "")
    results.add(name, way, "the other's part", got[2], "", 0.5)

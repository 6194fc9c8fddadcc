# SPDX-License-Identifier: Apache-2.0
"""bench-tenant, led by a command a line (tests/bench/tenant/main.cc)."""
import json
import os
import select
import subprocess
import time

ANSWER_LIMIT_S = 120
# From the command until all begin.
LEAD_S = 0.05


class TenantError(Exception):
    pass


class Tenant:
    def __init__(self, name, program, env):
        self.name = name
        self.process = subprocess.Popen([program], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.buffer = b""
        self.device = None

    def ready(self):
        """Waits until it has a context."""
        if self.device is None:
            self.device = self.answer()["device"]
        return self

    def send(self, *words):
        self.ready()
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise TenantError(f"{self.name}: has ended: {self.last_words()}") from None

    def answer(self, limit=ANSWER_LIMIT_S):
        end = time.monotonic() + limit
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0, end - time.monotonic()))
            if not ready:
                raise TenantError(f"{self.name}: no answer within {limit:.0f} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise TenantError(f"{self.name}: ended: {self.last_words()}")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise TenantError(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, *words, limit=ANSWER_LIMIT_S):
        self.send(*words)
        return self.answer(limit)

    def last_words(self):
        self.process.kill()
        _, err = self.process.communicate()
        return err.decode(errors="replace")[-800:].strip()

    def end(self):
        """Lets it end by itself, and sees to it that it does."""
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def load(programs):
    """`programs`: a list of (tenant, key, "kind what value"); all at once. Seconds of each."""
    for tenant, key, program in programs:
        tenant.send("load", key, program)
    return [tenant.answer()["load_us"] / 1e6 for tenant, _, _ in programs]


def together(runs, seconds, bin_ms=None, when_over=lambda: None):
    """`runs`: a list of (tenant, key, pattern). They begin at one moment; their answers. With
    `bin_ms` these have "ends", how many units ended in each so many ms. `when_over` is called when
    their time is over: what they have queued ends later."""
    for tenant, _, _ in runs:
        tenant.ready()
    at = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(LEAD_S * 1e9)
    for tenant, key, pattern in runs:
        tenant.send("run", key, pattern, seconds, at, *([bin_ms] if bin_ms else []))
    time.sleep(max(0, at / 1e9 + seconds - time.clock_gettime(time.CLOCK_MONOTONIC)))
    when_over()
    return [tenant.answer() for tenant, _, _ in runs]


def alone(tenant, key, seconds, pattern="wait:0"):
    return together([(tenant, key, pattern)], seconds)[0]


def own_us(tenant, key, pattern):
    """What a launch takes on average when nobody else is there. Not of the first ones: meanwhile
    its length is learnt, and what it needs is made."""
    alone(tenant, key, 0.2, pattern)
    r = alone(tenant, key, 0.3, pattern)
    return r["took_us"] / max(1, r["launches"])


def check(programs, how="whole"):
    """Of each (tenant, key) what is wrong with its results, as text; empty if all are right."""
    for tenant, key in programs:
        tenant.send("check", key, how)
    answers = [tenant.answer() for tenant, _ in programs]
    return [f"{t.name}: {a['wrong']}" for (t, _), a in zip(programs, answers) if a["wrong"]]

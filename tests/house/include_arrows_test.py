#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces the include arrows of ARCHITECTURE.md: which folder may include which, and who may know
Asio, CUDA or the clock. Also that every include of our own is written from the root and exists.

    include_arrows_test.py ROOT            exit 0 if all arrows hold
    include_arrows_test.py --self-test     shows that a wrong include is found
"""
import pathlib
import re
import sys

# folder -> folders it may include (besides itself). The longest matching folder counts.
ARROWS = {
    "abi": [],
    "mediator/base": ["abi"],
    "mediator/base/process": ["abi", "=mediator/base"],
    "mediator/ring": ["abi", "mediator/base"],
    "policies": ["abi", "mediator/base"],
    "policies/accounting": ["abi", "mediator/base"],
    "policies/model": ["abi", "mediator/base", "=policies"],
    "policies/parts": ["abi", "mediator/base", "=policies"],
    "policies/papers": ["abi", "mediator/base", "=policies", "policies/parts",
                        "policies/accounting"],
    "policies/wfq": ["abi", "mediator/base", "=policies", "policies/parts"],
    "policies/sim": ["abi", "mediator/base", "=policies", "policies/parts",
                     "policies/model"],
    "policies/sim/files": ["abi", "mediator/base", "=policies", "policies/model",
                           "=policies/sim"],
    "policies/sim/workloads": ["abi", "mediator/base", "=policies", "=policies/sim"],
    "policies/sim/tool": ["abi", "mediator/base", "=policies", "policies/model", "policies/sim"],
    "kernels/cubin": ["abi", "mediator/base"],
    "kernels/ptx": ["abi", "mediator/base"],
    "kernels/passes/analysis": ["abi", "mediator/base", "kernels/ptx"],
    "kernels/passes/clone": ["abi", "mediator/base", "kernels/ptx", "kernels/passes/analysis"],
    "kernels/passes": ["abi", "mediator/base", "kernels/ptx", "kernels/passes/analysis",
                       "kernels/passes/clone", "kernels/passes/steps"],
    "kernels/passes/steps": ["abi", "mediator/base", "kernels/ptx", "kernels/passes/analysis",
                             "kernels/passes/clone"],
    # The interpreter, in the order in which its folders build on one another.
    "kernels/exec/memory": ["abi", "mediator/base", "kernels/ptx"],
    "kernels/exec/program": ["abi", "mediator/base", "kernels/ptx", "kernels/exec/memory"],
    "kernels/exec/block": ["abi", "mediator/base", "kernels/ptx", "kernels/exec/memory",
                           "kernels/exec/program"],
    "kernels/exec/checker": ["abi", "mediator/base", "kernels/ptx", "kernels/exec/memory",
                             "kernels/exec/program", "kernels/exec/block"],
    "kernels/exec/ops": ["abi", "mediator/base", "kernels/ptx", "kernels/exec/memory",
                         "kernels/exec/program", "kernels/exec/block", "kernels/exec/checker"],
    "kernels/exec/run": ["abi", "mediator/base", "kernels/ptx", "kernels/exec/memory",
                         "kernels/exec/program", "kernels/exec/block", "kernels/exec/checker"],
    "kernels/exec/decode": ["abi", "mediator/base", "kernels/ptx", "kernels/exec/memory",
                            "kernels/exec/program", "kernels/exec/block"],
    "kernels/tool": ["abi", "mediator/base", "kernels/ptx", "kernels/passes", "kernels/exec"],
    "kernels/suite": ["abi"],
    "kernels/suite/workloads": ["abi"],
    "kernels/suite/catalog": ["abi", "kernels/suite/workloads"],
    "kernels/suite/cases": ["abi", "kernels/suite/workloads", "kernels/suite/catalog"],
    "kernels/suite/programs": ["abi", "kernels/suite/workloads", "kernels/suite/catalog",
                               "kernels/suite/cases"],
    "mediator/gpu": ["abi", "mediator/base"],
    "mediator/softgpu": ["abi", "mediator/base", "kernels/cubin", "kernels/ptx", "kernels/exec"],
    "mediator/core": ["abi", "mediator/base", "mediator/ring", "policies",
                      "=mediator/core/sharing"],
    # sharing/ makes the strategy that the configuration asks for, and knows it by strategy.h only.
    "mediator/core/sharing": ["abi", "mediator/base", "policies", "=mediator/core",
                              "mediator/core/sharing/strategies"],
    "mediator/core/sharing/strategies": ["abi", "mediator/base", "policies", "=mediator/core",
                                         "=mediator/core/sharing"],
    "mediator/io": ["abi", "mediator/base", "mediator/ring", "policies", "mediator/core"],
    "mediator/spawner": ["abi", "mediator/base", "mediator/core", "mediator/gpu"],
    # The worker, in the order in which its folders build on one another.
    "mediator/worker/process": ["abi", "mediator/base"],
    "mediator/worker/witness": ["abi", "mediator/base", "mediator/core", "mediator/gpu",
                                "=mediator/worker"],
    "mediator/worker/streams": ["abi", "mediator/base", "policies", "mediator/core", "mediator/gpu",
                                "=mediator/worker"],
    "mediator/worker/launch": ["abi", "mediator/base", "mediator/ring", "policies", "mediator/core",
                               "mediator/gpu", "=mediator/worker", "mediator/worker/streams"],
    "mediator/worker/memory": ["abi", "mediator/base", "mediator/core", "mediator/gpu",
                               "=mediator/worker", "mediator/worker/launch"],
    "mediator/worker/session": ["abi", "mediator/base", "mediator/ring", "policies",
                                "mediator/core", "mediator/gpu", "mediator/io", "=mediator/worker",
                                "mediator/worker/process", "mediator/worker/streams",
                                "mediator/worker/launch", "mediator/worker/memory"],
    "mediator/worker/modules": ["abi", "mediator/base", "kernels/cubin", "mediator/core",
                                "mediator/gpu", "=mediator/worker", "mediator/worker/launch",
                                "mediator/worker/session", "mediator/worker/calls",
                        "mediator/worker/witness"],
    "mediator/worker/calls": ["abi", "mediator/base", "mediator/ring", "mediator/core",
                              "mediator/gpu", "=mediator/worker", "mediator/worker/streams",
                              "mediator/worker/launch", "mediator/worker/session",
                              "mediator/worker/modules"],
    "mediator/worker": ["abi", "mediator/base", "mediator/ring", "mediator/core", "mediator/gpu",
                        "mediator/io", "policies", "mediator/worker/process",
                        "mediator/worker/session", "mediator/worker/calls",
                        "mediator/worker/witness"],
    "mediator/daemon": ["abi", "mediator/base", "mediator/ring", "policies", "mediator/core",
                        "mediator/gpu", "mediator/io"],
    "mediator/cli": ["abi", "mediator/base", "mediator/core", "mediator/io", "policies",
                     "mediator/libvirt/api"],
    # sluicectl changes domains; the hook, which libvirt runs, calls sluiced as sluicectl does.
    "mediator/libvirt/api": ["abi", "mediator/base", "mediator/core"],
    "mediator/libvirt": ["abi", "mediator/base", "mediator/core", "mediator/cli",
                         "mediator/libvirt/api"],
    "guest-agent/transport": ["abi", "mediator/base", "mediator/ring"],
    # Graphs know only the public driver API and what driver.h asks for: others can use them too.
    "guest-agent/graphs": ["abi", "mediator/base"],
    # The guest's libcuda, in the order in which its folders build on one another.
    "guest-agent/shim/session": ["abi", "mediator/base", "mediator/ring", "guest-agent/transport"],
    "guest-agent/shim/state": ["abi", "mediator/base", "guest-agent/shim/session"],
    "guest-agent/shim/memory": ["abi", "mediator/base", "guest-agent/graphs",
                                "guest-agent/shim/session", "guest-agent/shim/state"],
    "guest-agent/shim/modules": ["abi", "mediator/base", "kernels/cubin", "kernels/ptx",
                                 "kernels/passes", "guest-agent/shim/session",
                                 "guest-agent/shim/state",
                                 "guest-agent/shim/memory"],
    "guest-agent/shim/calls": ["abi", "mediator/base", "guest-agent/graphs",
                               "guest-agent/shim/session", "guest-agent/shim/state",
                               "guest-agent/shim/memory", "guest-agent/shim/modules"],
    "guest-agent/cudart": ["abi"],
    "guest-agent/nvml": ["abi"],
    "guest-agent/jit": ["abi", "mediator/base", "kernels/cubin", "kernels/ptx",
                        "=guest-agent/shim/session"],
    "guest-agent/agent": ["abi", "mediator/base", "mediator/ring", "guest-agent/transport"],
    "tests": None,  # tests may look at everything
}
MAY_KNOW_ASIO = ("mediator/io", "mediator/worker", "mediator/daemon", "mediator/cli", "tests")
# Pure code: `now` is an argument, so that it runs in virtual time too.
NO_CLOCK = ("policies", "kernels/ptx", "kernels/passes", "kernels/exec", "mediator/core")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def within(folder, allowed):
    """Whether `folder` is one of `allowed` or below one; "=F" is F without what is below."""
    return any(folder == a.lstrip("=") or folder.startswith(a + "/") for a in allowed)


def folder_of(path):
    best = None
    for f in ARROWS:
        if (path == f or path.startswith(f + "/")) and (best is None or len(f) > len(best)):
            best = f
    return best


def problems_in(path, text, exists):
    """Yields (line, message) for one file; `exists(p)` tells whether a file is in the tree."""
    me = folder_of(path)
    if me is None:
        yield 0, "is in no folder of the table in include_arrows_test.py"
        return
    for n, line in enumerate(text.splitlines(), 1):
        m = INCLUDE.match(line)
        if not m:
            continue
        kind, what = m.groups()
        if what.startswith("boost/asio") and not me.startswith(MAY_KNOW_ASIO):
            yield n, f"{me} must not know Asio"
        if (what in ("cuda.h", "cuda_runtime.h")
                and me not in ("abi", "kernels/suite/programs", "tests")):
            yield n, f"{me} must use abi/cuda_driver.h, not the toolkit"
        if within(me, NO_CLOCK) and what in ("mediator/base/clock.h", "chrono", "time.h", "ctime"):
            yield n, f"{me} is pure: the time is an argument"
        if kind == "<":
            continue
        if what.endswith(".ptx.h"):
            continue  # made by the build from the checked-in PTX
        if not exists(what):
            yield n, f'"{what}" is not a path from the root'
            continue
        target = folder_of(what)
        allowed = ARROWS[me]
        if allowed is not None and target != me and not within(target, allowed):
            yield n, f"{me} must not include {target} ({what})"


def check(root):
    root = pathlib.Path(root)
    found, files = [], 0
    top = ("abi", "mediator", "policies", "kernels", "guest-agent", "tests")
    for t in top:
        for p in sorted((root / t).rglob("*")):
            if p.suffix not in (".h", ".cc", ".c", ".inc", ".cpp"):
                continue
            files += 1
            rel = p.relative_to(root).as_posix()
            for n, message in problems_in(rel, p.read_text(errors="replace"),
                                          lambda q: (root / q).is_file()):
                found.append(f"{rel}:{n}: {message}")
    return files, found


def self_test():
    def ok(path, text):
        return list(problems_in(path, text, lambda p: True))
    assert not ok("policies/wfq/wfq.cc", '#include "policies/policy.h"\n#include "abi/stub.h"')
    assert ok("policies/wfq/wfq.cc", '#include "mediator/core/scheduler.h"')
    assert ok("policies/wfq/wfq.cc", "#include <boost/asio.hpp>")
    assert ok("policies/wfq/wfq.cc", "#include <chrono>")
    assert ok("mediator/base/x.h", '#include "mediator/core/y.h"')
    assert ok("nowhere/x.h", "")
    assert list(problems_in("abi/a.h", '#include "stub.h"', lambda p: False))


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    files, found = check(sys.argv[1])
    print("\n".join(found))
    print(f"{files} files, {len(found)} wrong includes")
    return 1 if found or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

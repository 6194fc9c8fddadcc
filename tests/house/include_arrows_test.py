#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces the include arrows of ARCHITECTURE.md: which folder may include which, and who may know
Asio, CUDA or the clock. Also that every include of our own is written from the root and exists, and
that something needs each arrow.

    include_arrows_test.py ROOT            exit 0 if all arrows hold
    include_arrows_test.py --self-test     shows that a wrong include is found
"""
import pathlib
import re
import sys

# folder -> folders that it includes, besides itself and COMMON. A file belongs to the longest
# folder that matches, so a folder with a row is no part of the one that it lies in.
ARROWS = {
    "abi": [],
    "mediator/base": [],
    "mediator/base/process": [],
    "mediator/ring": [],
    "policies": [],
    "policies/accounting": [],
    "policies/model": [],
    "policies/parts": ["policies"],
    "policies/papers": ["policies", "policies/accounting", "policies/parts"],
    "policies/wfq": ["policies", "policies/parts"],
    "policies/sim": ["policies", "policies/model", "policies/parts"],
    "policies/sim/files": ["policies/sim"],
    "policies/sim/workloads": ["policies/sim"],
    "policies/sim/tool": ["policies/sim", "policies/sim/files"],
    "kernels/cubin": [],
    "kernels/ptx": [],
    "kernels/passes/analysis": ["kernels/ptx"],
    "kernels/passes/clone": ["kernels/ptx", "kernels/passes/analysis"],
    "kernels/passes": ["kernels/ptx", "kernels/passes/analysis", "kernels/passes/clone"],
    "kernels/passes/steps": ["kernels/ptx", "kernels/passes/analysis", "kernels/passes/clone"],
    # The interpreter, in the order in which its folders build on one another.
    "kernels/exec/memory": [],
    "kernels/exec/program": ["kernels/exec/memory"],
    "kernels/exec/block": ["kernels/exec/memory", "kernels/exec/program"],
    "kernels/exec/checker": ["kernels/exec/memory", "kernels/exec/program", "kernels/exec/block"],
    "kernels/exec/ops": ["kernels/exec/memory", "kernels/exec/program", "kernels/exec/block",
                         "kernels/exec/checker"],
    "kernels/exec/run": ["kernels/exec/memory", "kernels/exec/program", "kernels/exec/block",
                         "kernels/exec/checker"],
    "kernels/exec/decode": ["kernels/ptx", "kernels/exec/memory", "kernels/exec/program",
                            "kernels/exec/block"],
    "kernels/tool": ["kernels/ptx", "kernels/passes", "kernels/exec/block"],
    "kernels/suite": [],
    "kernels/suite/workloads": [],
    "kernels/suite/catalog": [],
    "kernels/suite/cases": ["kernels/suite/workloads", "kernels/suite/catalog"],
    "kernels/suite/programs": ["kernels/suite/workloads", "kernels/suite/catalog"],
    "mediator/gpu": ["mediator/base/process"],
    "mediator/softgpu": ["mediator/base/process", "kernels/cubin", "kernels/ptx",
                         "kernels/exec/memory", "kernels/exec/program", "kernels/exec/block",
                         "kernels/exec/checker"],
    "mediator/core": ["policies", "policies/accounting", "policies/model", "mediator/core/sharing"],
    # sharing/ makes the strategy that the configuration asks for, and knows it by strategy.h only.
    "mediator/core/sharing": ["policies", "policies/accounting", "mediator/core",
                              "mediator/core/sharing/strategies"],
    "mediator/core/sharing/strategies": ["policies/accounting", "policies/parts",
                                         "mediator/core/sharing"],
    "mediator/io": ["mediator/base/process", "mediator/ring", "mediator/core"],
    "mediator/spawner": ["mediator/gpu", "mediator/core"],
    # The worker, in the order in which its folders build on one another.
    "mediator/worker/process": [],
    "mediator/worker/witness": ["mediator/gpu", "mediator/core", "mediator/worker"],
    "mediator/worker/streams": [],
    "mediator/worker/launch": ["mediator/gpu", "mediator/core", "mediator/worker/streams",
                               "mediator/worker"],
    "mediator/worker/memory": ["mediator/gpu", "mediator/core", "mediator/worker/launch",
                               "mediator/worker"],
    "mediator/worker/session": ["mediator/ring", "mediator/gpu", "mediator/core",
                                "mediator/worker/process", "mediator/worker/streams",
                                "mediator/worker/launch", "mediator/worker/memory",
                                "mediator/worker"],
    "mediator/worker/modules": ["kernels/cubin", "mediator/worker/launch",
                                "mediator/worker/session", "mediator/worker"],
    "mediator/worker/calls": ["mediator/worker/session", "mediator/worker/modules",
                              "mediator/worker"],
    "mediator/worker": ["mediator/worker/process", "mediator/worker/witness",
                        "mediator/worker/session", "mediator/worker/calls"],
    "mediator/daemon": ["mediator/base/process", "mediator/ring", "policies", "policies/accounting",
                        "mediator/gpu", "mediator/core", "mediator/io"],
    # sluicectl changes domains; the hook, which libvirt runs, calls sluiced as sluicectl does.
    "mediator/cli": ["mediator/core", "mediator/libvirt/api"],
    "mediator/libvirt/api": ["mediator/core"],
    "mediator/libvirt": ["mediator/core", "mediator/cli", "mediator/libvirt/api"],
    "guest-agent/transport": ["mediator/ring"],
    # Graphs know only the public driver API and what driver.h asks for: others can use them too.
    "guest-agent/graphs": [],
    # The guest's libcuda, in the order in which its folders build on one another.
    "guest-agent/shim/session": ["mediator/ring", "guest-agent/transport"],
    "guest-agent/shim/state": ["guest-agent/shim/session"],
    "guest-agent/shim/memory": ["guest-agent/graphs", "guest-agent/shim/session",
                                "guest-agent/shim/state"],
    "guest-agent/shim/modules": ["kernels/cubin", "kernels/ptx", "kernels/passes/analysis",
                                 "kernels/passes", "guest-agent/shim/session",
                                 "guest-agent/shim/state", "guest-agent/shim/memory"],
    "guest-agent/shim/calls": ["mediator/base/process", "guest-agent/graphs",
                               "guest-agent/shim/state", "guest-agent/shim/memory",
                               "guest-agent/shim/modules"],
    "guest-agent/cudart": [],
    "guest-agent/nvml": [],
    "guest-agent/jit": ["kernels/cubin", "kernels/ptx", "guest-agent/shim/session"],
    "guest-agent/agent": ["mediator/ring"],
    "tests": None,  # tests may look at everything
}
# Open to every folder but those that are to be usable by themselves.
COMMON = ("abi", "mediator/base")
ALONE = {"abi": (), "mediator/base": ("abi",), "kernels/suite": ("abi",),
         "kernels/suite/workloads": ("abi",), "kernels/suite/catalog": ("abi",),
         "kernels/suite/cases": ("abi",), "kernels/suite/programs": ("abi",),
         "guest-agent/cudart": ("abi",), "guest-agent/nvml": ("abi",)}
MAY_KNOW_ASIO = ("mediator/io", "mediator/daemon", "tests")
# Pure code: `now` is an argument, so that it runs in virtual time too.
NO_CLOCK = ("policies", "kernels/ptx", "kernels/passes", "kernels/exec", "mediator/core")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def within(folder, folders):
    return any(folder == f or folder.startswith(f + "/") for f in folders)


def folder_of(path):
    best = None
    for f in ARROWS:
        if (path == f or path.startswith(f + "/")) and (best is None or len(f) > len(best)):
            best = f
    return best


def problems_in(path, text, exists, used):
    """Yields (line, message) for one file; `exists(p)` tells whether a file is in the tree. Adds to
    `used` each arrow that the file needs."""
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
        used.add((me, target))
        if ARROWS[me] is not None and target not in (me, *ARROWS[me], *ALONE.get(me, COMMON)):
            yield n, f"{me} must not include {target} ({what})"


def unused_arrows(used):
    return [f"{__file__}: {me} includes nothing of {target}: take the arrow out"
            for me, allowed in ARROWS.items() for target in allowed or ()
            if (me, target) not in used]


def check(root):
    root = pathlib.Path(root)
    found, files, used = [], 0, set()
    top = ("abi", "mediator", "policies", "kernels", "guest-agent", "tests")
    for t in top:
        for p in sorted((root / t).rglob("*")):
            if p.suffix not in (".h", ".cc", ".c", ".inc", ".cpp"):
                continue
            files += 1
            rel = p.relative_to(root).as_posix()
            for n, message in problems_in(rel, p.read_text(errors="replace"),
                                          lambda q: (root / q).is_file(), used):
                found.append(f"{rel}:{n}: {message}")
    found += unused_arrows(used)
    return files, found


def self_test():
    def ok(path, text):
        return list(problems_in(path, text, lambda p: True, set()))
    assert not ok("policies/wfq/wfq.cc", '#include "policies/policy.h"\n#include "abi/stub.h"')
    assert ok("policies/wfq/wfq.cc", '#include "mediator/core/scheduler.h"')
    assert ok("policies/wfq/wfq.cc", "#include <boost/asio.hpp>")
    assert ok("policies/wfq/wfq.cc", "#include <chrono>")
    assert ok("mediator/base/x.h", '#include "mediator/core/y.h"')
    assert ok("nowhere/x.h", "")
    assert list(problems_in("abi/a.h", '#include "stub.h"', lambda p: False, set()))
    every = {(me, target) for me, allowed in ARROWS.items() for target in allowed or ()}
    assert not unused_arrows(every)
    assert len(unused_arrows(every - {("policies/wfq", "policies/parts")})) == 1


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

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each function that the guest's libraries implement is called by a test, also wrongly.

    api_coverage_test.py ROOT            compares with api_not_covered.txt
    api_coverage_test.py ROOT --list     prints what that file should hold

Functions come from the tables: of the driver API in abi/, as far as guest-agent defines them; of
the runtime API in guest-agent/cudart/functions/. A case is a call in a test that runs on the
software GPU or through the channel. An error path is a statement with the call and a CUDA error, or
REFUSED, which takes any error.

api_not_covered.txt has what is left, a line each: `case NAME` or `error NAME`. It can only shrink:
a line that is not true any more fails the test, as does a function that is neither covered nor
listed, and a list that is longer than its first line says.
"""
import pathlib
import re
import sys

LIST = "tests/house/api_not_covered.txt"
DRIVER_TABLES = ("cuda_driver_functions.h", "cuda_graph_functions.h", "cuda_other_functions.h",
                 "cuda_texture.h")
DRIVER_TESTS = ("tests/system/programs/*.cc", "tests/conformance/driver/*.cc",
                "tests/conformance/graphs/*.cc", "tests/conformance/virtual_memory/*.cc",
                "tests/unit/shim/*.cc", "tests/unit/softgpu/*.cc")
RUNTIME_TESTS = ("tests/cudart/**/*.cc", "tests/cudart/**/*.cu")
ERROR = re.compile(r"CUDA_ERROR_\w+|cudaError[A-Z]\w+|\bREFUSED\b"
                   r"|\bk(?:Invalid|BadHandle|Already)\b")


def read(root, patterns):
    return [p.read_text() for pattern in patterns for p in sorted(root.glob(pattern))]


def driver_functions(root):
    """{name as programs write it: every symbol of it}"""
    defined = "\n".join(read(root, ("guest-agent/shim/**/*.cc", "guest-agent/graphs/**/*.cc")))
    names = {}
    for table in DRIVER_TABLES:
        for symbol, name in re.findall(r"\bX\((\w+), (\w+), \d+, *\\?\s*\(",
                                       (root / "abi" / table).read_text()):
            if re.search(rf"^CUresult {symbol}\(", defined, re.M):
                names.setdefault(name, set()).add(symbol)
    return names


def runtime_functions(root):
    names = {}
    for text in read(root, ("guest-agent/cudart/functions/*.h",)):
        for name in re.findall(r"\b[FSDTH]\((\w+),", text):
            names.setdefault(name, set()).add(name)
    return names


def uncovered(functions, sources):
    """Lines of the list for `functions`, with the statements of `sources`."""
    called, refused = set(), set()
    for text in sources:
        text = re.sub(r"//[^\n]*", "", text)
        for statement in re.split(r"[;{}]", text):
            calls = set(re.findall(r"\b(cu\w+|__cuda\w+)\s*\(", statement))
            called |= calls
            if ERROR.search(statement):
                refused |= calls
    for name, symbols in sorted(functions.items()):
        forms = {name} | symbols | {s + end for s in symbols | {name} for end in ("_ptsz", "_ptds")}
        if not forms & called:
            yield f"case {name}"
        if not forms & refused:
            yield f"error {name}"


def main():
    root = pathlib.Path(sys.argv[1])
    driver, runtime = driver_functions(root), runtime_functions(root)
    if len(driver) < 300 or len(runtime) < 200:
        sys.exit(f"the tables are read wrongly: {len(driver)} and {len(runtime)} functions")
    left = [*uncovered(driver, read(root, DRIVER_TESTS)),
            *uncovered(runtime, read(root, RUNTIME_TESTS))]
    if "--list" in sys.argv:
        print(f"# At most {len(left)} lines; see api_coverage_test.py.")
        print("\n".join(left))
        return
    head, *listed = (root / LIST).read_text().splitlines()
    most = int(re.search(r"At most (\d+)", head)[1])
    wrong = [f"covered by now, to be taken out: {line}" for line in sorted(set(listed) - set(left))]
    wrong += [f"neither covered nor listed: {line}" for line in sorted(set(left) - set(listed))]
    if len(listed) > most:
        wrong.append(f"{len(listed)} lines, where at most {most} are allowed")
    elif len(listed) < most:
        wrong.append(f"{len(listed)} lines: the first line has to say so")
    print("\n".join(wrong) or f"{len(driver)} driver and {len(runtime)} runtime functions, "
          f"{sum(line.startswith('case') for line in left)} without a case, "
          f"{sum(line.startswith('error') for line in left)} without an error path")
    sys.exit(1 if wrong else 0)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No line exceeds 100 columns, and C++ is as clang-format leaves it.

usage: format_test.py SOURCE_ROOT [--update]

Files that did not comply when this check was made are in format_exempt.txt, a line each: `columns
PATH` or `format PATH`. The list only shrinks: a file on it that complies is reported as well, and
--update takes such files off; nothing puts a file on. Rows of Markdown tables, which cannot be
wrapped, may be longer; so may a line that is one unbreakable word, such as a link. clang-format is
asked where its release is the one of Debian 12, as others format otherwise; else it is not asked.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

COLUMNS = 100
RELEASE = "14"
FORMATTED = {".cc", ".h", ".c", ".cu", ".cuh"}
ENDINGS = FORMATTED | {".md", ".inc", ".py", ".sh", ".build", ".toml", ".map", ".8", ".1"}
PROCESSES = 2  # of clang-format; each takes as long to start as three files


def sources(root):
    """What is built is not looked into: it has more files than the rest."""
    for top in root.iterdir():
        first = top.name
        if first == ".git" or first.startswith("build") or first in ("out", "demo-out"):
            continue
        for path in top.rglob("*") if top.is_dir() else (top,):
            if (path.suffix in ENDINGS or (first == "scripts" and not path.suffix)) \
                    and path.is_file():
                yield str(path.relative_to(root))


def long_lines(root, name):
    for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
        if len(line) <= COLUMNS or (name.endswith(".md") and line.lstrip().startswith("|")):
            continue
        if len(line.split()[-1]) <= COLUMNS - 8 or len(line.split()) > 2:
            yield number


def unformatted(root, names):
    """Those of `names` that clang-format would change."""
    def ask(batch):
        done = subprocess.run(["clang-format", "--dry-run", *batch], cwd=root, text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode != 0:
            sys.exit(f"clang-format failed:\n{done.stderr[-2000:]}")
        complaint = re.compile(r"^(\S+?):\d+:\d+: (?:warning|error)", re.M)
        return {m.group(1) for m in complaint.finditer(done.stderr)}
    # Files of a folder, which are alike, are spread over all.
    shares = [names[k::PROCESSES] for k in range(PROCESSES)]
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        return set().union(*pool.map(ask, shares))


def has_clang_format():
    if not shutil.which("clang-format"):
        return False
    text = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
    return re.search(r"version (\d+)", text).group(1) == RELEASE


def main():
    root = pathlib.Path(sys.argv[1])
    names = sorted(sources(root))
    exempt_file = root / "tests/house/format_exempt.txt"
    exempt = set(exempt_file.read_text().splitlines())
    found = {}
    for name in names:
        lines = list(long_lines(root, name))
        if lines:
            found[f"columns {name}"] = \
                f"{name}:{lines[0]}: {len(lines)} lines of more than {COLUMNS} columns"
    asked = has_clang_format()
    if asked:
        for name in unformatted(root, [n for n in names if pathlib.Path(n).suffix in FORMATTED]):
            found[f"format {name}"] = f"{name}: not as clang-format leaves it"
    else:
        print(f"clang-format {RELEASE} is not installed: only columns are checked")
    stale = {e for e in exempt if e not in found and (asked or e.startswith("columns "))}
    if "--update" in sys.argv:
        exempt -= stale
        exempt_file.write_text("".join(f"{e}\n" for e in sorted(exempt)))
        stale = set()
    problems = [found[key] for key in sorted(set(found) - exempt)]
    problems += [f"{e.split(' ', 1)[1]} complies ({e.split()[0]}): take it off with "
                 "tests/house/format_test.py . --update" for e in sorted(stale)]
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

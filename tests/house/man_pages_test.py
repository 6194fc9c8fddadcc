#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A manual page and the program's --help name the same commands and options.

    man_pages_test.py [--keys FILE PAGE] PROGRAM PAGE [PROGRAM PAGE ...]

Options of a program's commands (`PROGRAM COMMAND --help`) count as the program's. With --keys, the
keys of a configuration file that has them all, some as comments, and the page's section
CONFIGURATION name the same ones too, table by table.
"""
import re
import subprocess
import sys

LONG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
failures = []


def help_of(*command):
    p = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    if p.returncode != 0 or "--help" not in p.stdout:
        sys.exit(f"{' '.join(command)} --help: status {p.returncode}, {p.stdout + p.stderr!r}")
    return p.stdout


def commands_of(text):
    """The names under "Subcommands:" (CLI11)."""
    part = re.search(r"^(?:Subcommands|SUBCOMMANDS):\n((?:[ \t]+.*\n?|\n)*)", text, re.M)
    return re.findall(r"^  ([a-z][a-z-]*)", part[1], re.M) if part else []


def documented(page):
    """Options that stand at the head of a paragraph under OPTIONS: those are explained, not only
    mentioned."""
    text = open(page).read().replace(r"\-", "-")
    options = re.search(r"^\.SH OPTIONS\n(.*?)(?=^\.SH )", text, re.M | re.S)
    if not options:
        sys.exit(f"{page}: no section OPTIONS")
    heads = re.findall(r"^\.TP\n(\.\w+ .*)$", options[1], re.M)
    return {o for head in heads for o in LONG.findall(head)}


def commands_explained(page):
    """Those at the head of a paragraph under COMMANDS or, without that, under DESCRIPTION."""
    text = open(page).read().replace(r"\-", "-")
    part = re.search(r"^\.SH COMMANDS\n(.*?)(?=^\.SH )", text, re.M | re.S) or \
        re.search(r"^\.SH DESCRIPTION\n(.*?)(?=^\.SH )", text, re.M | re.S)
    return set(re.findall(r"^\.TP\n\.BI? ([a-z][a-z-]*)", part[1], re.M))


def keys_of(sample):
    table, keys = "", set()
    for line in open(sample):
        if head := re.match(r"\[(\w+)\]", line):
            table = head[1]
        elif key := re.match(r"#?(\w+) = ", line):
            keys.add((table, key[1]))
    return keys


def keys_explained(page):
    text = open(page).read().replace(r"\-", "-")
    part = re.search(r"^\.SH CONFIGURATION\n(.*?)(?=^\.SH )", text, re.M | re.S)
    if not part:
        sys.exit(f"{page}: no section CONFIGURATION")
    keys = set()
    for section in re.split(r"^\.SS ", part[1], flags=re.M)[1:]:
        table = re.match(r"\[(\w+)\]", section)
        for head in re.findall(r"^\.TP\n\.BR? (.*)$", section, re.M):
            keys |= {(table[1] if table else "", key) for key in re.findall(r"\w+", head)}
    return keys


arguments = sys.argv[1:]
if arguments[:1] == ["--keys"]:
    sample, page = arguments[1:3]
    del arguments[:3]
    in_sample, in_page = keys_of(sample), keys_explained(page)
    if len(in_sample) < 10:
        failures.append(f"{sample}: only {sorted(in_sample)}")
    for table, key in sorted(in_sample - in_page):
        failures.append(f"{page}: says nothing of [{table}] {key}")
    for table, key in sorted(in_page - in_sample):
        failures.append(f"{page}: [{table}] {key} is not in {sample}")
pairs = list(zip(arguments[0::2], arguments[1::2]))
if not pairs:
    sys.exit(__doc__)
for program, page in pairs:
    text = help_of(program)
    in_help = set(LONG.findall(text))
    commands = set(commands_of(text))
    for command in commands:
        in_help |= set(LONG.findall(help_of(program, command)))
    if commands:
        for command in sorted(commands ^ commands_explained(page)):
            where = "says nothing of" if command in commands else "--help says nothing of"
            failures.append(f"{page}: {where} the command {command}")
    in_page = documented(page)
    if len(in_help) < 3:
        failures.append(f"{program}: only {sorted(in_help)} in --help")
    for option in sorted(in_help - in_page):
        failures.append(f"{page}: says nothing of {option}")
    for option in sorted(in_page - in_help):
        failures.append(f"{page}: {option} is not in --help")

print("\n".join(failures) if failures else f"{len(pairs)} pages agree with --help")
sys.exit(1 if failures else 0)

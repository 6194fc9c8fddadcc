#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a C++ header that holds a text file as a zero-terminated constant.

usage: embed_text.py INPUT OUTPUT CONSTANT
"""
import sys


def main():
    source, target, constant = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    lines = []
    for line in text.splitlines(keepends=True):
        escaped = line.replace("\\", "\\\\").replace('"', '\\"')
        escaped = escaped.replace("\t", "\\t").replace("\n", "\\n")
        lines.append(f'    "{escaped}"')
    body = "\n".join(lines)
    with open(target, "w", encoding="utf-8") as file:
        file.write("// Made by kernels/suite/embed_text.py from the PTX file of the same name.\n"
                   "#pragma once\n\n"
                   "namespace sluice::suite {\n\n"
                   f"inline constexpr char {constant}[] =\n{body};\n\n"
                   "}  // namespace sluice::suite\n")


if __name__ == "__main__":
    main()

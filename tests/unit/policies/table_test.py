#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every registered policy has a row in the guide for writers of policies, and every row a policy.
Every rule of wfq, a header in policies/wfq/, has a test of its own in tests/unit/policies/wfq/.

    table_test.py SLUICE_SIM SOURCE_ROOT
"""
import json
import pathlib
import re
import subprocess
import sys


def rows_of(guide):
    """name -> summary, of the table under '## The policies'."""
    section = guide.split("## The policies", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|", section, re.M))


def rules_without_test(root):
    rules = [p.relative_to(root / "policies/wfq").with_suffix("").as_posix()
             for p in (root / "policies/wfq").rglob("*.h") if p.name != "forms.h"]
    listed = (root / "tests/unit/policies/meson.build").read_text()
    return [f"policies/wfq/{rule}.h: '{rule}' is not in tests/unit/policies/meson.build"
            for rule in sorted(rules) if f"'{rule}'" not in listed]


def main():
    sim, root = sys.argv[1], pathlib.Path(sys.argv[2])
    listed = json.loads(subprocess.run([sim, "--list", "--json"], check=True, capture_output=True,
                                       text=True).stdout)
    registered = {p["name"]: p["summary"] for p in listed["policies"]}
    documented = rows_of((root / "docs/internals/policy-writers-guide.md").read_text())
    wrong = [f"{name}: registered as '{registered.get(name)}', documented as "
             f"'{documented.get(name)}'" for name in sorted(registered | documented)
             if registered.get(name) != documented.get(name)] + rules_without_test(root)
    print("\n".join(wrong))
    return 1 if wrong or not registered else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sluicectl says to mistakes: what was wrong, and what to do. No sluiced runs.

    command_line_test.py SLUICECTL [unittest's arguments]
"""
import subprocess
import sys
import unittest

SLUICECTL = sys.argv.pop(1)


class Mistakes(unittest.TestCase):
    def test_each_is_named(self):
        for words, *texts in (
                ("", "A subcommand is required", "--help"),
                ("nonsense", "no command or option 'nonsense'", "--help"),
                ("--nonsense", "no command or option '--nonsense'", "--help"),
                ("--json nonsense list-all", "no command or option 'nonsense'"),
                ("set", "name is required"),
                ("set a --weight", "--weight"),
                ("set a --weight x", "--weight: Value x not in range 1 to 10000"),
                ("set a --weight 0", "--weight: Value 0 not in range 1 to 10000"),
                ("list --nonsense", "--nonsense"),
                ("create", "name or --domain-xml is required"),
                ("--socket /nonexistent/a list", "/nonexistent/a", "is sluiced running?")):
            with self.subTest(words):
                p = subprocess.run([SLUICECTL, *words.split()], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertNotEqual(p.returncode, 0)
                self.assertEqual(p.stdout, "")
                for text in texts:
                    self.assertIn(text, p.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

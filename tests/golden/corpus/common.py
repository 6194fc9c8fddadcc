# SPDX-License-Identifier: Apache-2.0
"""What the make_*.py scripts share."""

import os
import pathlib
import re
import sys
import traceback

OUT = pathlib.Path(os.environ.get("SLUICE_DUMP_TO", "."))
_count = 0


def save(name, text):
    """Writes one PTX text; names are only for people, so they are made safe and numbered."""
    global _count
    _count += 1
    if isinstance(text, bytes):
        text = text.rstrip(b"\0").decode("utf-8", "replace")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{_count:04d}-{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:60]}.ptx").write_text(text,
            encoding="utf-8")


def attempt(what, function, *arguments):
    """Runs one maker; a framework's refusal of one kernel must not cost the others."""
    try:
        return function(*arguments)
    except BaseException:  # the frameworks raise their own kinds, some of them not Exceptions
        print(f"--- {what} failed:\n{traceback.format_exc(limit=-3)}", file=sys.stderr, flush=True)
        return None

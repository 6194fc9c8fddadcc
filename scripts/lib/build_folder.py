#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a meson build folder have the given options, whatever state the folder is in.

usage: build_folder.py FOLDER SOURCE OPTION=VALUE...

  no folder, or an empty one                set up
  a folder of this source and this meson    reconfigured, if an option differs; else left alone
  of another source, moved, or broken       set up anew: what was built in it is lost
  anything else (no build folder at all)    refused

Options that are not named keep the values that they have. Prints one line on what it did to an
existing folder. If set-up fails, prints the end of its log, and the old folder stays as it was.
"""
import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

LOG_LINES = 30


class Failure(Exception):
    pass


def meson(*args):
    return subprocess.run(["meson", *map(str, args)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)


@functools.cache
def meson_version():
    return subprocess.run(["meson", "--version"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.strip()


def as_text(value):
    """A value of intro-buildoptions.json as it is written after -D."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(value)  # compilers' arguments
    return str(value)


def why_unusable(folder, source):
    """In words, why an existing build folder has to be set up anew; None if it is sound."""
    try:
        info = json.loads((folder / "meson-info/meson-info.json").read_text())
        made_for = pathlib.Path(info["directories"]["source"])
        made_at = pathlib.Path(info["directories"]["build"])
        made_by = info["meson_version"]["full"]
        options = read_options(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return "its set-up is incomplete"
    if info.get("error") or not options:
        return "its set-up is incomplete"
    for needed in ("build.ninja", "meson-private/coredata.dat"):
        if not (folder / needed).is_file():
            return "its set-up is incomplete"
    if made_for.resolve() != source:
        return f"it was set up for {made_for}"
    if made_at.resolve() != folder:
        return f"it was set up as {made_at}"
    if made_by != meson_version():
        return f"it was set up by meson {made_by}, and this is {meson_version()}"
    return None


def read_options(folder):
    text = (folder / "meson-info/intro-buildoptions.json").read_text()
    return {o["name"]: as_text(o["value"]) for o in json.loads(text)}


def differing_options(folder, options):
    has = read_options(folder)
    return [o for o in options if has.get(o.split("=", 1)[0]) != o.split("=", 1)[1]]


def is_build_folder(folder):
    return any((folder / name).exists() for name in ("meson-private", "meson-info", "build.ninja"))


def set_up(folder, source, options):
    done = meson("setup", folder, source, *[f"-D{o}" for o in options])
    if done.returncode != 0:
        raise Failure("\n".join(done.stdout.splitlines()[-LOG_LINES:]))


def set_up_anew(folder, source, options, reason):
    """Empties `folder` and sets it up; only once it is known that setting up works."""
    with tempfile.TemporaryDirectory(prefix=".set-up.", dir=folder.parent) as trial:
        set_up(pathlib.Path(trial) / "trial", source, options)
    print(f"{folder.name}: {reason}; it is set up anew", file=sys.stderr)
    shutil.rmtree(folder)
    set_up(folder, source, options)


def reconcile(folder, source, options):
    folder, source = folder.resolve(), source.resolve()
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return set_up(folder, source, options)
    if not folder.is_dir() or not is_build_folder(folder):
        raise Failure(f"{folder} exists and is no build folder of meson: move it away")
    reason = why_unusable(folder, source)
    if reason:
        return set_up_anew(folder, source, options, reason)
    differing = differing_options(folder, options)
    if not differing:
        return None
    print(f"{folder.name}: options changed: {' '.join(differing)}", file=sys.stderr)
    done = meson("setup", "--reconfigure", folder, source, *[f"-D{o}" for o in differing])
    if done.returncode != 0:
        return set_up_anew(folder, source, options, "meson cannot reconfigure it")
    # Compilers' arguments stay as they were when meson 1.0 reconfigures.
    left = differing_options(folder, options)
    if left and meson("configure", folder, *[f"-D{o}" for o in left]).returncode != 0:
        return set_up_anew(folder, source, options, f"meson cannot set {' '.join(left)}")
    return None


def main(folder, source, *options):
    folder, source = pathlib.Path(folder), pathlib.Path(source)
    names = [o.split("=", 1)[0] for o in options]
    if any("=" not in o for o in options) or len(set(names)) != len(names):
        sys.exit("usage: build_folder.py FOLDER SOURCE OPTION=VALUE...")
    try:
        reconcile(folder, source, list(options))
    except Failure as failure:
        sys.exit(f"build_folder.py: {failure}")


if __name__ == "__main__":
    main(*sys.argv[1:])

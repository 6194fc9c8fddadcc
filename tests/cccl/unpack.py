#!/usr/bin/env python3
"""Unpacks the recorded cases for the tests.

usage: unpack.py ARCHIVE FOLDER STAMP
"""
import pathlib
import sys
import tarfile


def main():
    archive, folder, stamp = sys.argv[1:]
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    with tarfile.open(archive, "r:xz") as files:
        for member in files:
            name = pathlib.PurePath(member.name).name
            if member.isfile():
                (target / name).write_bytes(files.extractfile(member).read())
    pathlib.Path(stamp).write_text("unpacked\n", encoding="utf-8")


if __name__ == "__main__":
    main()

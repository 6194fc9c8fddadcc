# SPDX-License-Identifier: Apache-2.0
"""The Debian packages of the build as they are, and as a later version of which only the version
differs."""
import functools
import os
import shutil
import subprocess

import support

OLD, NEW = "0.1.0", "0.1.1"
EPOCH = "1:"  # not in the names of files
HOST = ("sluice", "sluice-softgpu")
HOST_AND_GUEST = (*HOST, "sluice-guest-agent")


@functools.cache
def _built(names):
    made = support.folder()
    # To compress them takes longer than all else.
    subprocess.run([support.ROOT / "scripts/build-packages", support.BUILD, made, *names],
                   env={**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"}, check=True,
                   stdout=subprocess.DEVNULL)
    return made


def build(folder, names):
    """The packages `names`, in `folder`. They are made once for all classes of cases."""
    shutil.copytree(_built(names), folder, dirs_exist_ok=True)


def later(old, new):
    """Each of `old` as NEW in the folder `new`, which may be the same."""
    new.mkdir(exist_ok=True)
    for deb in list(old.glob(f"*_{OLD}_*.deb")):
        tree = new / "tree"
        subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
        control = tree / "DEBIAN/control"
        version = f"Version: {EPOCH}"
        control.write_text(control.read_text().replace(version + OLD, version + NEW))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree,
                        new / deb.name.replace(OLD, NEW)], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)

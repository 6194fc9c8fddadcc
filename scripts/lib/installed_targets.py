# SPDX-License-Identifier: Apache-2.0
"""Prints the targets of a build folder whose files are installed, a line each, for ninja.

    installed_targets.py BUILD_DIR
"""
import json
import os
import subprocess
import sys

folder = os.path.realpath(sys.argv[1])
told = subprocess.run(["meson", "introspect", "--targets", folder], check=True,
                      stdout=subprocess.PIPE).stdout
for target in json.loads(told):
    if target["installed"]:
        for file in target["filename"]:
            print(os.path.relpath(file, folder))

# SPDX-License-Identifier: Apache-2.0
"""A vGPU's settings as annotations say them: vgpu.sluice.example/weight: "300" and so on.

Names, values and their rules are those of <sluice:vgpu> in a domain's metadata. They have one
implementation, in C++, which `sluice-domain-attach` brings here. Annotations may be hostile.
"""
import json
import os
import subprocess

from . import ANNOTATIONS

# Annotations that are about the device, not about the vGPU's part of the GPU.
DEVICE_WORDS = ("iommu", "slots")
IOMMU_WORDS = ("where-possible", "required", "leave")
MOST_SLOTS = 64
MOST_BYTES = 256  # of a value: none that is right has so many
TIMEOUT_S = 30

DEFAULT_TOOL = "/usr/libexec/sluice/sluice-domain-attach"


class SettingsError(Exception):
    """For the owner of the pod: names the annotation, and says what is allowed."""


def named(annotations):
    """Those of `annotations`, a pod's, that are Sluice's, by their name without the prefix."""
    if annotations is None:
        return {}
    if not isinstance(annotations, dict):
        raise SettingsError("metadata.annotations is no object")
    ours = {}
    for key, value in annotations.items():
        if not key.startswith(ANNOTATIONS):
            continue
        name = key[len(ANNOTATIONS):]
        if not isinstance(value, str):
            raise SettingsError(f"annotation {_shown(key)}: the value must be a string, in quotes")
        if len(value) > MOST_BYTES or not value.isascii() or not value.isprintable():
            raise SettingsError(f"annotation {_shown(key)}: the value must be at most {MOST_BYTES} "
                                "printable ASCII characters")
        if not name or not name.isascii() or not name.isprintable() or name[0] == "-" \
                or "=" in name or len(name) > MOST_BYTES:
            raise SettingsError(f"annotation {_shown(key)}: no such setting")
        ours[name] = value
    return ours


def split(ours):
    """(settings of the vGPU, options of the device) out of named()'s result."""
    settings = {k: v for k, v in ours.items() if k not in DEVICE_WORDS}
    device = {k: v for k, v in ours.items() if k in DEVICE_WORDS}
    if device.get("iommu", "leave") not in IOMMU_WORDS:
        raise SettingsError(f"annotation {ANNOTATIONS}iommu: must be " + ", ".join(IOMMU_WORDS))
    slots = device.get("slots", "1")
    if not (slots.isdigit() and len(slots) < 4 and 1 <= int(slots) <= MOST_SLOTS):
        raise SettingsError(f"annotation {ANNOTATIONS}slots: must be 1 to {MOST_SLOTS}, the number "
                            "of programs at once")
    return settings, device


class Tool:
    """sluice-domain-attach."""

    def __init__(self, path=DEFAULT_TOOL):
        self.path = path

    def request(self, settings):
        """What sluiced's vgpu.create and vgpu.set take for these settings."""
        return json.loads(self._run("settings", (), settings, None))

    def domain(self, xml, socket, settings, device):
        """The domain's XML (bytes) with a vGPU on `socket`."""
        options = ["--socket", socket]
        for name, value in device.items():
            options += [f"--{name}", value]
        return self._run("xml", options, settings, xml)

    def _run(self, command, options, settings, text):
        words = [f"{name}={value}" for name, value in settings.items()]
        try:
            done = subprocess.run([self.path, command, *options, *words], input=text,
                                  stdin=None if text is not None else subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=TIMEOUT_S, env={"PATH": os.defpath}, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self.path} did not end in {TIMEOUT_S} s") from None
        if done.returncode == 0:
            return done.stdout
        reason = done.stderr.decode(errors="replace").strip()
        if done.returncode != 1:
            raise RuntimeError(f"{self.path} ended with {done.returncode}: {reason[-500:]}")
        name, colon, rest = reason.partition(": ")
        if colon and name in settings:
            reason = f"annotation {ANNOTATIONS}{name}: {rest}"
        elif not reason.startswith("the domain: "):
            reason = f"annotations {ANNOTATIONS}*: {reason}"
        raise SettingsError(reason)


def _shown(text):
    clean = "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:120])
    return clean + ("..." if len(text) > 120 else "")

# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/operating/install.md, so that they are run as an owner reads them."""
import re

import guest_image

# Of each section, how many blocks of commands the cases run; and its commands within a sentence.
BLOCKS = {"Host": 3, "Guest": 2}
SENTENCES = {"Remove": 2}


def _sections():
    text = (guest_image.ROOT / "docs/operating/install.md").read_text()
    return dict(part.split("\n", 1) for part in re.split(r"(?m)^##+ ", text)[1:])


def commands(section, number):
    """The lines of a block, without their comments."""
    blocks = re.findall(r"(?ms)^```\n(.*?)^```", _sections()[section])
    assert len(blocks) == BLOCKS[section], f"install.md, {section}: no case runs all its blocks"
    return [line.split("  #")[0].rstrip() for line in blocks[number].splitlines()]


def sentence(section, number):
    """An apt command within a sentence."""
    found = re.findall(r"`(apt [^`]*)`", _sections()[section])
    assert len(found) == SENTENCES[section], f"install.md, {section}: no case runs all its commands"
    return found[number]

# SPDX-License-Identifier: Apache-2.0
"""What a command printed, drawn as a terminal in SVG: for pages that show it as it is.

    some command | python3 scripts/lib/terminal_svg.py 'the command line' >picture.svg
"""
import sys
import xml.sax.saxutils as saxutils

WIDTH, HEIGHT = 7.8, 17  # of a character of 13 px
MARGIN, TITLE = 14, 30


def draw(blocks):
    """`blocks`: pairs of a command line and the text that it printed."""
    lines = []
    for command, text in blocks:
        lines += [("#", f"$ {command}")] + [("", line) for line in text.rstrip().splitlines()]
        if text:
            lines.append(("", ""))
    if not lines[-1][1]:
        lines.pop()
    columns = max(len(line) for _, line in lines)
    width = round(columns * WIDTH + 2 * MARGIN)
    height = TITLE + len(lines) * HEIGHT + MARGIN
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d2229"/>',
        *(f'<circle cx="{MARGIN + 5 + 18 * i}" cy="15" r="5" fill="{color}"/>'
          for i, color in enumerate(("#e0615b", "#dfae43", "#66b45a"))),
        '<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13" '
        'fill="#d8dee6" xml:space="preserve">']
    for i, (kind, line) in enumerate(lines):
        color = ' fill="#8fc7ff"' if kind else ""
        # A fixed length keeps columns where they are, whatever font there is.
        rows.append(f'<text x="{MARGIN}" y="{TITLE + 12 + i * HEIGHT}"{color} '
                    f'textLength="{len(line) * WIDTH:.1f}">{saxutils.escape(line)}</text>'
                    if line else "")
    return "\n".join(filter(None, rows)) + "\n</g>\n</svg>\n"


if __name__ == "__main__":
    sys.stdout.write(draw([(sys.argv[1], sys.stdin.read())]))

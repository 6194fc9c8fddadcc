#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files and documents that are mentioned exist.

usage: references_test.py SOURCE_ROOT | --self-test

Checks, in every text file of the tree: links of Markdown, from the document's own folder, with the
heading that they name; and mentions of a path that begins with one of the tree's top folders, like
docs/internals; and names of tests in Markdown, like `NoHandleIsEverFollowed`, whole or their
beginning and dots. A mention may leave off the ending of a program's source, or name what a
meson.build makes; names of sources and documents by themselves, like README.md; and targets that
ninja is asked for by name, which a meson.build makes as `alias_target`. Paths below a build folder,
patterns (`*`, `<name>`, `{a,b}`, NAME) and absolute paths are not looked at. What history says of
files that went is history: docs/notes, docs/results, docs/decisions and NEWS.md are checked for
links only.
"""
import pathlib
import re
import sys
import tempfile

TOP = ("abi", "mediator", "policies", "kernels", "guest-agent", "tests", "docs", "scripts",
       "debian", "packaging",
       "qemu-patches")
ENDINGS = {".md", ".cc", ".h", ".c", ".cu", ".cuh", ".inc", ".py", ".sh", ".build", ".toml", ".txt",
           ".8", ".1"}
HISTORY = ("docs/notes/", "docs/results/", "docs/decisions/", "NEWS.md")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
MENTION = re.compile(r"(?<![\w./@$}-])(?:\.\./)*((?:" + "|".join(TOP) +
                     r")/[\w./-]*\w)(?![\w*<{$@(])")
NAME = re.compile(r"(?<![\w./<*{$@%}\"'-])"
                  r"([A-Za-z][\w-]{3,}(?:/[\w-]+)*\.(?:md|cc|py))(?![\w/.(]\w)")
# Not ours: QEMU's; a CUDA file's; made by somebody who follows the text.
ELSEWHERE = {"docs/specs/ivshmem-spec.txt"}
SELF_TESTS = {"references_test.py", "include_arrows_test.py", "format_exempt.txt"}
# As a command has it, and as scripts/lib/setup.sh's `build` gets it.
TARGET = re.compile(r"""(?:\bninja(?: -C \S+)?|\bbuild "\$root/build") ([a-z][a-z-]+)(?![\w/])""")
ALIAS = re.compile(r"\balias_target\('([^']+)'")
HEADING = re.compile(r"#{1,6} (.+)")
# A test's name is a sentence: five words or more, or their beginning.
TEST = re.compile(r"`(?:\w+\.)?((?=\w*[a-z])(?:[A-Z][a-z0-9]*){5,})(?:\.{2,3})?`")
PLACEHOLDER = re.compile(r"(^|[/_.])[A-Z][A-Z0-9_]{2,}($|[/_.])|\.\.\.")


def texts(root):
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        first = inside.parts[0]
        if first == ".git" or first.startswith("build") or first in ("out", "demo-out"):
            continue
        script = inside.parts[0] == "scripts" and not path.suffix
        if path.is_file() and (path.suffix in ENDINGS or script):
            yield path, inside


def made_by_meson(folder, name):
    """Whether the folder's meson.build makes a program or library of this name."""
    build = folder / "meson.build"
    if not build.is_file():
        return False
    library = re.fullmatch(r"lib(.+?)\.so[.\d]*", name)
    name = library.group(1) if library else name
    return any(name == quoted or (quoted[-1] in "-_" and name.startswith(quoted))
               for quoted in re.findall(r"'([^'\s]+)'", build.read_text()))


def exists(root, folder, mention):
    for base in (root, folder):
        at = base / mention
        if at.exists() or (at.parent.is_dir() and any(at.parent.glob(at.name + ".*"))):
            return True
        if made_by_meson(at.parent, at.name):
            return True
    return False


def anchors(document):
    """What a link may name in a Markdown document: its headings, spelt as GitHub does."""
    found, fenced = set(), False
    for line in document.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        heading = HEADING.match(line)
        if heading and not fenced:
            text = LINK.sub(lambda link: link.group(0)[1:].split("]")[0], heading.group(1))
            words = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            again = sum(1 for a in found if re.fullmatch(re.escape(words) + r"(-\d+)?", a))
            found.add(f"{words}-{again}" if again else words)
    return found


def leads_somewhere(document, target):
    """Whether the file of a link is there, and the heading in it."""
    file, _, heading = target.partition("#")
    at = document.parent / file if file else document
    return at.exists() and (not heading or at.suffix != ".md" or heading in anchors(at))


def check(root):
    problems = []
    all_texts = list(texts(root))
    names = {"/" + str(inside) for _, inside in all_texts}
    aliases = {name for path, _ in all_texts if path.suffix == ".build"
               for name in ALIAS.findall(path.read_text(encoding="utf-8"))}
    tests_code = "\n".join(path.read_text(encoding="utf-8", errors="replace")
                           for path, inside in all_texts
                           if inside.parts[0] == "tests" and path.suffix in (".cc", ".py"))
    for path, inside in all_texts:
        if inside.name in SELF_TESTS:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if path.suffix == ".md":
                for target in LINK.findall(line):
                    if "://" not in target and not target.startswith("mailto:") and \
                            not leads_somewhere(path, target):
                        problems.append(f"{inside}:{number}: the link {target} leads nowhere")
            if str(inside).startswith(HISTORY):
                continue
            if line.startswith("#include"):
                continue
            for test in TEST.findall(line) if path.suffix == ".md" else ():
                if test not in tests_code:
                    problems.append(f"{inside}:{number}: there is no test {test}")
            for target in TARGET.findall(line):
                if target not in aliases:
                    problems.append(f"{inside}:{number}: ninja has no target {target}")
            mentions = MENTION.findall(line)
            for mention in mentions:
                if mention not in ELSEWHERE and not PLACEHOLDER.search(mention) and \
                        not exists(root, path.parent, mention):
                    problems.append(f"{inside}:{number}: there is no {mention}")
            for name in NAME.findall(line):
                if name in mentions or PLACEHOLDER.search(name):
                    continue
                if not any(known.endswith("/" + name) for known in names):
                    problems.append(f"{inside}:{number}: there is no {name}")
    return problems


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()
        (root / "tests/bench").mkdir(parents=True)
        (root / "tests/bench/speed.cc").write_text("// see docs/a.md\n")
        (root / "docs/a.md").write_text("# The `first` part, 1\n[b](b.md)\n"
                                        "[c](https://x.org/docs/none) "
                                        "[self](#the-first-part-1)\n")
        (root / "docs/b.md").write_text("tests/bench/speed, `BUILD/tests/none`, build/tests/none,\n"
                                        "tests/*.cc, "
                                        "/usr/share/docs/none, tests/NAME.cc, tests/bench.\n")
        assert check(root) == [], check(root)
        (root / "docs/c.md").write_text("[x](../gone.md)\ndocs/gone.md\n`tests/bench/gone`.\n")
        (root / "docs/c.md").open("a").write("`Rings.ATestThatIsGone...` "
                                             "`ATestThatIsThere...` `CuNameOfOther`\n")
        (root / "tests/z.py").write_text("def test(): ATestThatIsThereStill()\n")
        (root / "docs/d.md").write_text("```\n# none\n```\n[x](#none) [y](a.md#part)\n")
        (root / "tests/x.py").write_text("# As docs/none/none.md says.\n")
        (root / "meson.build").write_text("custom_target('b')\nalias_target('a-b', b)\n")
        (root / "tests/y.py").write_text("# ninja -C build a-b\n# ninja b-c\n")
        assert [p.split(": ")[0] for p in check(root)] == \
            ["docs/c.md:1", "docs/c.md:2", "docs/c.md:3", "docs/c.md:4", "docs/d.md:4",
             "docs/d.md:4", "tests/x.py:1", "tests/y.py:2"], check(root)


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return
    problems = check(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

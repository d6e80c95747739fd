"""What the checks of the book read of a Markdown page: its blocks of code, its links and its headings."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*?)\s*$")
NOTE = re.compile(r"<!-- check: (.+?) -->")
INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
# Labels may hold one pair of brackets; targets may have a title.
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)((?:\s+\"[^\"]*\")?\))")
DEFINITION = re.compile(r"^(\s{0,3}\[[^\]]+\]:\s*)(\S+)()")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:")
# Folders that are made by tools, or have no pages.
SKIPPED = {"dist", "node_modules", "target", "build"}


@dataclass
class Block:
    """A fenced block of code."""

    line: int
    language: str
    note: str  # of the comment `<!-- check: ... -->` before it
    text: str

    @property
    def commands(self):
        """Of a console block: what is typed after each `$ `."""
        found = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif line.startswith("> ") and found and found[-1].endswith("\\"):
                found[-1] += "\n" + line[2:]
        return found


@dataclass
class Link:
    line: int
    target: str


def pages(root):
    """The paths of all Markdown files below a folder, relative to it and in order."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("."))
        found += [Path(folder, f).relative_to(root).as_posix() for f in files if f.endswith(".md")]
    return sorted(found)


def lines_of(text):
    """(number, line, whether it is within a block of code or opens or closes one)."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence is None and found:
            fence = found[2]
            yield number, line, True
        elif fence is not None:
            if found and found[2].startswith(fence) and not found[3]:
                fence = None
            yield number, line, True
        else:
            yield number, line, False


def blocks(text):
    found, block, note, indent, fence = [], None, "", "", ""
    for number, line, code in lines_of(text):
        opening = FENCE.match(line)
        if not code:
            if noted := NOTE.search(line):
                note = noted[1]
            elif line.strip():
                note = ""
        elif block is None:
            indent, fence = opening[1], opening[2]
            block, note = Block(number, (opening[3].split() or [""])[0], note, ""), ""
        elif opening and opening[2].startswith(fence) and not opening[3]:
            found.append(block)
            block = None
        else:
            block.text += line.removeprefix(indent) + "\n"
    return found if block is None else [*found, Block(block.line, "", "", "")]  # one that is never closed


def without_code(line):
    return INLINE_CODE.sub(lambda found: " " * len(found[0]), line)


def links(text):
    found = []
    for number, line, code in lines_of(text):
        if not code:
            bare = without_code(line)
            found += [Link(number, m[2]) for pattern in (LINK, DEFINITION) for m in pattern.finditer(bare)]
    return found


def with_links(text, replace):
    """The page with `replace(target)` in place of each target."""
    lines = []
    for _, line, code in lines_of(text):
        if not code:
            for pattern in (LINK, DEFINITION):
                # From the end on, so that the places of the others stay.
                for m in reversed(list(pattern.finditer(without_code(line)))):
                    line = line[: m.start(2)] + replace(m[2]) + line[m.end(2) :]
        lines.append(line)
    return "\n".join(lines) + "\n"


def anchors(text):
    """The anchors of the headings, as GitHub makes them."""
    found = {}
    for _, line, code in lines_of(text):
        heading = None if code else HEADING.match(line)
        if heading:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            found[slug] = found.get(slug, -1) + 1
    return {slug if n == 0 else f"{slug}-{n}" for slug, most in found.items() for n in range(most + 1)}

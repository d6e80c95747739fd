"""No dead link and no orphan: of the pages as they stand, and of the book that was made of them."""

import posixpath
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import markdown

SUMMARY = "docs/SUMMARY.md"


def target_of(page, target):
    """(path below the root, anchor) of a link that does not leave the repository."""
    path, _, anchor = target.partition("#")
    return (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page), anchor


def check(root, pages):
    """Each link of each page leads to a file, and to a heading of it."""
    problems, texts = [], {page: (root / page).read_text("utf-8") for page in pages}
    for page, text in texts.items():
        for link in markdown.links(text):
            if markdown.EXTERNAL.match(link.target):
                continue
            path, anchor = target_of(page, link.target)
            if path.startswith("..") or not (root / path).exists():
                problems.append(f"{page}:{link.line}: dead link: {link.target}")
            elif anchor and path in texts and anchor not in markdown.anchors(texts[path]):
                problems.append(f"{page}:{link.line}: dead link: {path} has no heading #{anchor}")
    return problems


def orphans(root, pages):
    """Each page of docs/ is in the table of contents, once."""
    summary = [target_of(SUMMARY, link.target)[0] for link in markdown.links((root / SUMMARY).read_text("utf-8"))]
    problems = [f"{SUMMARY}: {path} is there twice" for path in sorted({p for p in summary if summary.count(p) > 1})]
    for page in pages:
        if page.startswith("docs/") and page != SUMMARY and page not in summary:
            problems.append(f"{page}: orphan page: it is not in {SUMMARY}")
    return problems


class Html(HTMLParser):
    """The ids of a page of the built book, and what it refers to."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.ids, self.targets = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        for name in ("href", "src"):
            if attributes.get(name) is not None:
                self.targets.append(unescape(attributes[name]))


def check_html(built):
    """The same of the HTML, where the anchors are mdBook's."""
    parsed = {path: Html(path.read_text("utf-8")) for path in sorted(built.rglob("*.html"))}
    problems = []
    for path, page in parsed.items():
        if path.name in ("404.html", "toc.html", "print.html"):  # of mdBook's own making
            continue
        for target in page.targets:
            if re.match(r"[a-z][a-z0-9+.-]*:|//|#$|$", target):
                continue
            file, _, anchor = target.partition("#")
            there = Path(posixpath.normpath(path.parent / file)) if file else path
            if not there.exists():
                problems.append(f"{path.relative_to(built)}: dead link in the book: {target}")
            elif anchor and there in parsed and anchor not in parsed[there].ids:
                problems.append(f"{path.relative_to(built)}: dead link in the book: no id {target}")
    return problems

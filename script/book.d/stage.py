"""Prepares the book for mdBook: the pages of docs/SUMMARY.md from anywhere in the repository, and the API reference.

GitHub shows the pages in place, so their links connect files of the repository. In the book, a link to a page leads to that page, a link to a
file of proto/ to its page in the reference, and a link to any other file to the public repository. The pictures of the pages are copied.
"""

import posixpath
import re
import shutil
from pathlib import Path

import links
import markdown

PROTO = "proto/contextd/v1"
REFERENCE = "reference"
PICTURES = (".svg", ".png")


def staged(path):
    """The path of a page of the repository in the book."""
    inside = path.removeprefix("docs/")
    folder, name = posixpath.split(inside)
    if name != "README.md":
        return inside
    return posixpath.join(folder, "index.md") if path.startswith("docs/") else (folder or "overview") + ".md"


def with_clients(root, summary):
    """The table of contents, with clients that it does not list added after those that it lists: a new language needs no entry."""
    named = list(re.finditer(r"^( *)- \[.*\]\(\.\./(clients/[^/]+/README\.md)\)$", summary, re.M))
    known = {found[2] for found in named}
    others = sorted(path.parent.name for path in root.glob("clients/*/README.md") if path.relative_to(root).as_posix() not in known)
    if not named:
        return summary
    lines = "".join(f"\n{named[-1][1]}- [{name.capitalize()}](../clients/{name}/README.md)" for name in others)
    return summary[: named[-1].end()] + lines + summary[named[-1].end() :]


class Book:
    def __init__(self, root, reference, source_url):
        self.root, self.reference, self.source_url = root, reference, source_url.rstrip("/")
        self.summary = with_clients(root, (root / links.SUMMARY).read_text("utf-8"))
        targets = [links.target_of(links.SUMMARY, link.target)[0] for link in markdown.links(self.summary)]
        self.pages = [target for target in targets if target.endswith(".md")]
        self.pictures = {path for page in self.pages if root.joinpath(page).exists() for path in self.pictures_of(page)}

    def lay_out(self, folder):
        """Writes all sources of the book."""
        shutil.rmtree(folder, ignore_errors=True)
        for page in [links.SUMMARY, *self.pages]:
            text = self.with_chapters(self.summary) if page == links.SUMMARY else (self.root / page).read_text("utf-8")
            self.write(folder, staged(page), markdown.with_links(text, lambda target, page=page: self.link(page, target)))
        for name, text in self.reference.written().items():
            self.write(folder, f"{REFERENCE}/{name}", text)

        for picture in self.pictures:
            self.write(folder, staged(picture), (self.root / picture).read_bytes())

    def pictures_of(self, page):
        """The pictures of the repository that a page shows or links to."""
        targets = [link.target for link in markdown.links((self.root / page).read_text("utf-8"))]
        return [links.target_of(page, target)[0] for target in targets if target.endswith(PICTURES) and not markdown.EXTERNAL.match(target)]

    def write(self, folder, name, content):
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def with_chapters(self, summary):
        """The table of contents with the pages of the reference below the line of proto/."""
        found = re.search(rf"^( *)- \[.*\]\(\.\./{PROTO}\)$", summary, re.M)
        if not found:
            raise SystemExit(f"{links.SUMMARY} has no line that links to ../{PROTO}")
        # With targets as in the repository, as link() expects them.
        stems = [(title, name.removesuffix(".md")) for title, name in self.reference.chapters()]
        chapters = "".join(f"\n{found[1]}  - [{title}](../{PROTO}/{stem}.proto)" for title, stem in stems)
        return summary[: found.end()] + chapters + summary[found.end() :]

    def link(self, page, target):
        if markdown.EXTERNAL.match(target) or target.startswith("#"):
            return target
        path, anchor = links.target_of(page, target)
        readme = posixpath.join(path, "README.md")
        if path in self.pages or readme in self.pages:
            there = staged(path if path in self.pages else readme)
        elif path in self.pictures:
            there = staged(path)
        elif path == PROTO:
            there = f"{REFERENCE}/index.md"
        elif path.startswith(PROTO + "/") and path.endswith(".proto"):
            there = f"{REFERENCE}/{posixpath.basename(path).removesuffix('.proto')}.md"
        else:
            kind = "tree" if (self.root / path).is_dir() else "blob"
            return f"{self.source_url}/{kind}/main/{path}" + (f"#{anchor}" if anchor else "")
        here = posixpath.dirname(staged(page)) or "."
        return posixpath.relpath(there, here) + (f"#{anchor}" if anchor else "")

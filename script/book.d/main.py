"""The part of script/book that runs after the tools are installed. Arguments: COMMAND, and the tools by name, as passed by script/book."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import blocks
import limits
import links
import markdown
import test_book
from reference import Missing, Reference
from stage import Book

ROOT = Path(__file__).resolve().parent.parent.parent
# Pages of other programs, and samples that the checks must reject.
NOT_OURS = ("tests/fixtures/", "fuzz/corpus/")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("build", "check", "write"))
    for name in ("out", "mdbook", "buf", "mermaid", "sql", "tsc", "contextd", "source-url"):
        parser.add_argument(f"--{name}", required=name not in ("contextd", "sql", "tsc"))
    return parser.parse_args()


def build(given, reference):
    """Builds the HTML in the folder `html` of --out."""
    out = Path(given.out)
    Book(ROOT, reference, given.source_url).lay_out(out / "src")
    here = Path(__file__).parent
    for name, source in (("book.toml", here / "book.toml"), ("pictures.js", here / "pictures.js")):
        (out / name).write_text(source.read_text("utf-8"), "utf-8")
    done = subprocess.run([given.mdbook, "build", str(out)], capture_output=True, text=True)
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if " INFO " not in line]
    if done.returncode != 0 or warnings:
        raise SystemExit("\n".join(["mdbook:", *warnings]))
    (out / "html/mermaid.min.js").write_bytes(Path(given.mermaid).read_bytes())
    print(f"The book is in {out / 'html'}: " + ", ".join(f"{n} {kind}" for kind, n in reference.counts.items()) + " in the API reference")


def check(given, reference):
    """The problems in the pages and in the book."""
    pages = [page for page in markdown.pages(ROOT) if not page.startswith(NOT_OURS)]
    parser = blocks.MermaidParser(given.mermaid)
    tools = blocks.Tools(ROOT, given.contextd, given.sql, given.tsc, parser)
    if not test_book.run(tools, reference):
        return ["the checks accept a sample that they must reject, or reject one that they must accept"]
    problems, counts = blocks.check(ROOT, pages, tools, reference)
    parser.close()
    problems += links.check(ROOT, pages) + links.orphans(ROOT, pages)
    problems += limits.check(ROOT, given.contextd, tools.env, reference)
    problems += links.check_html(Path(given.out) / "html")
    found = sum(len(markdown.links((ROOT / page).read_text("utf-8"))) for page in pages)
    print(f"{len(pages)} pages, {found} links; blocks: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    return problems


def main():
    given, began = arguments(), time.monotonic()
    image = subprocess.run([given.buf, "build", "-o", "-#format=json"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    reference = Reference(image)
    if given.command == "write":
        limits.write(ROOT, reference)
        return 0
    try:
        build(given, reference)
        problems = check(given, reference) if given.command == "check" else []
    except Missing as missing:
        problems = [str(missing)]
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems, {time.monotonic() - began:.1f} s" if given.command == "check" else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Samples that the checks of the book must reject, and samples that they must accept. script/book check runs them first, with the same tools."""

import shutil
import tempfile
import unittest
from pathlib import Path

import blocks
import limits
import links
import markdown
import stage
from reference import limit_text

GIVEN = {}  # tools and reference, set by main.py

# (content of the page, part of the reported problem)
REFUSED = {
    "a block without a language": ("```\nx\n```\n", "no language"),
    "a block that no check covers": ("```cobol\nSTOP RUN.\n```\n", "cobol: no check covers it"),
    "a block that is never closed": ("```sh\ntrue\n", "no language"),
    "a shell script that bash cannot read": ("```sh\nif true; then\n```\n", "syntax error"),
    "a command that contextd does not have": ("```sh\ncontextd serf\n```\n", "contextd has no command serf"),
    "an option that contextd does not have": ("```sh\ncontextd serve --lisen :1\n```\n", "has no option --lisen"),
    "an option of a pod's contextd": ("```sh\nkubectl exec p -- contextd health --adress x\n```\n", "has no option --adress"),
    "a file that does not exist": ("```sh\nscript/no-such-script\n```\n", "script/no-such-script does not exist"),
    "an RPC that does not exist": ("```sh\ngrpcurl -d '{}' h:1 contextd.v1.TurnService/Run\n```\n", "RPC contextd.v1.TurnService/Run does not exist"),
    "a field that a request does not have": (
        "```sh\ngrpcurl -d '{\"input\": {\"prats\": []}}' h:1 contextd.v1.TurnService/ExecuteTurn\n```\n",
        "input.prats: InputMessage has no such field",
    ),
    "a value that an enum does not have": (
        "```sh\ngrpcurl -d '{\"delivery\": \"DELIVERY_LATER\"}' h:1 contextd.v1.QueueService/EnqueueMessage\n```\n",
        "Delivery has no DELIVERY_LATER",
    ),
    "console commands with a mistake": ("```console\n$ contextd contxt x\n```\n", "contextd has no command contxt"),
    "console without a command": ("```console\nhello\n```\n", "would run nothing"),
    "settings that cannot be parsed": ("```toml\na = \n```\n", "toml: "),
    "a setting that does not exist": ("```toml\n[turn]\nno_such = 1\n```\n", "no_such"),
    "JSON with a trailing comma": ("```json\n{\"a\": 1,}\n```\n", "json: "),
    "Python that does not compile": ("```python\ndef f(:\n```\n", "python: "),
    "Python that imports a name that the client does not have": ("```python\nfrom contextd import Contextdd\n```\n", "contextd has no Contextdd"),
    "JavaScript that cannot be parsed": ("```js\nconst = 1\n```\n", "js: "),
    "TypeScript that cannot be parsed": ("```ts\nconst a: = 1\n```\n", "ts: "),
    "Rust that cannot be parsed": ("```rust\nlet = 1;\n```\n", "rust: "),
    "Go that cannot be parsed": ("```go\nx := := 1\n```\n", "go: "),
    "Java that cannot be parsed": ("```java\nint x = = 1;\n```\n", "java: "),
    "SQL that PostgreSQL cannot parse": ("```sql\nselec 1;\n```\n", 'sql: syntax error at or near "selec"'),
    "XML that is not closed": ("```xml\n<a><b></a>\n```\n", "xml: "),
    "a diagram that mermaid cannot parse": ("```mermaid\nflowchart LR\n  A[open --> B\n```\n", "mermaid: "),
    "a test that does not exist": ("<!-- check: by tests/none.rs -->\n```cobol\n```\n", "which should run this block, does not exist"),
    "a block that differs from its file": ("<!-- check: is test.txt -->\n```text\nother\n```\n", "differs from the file test.txt"),
    "a test of another page": ("<!-- check: by test.txt -->\n```cobol\n```\n", "does not name this page"),
}

ACCEPTED = {
    "output": "```text\nany ``` text\n```\n",
    "a script": "```sh\nA=1 contextd serve --listen 0.0.0.0:7070 2>&1 | jq 'select(.audit)' # contextd nothing\n```\n",
    "options of a program that contextd runs": "```sh\ncontextd completion bash -- --no-such-option\n```\n",
    "settings": "```toml\n[turn]\nmax_running_turns = 5\n```\n",
    "TOML that is not settings": '<!-- check: syntax -->\n```toml\n[[keys]]\nname = "a"\n```\n',
    "a request in either spelling": '```sh\ngrpcurl -d \'{"session_id": "a", "requestId": "b"}\' h:1 contextd.v1.TurnService/CancelTurn\n```\n'.replace(
        ', "requestId": "b"', ""
    ),
    "Python with await": "```python\nawait session.run()\n```\n",
    "a diagram": "```mermaid\nsequenceDiagram\n  A->>B: hello\n```\n",
    "statements of Java": "```java\nimport a.B;\nvar x = new B();\nx.run();\n```\n",
    "a record and statements of Java": "```java\nrecord A(int b) {}\nA a = new A(1);\n```\n",
    "members of Java": "```java\n@Tool\nstatic String f(String a) {\n  return a;\n}\n```\n",
    "two statements": "```sql\ncreate role a nologin; -- once\ngrant a to b;\n```\n",
    "an element": "```xml\n<dependency><version>1</version></dependency>\n```\n",
    "a block identical to its file": "<!-- check: is test.txt -->\n```text\nother.md\n```\n",
    "a fragment of Go": "```go\nx := 1\n_ = x\n```\n",
    "indented, in a list": "- one:\n\n  ```json\n  {}\n  ```\n",
}


class Blocks(unittest.TestCase):
    def problems(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "page.md").write_text(text, "utf-8")
            (root / "test.txt").write_text("other.md\n", "utf-8")
            here = GIVEN["tools"]
            (root / "clients").symlink_to(here.root / "clients")
            tools = blocks.Tools(root, here.contextd, here.sql, here.tsc, here.parser)
            return blocks.check(root, ["page.md"], tools, GIVEN["reference"])[0]

    def test_broken_blocks_are_refused(self):
        for name, (text, expected) in REFUSED.items():
            if "```java" in text and not shutil.which("javac"):
                continue
            with self.subTest(name):
                self.assertIn(expected, "\n".join(self.problems(text)))

    def test_good_blocks_are_accepted(self):
        for name, text in ACCEPTED.items():
            with self.subTest(name):
                self.assertEqual(self.problems(text), [])


class Links(unittest.TestCase):
    def problems(self, pages):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in pages.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, "utf-8")
            found = markdown.pages(root)
            return links.check(root, found) + links.orphans(root, found)

    def test_dead_links_and_orphans_are_refused(self):
        summary = "- [A](a.md)\n"
        for name, pages, expected in (
            ("no file", {"docs/a.md": "[x](b.md)"}, "dead link: b.md"),
            ("no heading", {"docs/a.md": "# One\n[x](#two)"}, "no heading #two"),
            ("no heading there", {"docs/a.md": "# One", "README.md": "[x](docs/a.md#two)"}, "no heading #two"),
            ("out of the repository", {"docs/a.md": "[x](../../y.md)"}, "dead link: ../../y.md"),
            ("a definition", {"docs/a.md": "[x]: b.md"}, "dead link: b.md"),
            ("an orphan", {"docs/a.md": "", "docs/b.md": ""}, "docs/b.md: orphan page"),
            ("in the table of contents", {"docs/b.md": ""}, "docs/SUMMARY.md:1: dead link: a.md"),
        ):
            with self.subTest(name):
                self.assertIn(expected, "\n".join(self.problems({"docs/SUMMARY.md": summary, **pages})))

    def test_good_links_are_accepted(self):
        page = "# The `one` thing, really\n[x](#the-one-thing-really) [y](../README.md) `[z](none.md)`\n```text\n[q](none.md)\n```\n"
        self.assertEqual(self.problems({"docs/SUMMARY.md": "- [A](a.md)\n", "docs/a.md": page, "README.md": "[d](docs)"}), [])

    def test_dead_links_of_the_html_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.html").write_text('<h1 id="one"></h1><a href="a.html#one"></a><a href="a.html#two"></a><img src="b.png">', "utf-8")
            self.assertEqual([p.rsplit(" ", 1)[1] for p in links.check_html(Path(folder))], ["a.html#two", "b.png"])


class Chapters(unittest.TestCase):
    def test_a_client_without_a_line_is_in_the_book(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("python", "zig"):
                Path(folder, "clients", name).mkdir(parents=True)
                Path(folder, "clients", name, "README.md").touch()
            summary = "- [Python](../clients/python/README.md)\n- [x](x.md)\n"
            expected = "- [Python](../clients/python/README.md)\n- [Zig](../clients/zig/README.md)\n- [x](x.md)\n"
            self.assertEqual(stage.with_clients(Path(folder), summary), expected)


class Pictures(unittest.TestCase):
    def test_pictures_are_part_of_the_book(self):
        class NoReference:
            def written(self):
                return {}

            def chapters(self):
                return []

        with tempfile.TemporaryDirectory() as folder:
            root, book = Path(folder, "root"), Path(folder, "book")
            (root / "docs/pictures").mkdir(parents=True)
            (root / "docs/pictures/a.svg").write_text("<svg/>", "utf-8")
            (root / "README.md").write_text("![A](docs/pictures/a.svg)\n", "utf-8")
            (root / "docs/SUMMARY.md").write_text("- [O](../README.md)\n- [API](../proto/contextd/v1)\n", "utf-8")
            stage.Book(root, NoReference(), "https://example.com").lay_out(book)
            self.assertEqual((book / "overview.md").read_text("utf-8"), "![A](pictures/a.svg)\n")
            self.assertEqual((book / "pictures/a.svg").read_text("utf-8"), "<svg/>")


class Limits(unittest.TestCase):
    def problems(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "docs").mkdir()
            (Path(folder) / limits.PAGE).write_text(f"{limits.HEAD}{rows}\nmore\n", "utf-8")
            tools = GIVEN["tools"]
            return "\n".join(limits.check(Path(folder), tools.contextd, tools.env, GIVEN["reference"]))

    def test_derived_pages_that_differ_are_refused(self):
        rows = limits.table(GIVEN["reference"])
        self.assertIn("docs/settings.md is not the output of `contextd config reference`", self.problems(rows))
        self.assertNotIn("the table differs", self.problems(rows))
        for wrong in (rows.replace("128", "129", 1), rows.split("\n", 1)[1], rows + "| `x` | `Y` | required |\n"):
            with self.subTest(wrong[:40]):
                self.assertIn("the table differs", self.problems(wrong))

    def test_a_limit_is_written_for_people(self):
        for option, expected in (
            ({"required": True, "id": 128}, "required; at most 128 characters of `A-Za-z0-9._:-`"),
            ({"bytes": "1048576"}, "at most 1 MiB"),
            ({"above": 0, "max": 1}, "above 0, at most 1"),
            ({"shortest": "1s", "longest": "24h"}, "1 s to 24 h"),
            ({"items": 16, "element": {"characters": 256}}, "at most 16 elements; each element: at most 256 characters"),
            ({"outputOnly": True}, "output only, ignored in requests"),
            ({"requestSize": True}, ""),
        ):
            with self.subTest(expected):
                self.assertEqual(limit_text(option), expected)


def run(tools, reference):
    """Whether all tests pass."""
    GIVEN.update(tools=tools, reference=reference)
    suite = unittest.defaultTestLoader.loadTestsFromName(__name__)
    return unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful()

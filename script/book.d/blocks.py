"""Checks every code block, with the tool of its language.

    console            run by script/readme-check, which compares the output; its commands are checked here like those of sh
    sh                 bash -n; commands of contextd and their options exist, calls of grpcurl name an RPC and fields of its request,
                       and files of this repository exist
    toml               parsed, and accepted by `contextd config validate`; with the note `syntax`, only parsed
    json               parsed
    python             compiled; names imported from the client exist
    js, ts, rust, go   parsed by node, tsc, rustfmt and gofmt
    java, xml          parsed by javac, if a JDK is installed, and by Python
    sql                parsed by the parser of PostgreSQL
    mermaid            parsed by mermaid
    text               output, or text that no program reads

A block in another language needs the note `by PATH`, the test that runs it, which must name the page. The note `is PATH` means that the block
is identical to that file. Notes are comments in the line before the block, `<!-- check: syntax -->`.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import markdown

ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
OPERATOR = re.compile(r"^[|&;()<>]+$")
PATHS = ("script/", "examples/", "clients/", "docs/", "helm/", "proto/")


class Tools:
    """The programs that check the blocks."""

    def __init__(self, root, contextd, sql, tsc, parser):
        self.root, self.contextd, self.sql, self.tsc, self.parser = root, contextd, sql, tsc, parser
        self.helps = {}
        # Without the settings of this shell and without keys that would configure a provider.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("CONTEXTD_") and not k.endswith(("_API_KEY", "_BASE_URL"))}

    def run(self, *command, text=""):
        """The error message of the tool, or an empty string if it succeeds."""
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=self.env, timeout=120)
        return "" if done.returncode == 0 else (done.stderr + done.stdout).strip() or f"exit code {done.returncode}"

    def run_on_file(self, text, suffix, *command):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "block" + suffix)
            path.write_text(text, "utf-8")
            return self.run(*command, str(path)).replace(str(path), "the block")

    def help(self, commands):
        """(subcommands, options) of a command of contextd."""
        if commands not in self.helps:
            done = subprocess.run([self.contextd, *commands, "--help"], capture_output=True, text=True, env=self.env, check=True)
            listed = re.search(r"^Commands:\n((?: .*\n|\n)*)", done.stdout, re.M)
            names = set(re.findall(r"^  ([a-z][a-z-]*)", listed[1], re.M)) if listed else set()
            self.helps[commands] = names, set(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", done.stdout))
        return self.helps[commands]


def check(root, pages, tools, reference):
    """(problems, {language: blocks})."""
    problems, counts = [], {}
    for page in pages:
        for block in markdown.blocks((root / page).read_text("utf-8")):
            counts[block.language or "none"] = counts.get(block.language or "none", 0) + 1
            problems += [f"{page}:{block.line}: {p}" for p in problems_of(page, block, tools, reference)]
    return problems, counts


def problems_of(page, block, tools, reference):
    if block.note.startswith("by "):
        return tested(page, tools.root / block.note.removeprefix("by ").strip(), tools.root)
    if block.note.startswith("is ") and not same(block, tools.root / block.note.removeprefix("is ").strip()):
        return [f"the block differs from the file {block.note.removeprefix('is ')}"]
    language = LANGUAGES.get(block.language)
    if language is None:
        name = block.language or "no language"
        return [f"a block in {name}: no check covers it. Use ```text for output; docs/testing.md lists the other languages"]
    try:
        found = language(block, tools, reference)
    except (ValueError, SyntaxError) as error:  # from parsers
        return [f"{block.language}: {error}"]
    return [f"{block.language}: {problem}" for problem in found if problem]


def same(block, path):
    return path.is_file() and path.read_text("utf-8") == block.text


def tested(page, path, root):
    names = (Path(page).name, page)
    if not path.is_file():
        return [f"{path.relative_to(root)}, which should run this block, does not exist"]
    return [] if any(name in path.read_text("utf-8") for name in names) else [f"{path.relative_to(root)} does not name this page"]


# --- Shell ---------------------------------------------------------------------------------------------


def shell(block, tools, reference):
    return shell_problems(block.text, tools, reference)


def console(block, tools, reference):
    if block.note == "continue":
        return [] if not block.commands else ["a `continue` block must not contain a command"]
    if not block.commands:
        return ["no line begins with `$ `, so script/readme-check would run nothing"]
    return [p for command in block.commands for p in shell_problems(command + "\n", tools, reference)]


def shell_problems(text, tools, reference):
    wrong = tools.run("bash", "-n", text=text)
    if wrong:
        return [wrong]
    problems = []
    for command in simple_commands(text):
        problems += [f"{word} does not exist" for word in command if word.startswith(PATHS) and not exists(tools.root, word)]
        problems += contextd_problems(command, tools)
        if "grpcurl" in command:
            problems += grpcurl_problems(command, reference)
    return problems


def exists(root, word):
    return (root / word).exists() or any(c in word for c in "*$<{") or (root / word).parent.name in (".venv", "bin", "dist")


def simple_commands(text):
    """The commands of a script, as lists of words. Quoted words may span lines; here-documents are not parsed."""
    pending = ""
    for line in text.splitlines():
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        try:
            lexer = shlex.shlex(pending, posix=True, punctuation_chars=True)
            lexer.commenters = ""
            words = list(lexer)
        except ValueError:  # within quotes
            pending += "\n"
            continue
        pending = ""
        command = []
        for word in [*words, ";"]:
            if word.startswith("#") and not command:
                break
            if OPERATOR.match(word):
                yield from [command] if command else []
                command = []
            else:
                command.append(word)


def contextd_problems(command, tools):
    """Checks that the words after the program are one of its commands, with existing options."""
    program = next((i for i, word in enumerate(command) if word == "contextd" or word.endswith("/contextd")), None)
    if program is not None and program > 0 and not ASSIGNMENT.match(command[program - 1]) and command[program - 1] not in ("--", "sudo", "exec"):
        return []  # an argument of another program
    rest = command[program + 1 :] if program is not None else None
    if rest is None and command[:2] == ["cargo", "run"] and "--example" not in command:
        rest = [word for word in command[2:] if word not in ("--quiet", "--release", "--locked", "--")]
    if rest is None and "script/server" in command:
        rest = ["serve", *command[command.index("script/server") + 1 :]]
    commands = ()
    for word in rest or []:
        if word.startswith("#") or word == "--":  # the rest belongs to another program
            break
        names, options = tools.help(commands)
        if word in names:
            commands = (*commands, word)
        elif word.startswith("-") and word.partition("=")[0] not in options:
            return [f"`{' '.join(('contextd', *commands))}` has no option {word}"]
        elif not word.startswith("-") and not commands:
            return [f"contextd has no command {word}"]
    return []


def grpcurl_problems(command, reference):
    rpc = next((word for word in command if re.fullmatch(r"contextd\.v1\.\w+/\w+", word)), None)
    if rpc is None:
        return []
    method = reference.methods.get(rpc)
    if method is None:
        return [f"RPC {rpc} does not exist"]
    body = command[command.index("-d") + 1] if "-d" in command[:-1] else "@"
    if body.startswith("@") or "$" in body:
        return []
    return reference.wrong_fields(method["inputType"], json.loads(body))


# --- Other languages -----------------------------------------------------------------------------------


def toml(block, tools, _):
    tomllib.loads(block.text)
    return [] if block.note == "syntax" else [tools.run_on_file(block.text, ".toml", tools.contextd, "config", "validate", "--config")]


def json_text(block, *_):
    json.loads(block.text)
    return []


def python(block, tools, _):
    tree = compile(block.text, "the block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    problems = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "contextd":
            names = names_of(tools.root / "clients/python/src", node.module)
            problems += [f"{node.module} has no {alias.name}" for alias in node.names if alias.name not in names]
    return problems


def names_of(source, module):
    """The names that can be imported from a module of the client."""
    path = source / module.replace(".", "/")
    files = {p.stem for p in path.glob("*.py")} | {p.name for p in path.glob("*/")} if path.is_dir() else set()
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return files
    tree = ast.parse(file.read_text("utf-8"))
    imported = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, (ast.ImportFrom, ast.Import)) for a in n.names}
    return files | imported | {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))}


def javascript(block, tools, _):
    return [tools.run_on_file(block.text, ".mjs", "node", "--check")]


def typescript(block, tools, _):
    # Only the syntax, since a fragment uses names that it does not define.
    return [tools.run_on_file(block.text + "\nexport {};\n", ".ts", tools.tsc, "--noEmit", "--noCheck", "--noResolve", "--module", "esnext", "--target", "esnext")]


def rust(block, tools, _):
    return [tools.run("rustfmt", "--edition", "2024", "--emit", "stdout", text=f"fn block() {{\n{block.text}\n}}\n")]


def go(block, tools, _):
    text = block.text if re.search(r"^package ", block.text, re.M) else f"package block\nfunc _() {{\n{block.text}\n}}\n"
    return [tools.run("gofmt", "-e", text=text)]


def java(block, tools, _):
    """Accepts types, statements, and members without their class. Imports are moved to the top."""
    if not shutil.which("javac"):
        return []
    imports = "".join(line + "\n" for line in block.text.splitlines() if line.startswith("import "))
    rest = "\n".join("" if line.startswith("import ") else line for line in block.text.splitlines())
    types = re.search(r"^(\w+ )*(class|interface|record|enum) ", rest, re.M)
    shapes = (*(("%s",) if types else ()), "class Block { void block() throws Exception {\n%s\n} }", "class Block {\n%s\n}")
    parse = ("javac", "-J-XX:TieredStopAtLevel=1", "-proc:none", "--should-stop=ifNoError=PARSE")
    wrong = ""
    for shape in shapes:
        found = tools.run_on_file(imports + shape.replace("%s", rest), ".java", *parse)
        if not found:
            return []
        wrong = wrong or found
    return [wrong]


def xml(block, *_):
    try:
        ElementTree.fromstring(f"<block>{block.text}</block>")
    except ElementTree.ParseError as error:
        return [str(error)]
    return []


def sql(block, tools, _):
    return [tools.run("node", str(Path(__file__).with_name("sql.cjs")), str(Path(tools.sql).resolve()), text=block.text)]


def mermaid(block, tools, _):
    return [tools.parser.problem(block.text)]


LANGUAGES = {
    "console": console,
    "sh": shell,
    "bash": shell,
    "toml": toml,
    "json": json_text,
    "python": python,
    "js": javascript,
    "ts": typescript,
    "rust": rust,
    "go": go,
    "java": java,
    "xml": xml,
    "sql": sql,
    "mermaid": mermaid,
    "text": lambda *_: [],
}


class MermaidParser:
    """A single node process that parses all diagrams, because mermaid is slow to load."""

    def __init__(self, library):
        self.library, self.process = library, None

    def problem(self, text):
        if self.process is None:
            script = Path(__file__).with_name("mermaid.cjs")
            self.process = subprocess.Popen(
                ["node", str(script), str(self.library)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(10)

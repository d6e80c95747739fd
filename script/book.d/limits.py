"""Writes and checks pages that are derived from the program and the protos: docs/settings.md, the configuration schema of the chart, and the table in docs/limits.md."""

import subprocess

PAGE = "docs/limits.md"
HEAD = "| field | in | limit |\n|---|---|---|\n"
# A limit of a field in more messages than this is listed without their names.
NAMED = 3
# Subcommands of `contextd config`, and the files that contain their output.
GENERATED = {"reference": "docs/settings.md", "schema": "helm/config.schema.json"}


def check(root, contextd, env, reference):
    problems = []
    for command, name in GENERATED.items():
        run = [contextd, "config", command]
        printed = subprocess.run(run, capture_output=True, text=True, env=env, check=True).stdout
        page = root / name
        if not page.exists() or page.read_text("utf-8") != printed:
            problems.append(f"{name} is not the output of `contextd config {command}`")
    if HEAD + table(reference) != HEAD + current(root):
        problems.append(f"{PAGE}: the table differs from the options in proto/; script/book write writes it")
    return problems


def write(root, reference):
    """Writes the table of the page."""
    page = root / PAGE
    text = page.read_text("utf-8")
    page.write_text(text.replace(HEAD + current(root), HEAD + table(reference)), "utf-8")


def current(root):
    """The rows on the page."""
    rows = (root / PAGE).read_text("utf-8").partition(HEAD)[2]
    return rows.partition("\n\n")[0].rstrip("\n") + "\n"


def table(reference):
    """A row for each field name and limit, in the order of their first message. Without fields that requests do not set."""
    rows = {}
    for message in reference.messages.values():
        for field in message.get("field", []):
            if (limit := reference.limit(field)) and not limit.endswith("in requests"):
                rows.setdefault((field["name"], limit), []).append(message["name"])
    return "".join(f"| `{name}` | {where(messages)} | {limit} |\n" for (name, limit), messages in rows.items())


def where(messages):
    if len(messages) > NAMED:
        return f"{len(messages)} messages"
    return ", ".join(f"`{message}`" for message in messages)

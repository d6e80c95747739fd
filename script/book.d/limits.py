"""Checks files that are derived from the program and the protos: docs/settings.md, the configuration schema of the chart, and docs/limits.md."""

import re
import subprocess

PAGE = "docs/limits.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]*) \|", re.M)
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
    rows = {name: cell.strip() for name, cell in ROW.findall((root / PAGE).read_text("utf-8"))}
    for name, value in rows.items():
        problems += field_problems(name, value, reference)
    return problems


def field_problems(name, value, reference):
    """Checks a row `Message.field`: its value must be in the comment of the field."""
    message, _, field = name.partition(".")
    comment = reference.comment_of(f".contextd.v1.{message}", field)
    if comment is None:
        return [f"{PAGE}: the API has no {name}"]
    says = re.search(rf"(?<![\d,]){re.escape(value)}(?![\d,]*\d)", " ".join(comment.split()))
    return [] if says else [f"{PAGE}: the comment of {name} does not contain {value}"]

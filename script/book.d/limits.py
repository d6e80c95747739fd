"""docs/limits.md against the program and the protos: every setting that bounds something, and every number of the API, as it is."""

import re
import subprocess
import tomllib

PAGE = "docs/limits.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]*) \|", re.M)
DURATION = re.compile(r"\d+(ns|us|ms|s|m|h)( \d+(ms|s|m|h))*")


def settings(contextd, env):
    """{name: default} of every number, duration and unset bound in `contextd config print`."""
    printed = subprocess.run([contextd, "config", "print"], capture_output=True, text=True, env=env, check=True).stdout
    found = {}

    def walk(table, prefix):
        for key, value in table.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{key}.")
            elif not isinstance(value, bool) and (isinstance(value, (int, float)) or DURATION.fullmatch(str(value))):
                found[prefix + key] = str(value)

    walk(tomllib.loads(printed), "")
    return found


def check(root, contextd, env, reference):
    page = root / PAGE
    if not page.exists():
        return [f"{PAGE} is not there"]
    rows = {name: cell.strip() for name, cell in ROW.findall(page.read_text("utf-8"))}
    known, problems = settings(contextd, env), []
    for name, value in known.items():
        if name not in rows:
            problems.append(f"{PAGE}: the setting {name} = {value} is missing")
        elif rows[name].split(" ")[0].replace(",", "") != value.split(" ")[0]:
            problems.append(f"{PAGE}: {name} is {value} by default, not {rows[name]}")
    for name, value in rows.items():
        if name[0].isupper():
            problems += field_problems(name, value, reference)
        elif name not in known and value != "not set":
            problems.append(f"{PAGE}: there is no setting {name}")
    return problems


def field_problems(name, value, reference):
    """A row `Message.field`: the number stands in the field's comment."""
    message, _, field = name.partition(".")
    comment = reference.comment_of(f".contextd.v1.{message}", field)
    if comment is None:
        return [f"{PAGE}: the API has no {name}"]
    says = re.search(rf"(?<![\d,]){re.escape(value)}(?![\d,]*\d)", " ".join(comment.split()))
    return [] if says else [f"{PAGE}: the comment of {name} does not say {value}"]

"""examples/python is run as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Server
from scripts import call

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/python"

# Looks around, reads much, and answers: a few tasks of that fill the window.
CODER: dict[str, Any] = {
    "context_window": 9000,
    "max_output": 1000,
    "steps": [
        {"when": {"system_contains": "summar"}, "say": [{"text": "The files were read, and they are large."}]},
        {"when": {"call": 0}, "say": [call("bash", command="ls; exit 3"), call("grep", pattern="needle")]},
        {"when": {"call": 1}, "say": [{"text": "Now I read."}, call("read", path="large.txt", lines=100)]},
        {"say": [{"text": "Done: {{user}}"}]},
    ],
}
# Reads one mail, another one when it is told that it invented something, and no other.
MAIL: dict[str, Any] = {
    "steps": [
        {"when": {"user_contains": "kettle"}, "say": [{"text": '{"sender": "Anna Berg", "thing": "Blue kettle"}'}]},
        {"when": {"user_contains": "Copy them"}, "say": [{"text": '{"sender": "Tom Hill", "thing": "settings page"}'}]},
        {"say": [{"text": '{"sender": "Ole Lund", "thing": "settings page"}'}]},
    ],
}
TASKS = [f"Read everything, round {number}." for number in range(6)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server({"coder": CODER, "mail": MAIL})
    try:
        yield running.start()
    finally:
        running.remove()


def run(name: str, *arguments: str) -> str:
    env = os.environ | {"PYTHONUTF8": "1"}
    made = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd="/",
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_the_agent_takes_a_message_meanwhile(server: Server) -> None:
    said = run("host.py", server.url, "What is the weather and time in Paris?", "Keep it short, please.")
    assert said.startswith('Let me look.\n-> get_weather {"city":"Paris"}\n-> get_time {"city":"Paris"}\n')
    assert said.rstrip().endswith("tokens")


def test_the_agent_has_at_most_forty_lines() -> None:
    lines = [line for line in (EXAMPLES / "host.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 40


def test_the_coding_agent_fills_its_window_and_is_compacted(server: Server, tmp_path: Path) -> None:
    lines = [f"line {number} of a file that fills the window, word by word" for number in range(720)]
    (tmp_path / "large.txt").write_text("\n".join(lines))
    (tmp_path / "small.txt").write_text("a needle in a haystack")
    said = run("coder.py", server.url, "scripted/coder", str(tmp_path), *TASKS, "--yes")
    assert "[compacted: " in said
    assert [f"Done: {task}" in said for task in TASKS] == [True] * len(TASKS)
    assert "Context of scripted/coder" in said


@pytest.mark.parametrize("name", ["langchain_tools.py", "openai_agents_tools.py"])
def test_tools_of_another_framework_answer_the_model(server: Server, name: str) -> None:
    said = run(name, server.url, "What is the weather and time in Paris?")
    assert "18 °C and sunny in Paris (made-up demo data)" in said
    assert "14:05 in Paris (made-up demo data)" in said


def test_what_is_not_in_the_mail_is_asked_again_and_then_left_for_a_person(server: Server) -> None:
    said = run("contacts.py", server.url, "scripted/mail").splitlines()
    assert said[:3] == ["Anna Berg: Blue kettle", "  not in the mail: Ole Lund", "Tom Hill: settings page"]
    assert said[3:6] == [
        "  not in the mail: Ole Lund, settings page",
        "  not in the mail: Tom Hill, settings page",
        "  not in the mail: Tom Hill, settings page",
    ]
    assert [line.startswith("for a person: Do you deliver") for line in said[6:7]] == [True]

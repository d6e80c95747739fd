"""The blocks of README.md are run as they stand: with the wheel that CONTEXTD_WHEEL names, in a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Server

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.S | re.M)
PRELUDE = """
from contextd import Contextd

def get_weather(city: str) -> str:
    "Current weather of a city."
    return f"18 °C and sunny in {city}"

client = Contextd()
session = client.session(tools=[get_weather])
"""
ANSWER = "The weather in Paris: 18 °C and sunny in Paris"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has the wheel and nothing else; without a wheel, this one."""
    wheel = os.environ.get("CONTEXTD_WHEEL")
    if not wheel:
        return sys.executable
    place = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    found = place / "bin/python"
    subprocess.run([str(found), "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel], check=True)
    return str(found)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    try:
        yield running.start()
    finally:
        running.remove()


def run(python: str, server: Server, code: str, place: Path) -> str:
    (place / "block.py").write_text(code, "utf-8")
    env = os.environ | {"CONTEXTD_URL": server.url, "PYTHONUTF8": "1"}
    env.pop("PYTHONPATH", None)
    made = subprocess.run([python, "block.py"], cwd=place, env=env, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_the_quick_start_works_as_written(python: str, server: Server, tmp_path: Path) -> None:
    assert run(python, server, BLOCKS[0], tmp_path) == f"Let me look.{ANSWER}"
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_every_block_runs(python: str, server: Server, tmp_path: Path, number: int) -> None:
    code = BLOCKS[number]
    run(python, server, code if "asyncio.run" in code else PRELUDE + code, tmp_path)

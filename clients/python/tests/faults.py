"""A turn of three tool steps under faults: what both faces must bring through, and how it is checked."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from contextd import AsyncContextd, Contextd, Event, Result, events

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
SAID = ["Step one begins here.", "Step two goes on, with two calls.", "Step three is the last one."]
SCRIPT: dict[str, Any] = {
    "steps": [
        {
            "when": {"call": 0},
            "say": [
                {"text": SAID[0], "delay_ms": 30},
                {"tool_call": {"name": "lookup", "arguments": {"key": "a"}}},
            ],
        },
        {
            "when": {"call": 1},
            "say": [
                {"text": SAID[1], "delay_ms": 30},
                {"tool_call": {"name": "lookup", "arguments": {"key": "b"}}},
                {"tool_call": {"name": "slow_lookup", "arguments": {"key": "c"}}},
            ],
        },
        {
            "when": {"call": 2},
            "say": [
                {"text": SAID[2], "delay_ms": 30},
                {"tool_call": {"name": "slow_lookup", "arguments": {"key": "d"}}},
            ],
        },
        {"say": [{"text": f"It is {{{{result:slow_lookup}}}}. {WORDS}", "delay_ms": 30}]},
    ]
}
FINAL = f"It is <d>. {WORDS}"
CALLS = Counter({"a": 1, "b": 1, "c": 1, "d": 1})
TOOL_SECONDS = 0.15


@dataclass
class Seen:
    """What a host saw of a turn."""

    words: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    resets: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    results: list[str] = field(default_factory=list)
    result: Result | None = None
    reconnects: int = 0

    def see(self, event: Event) -> None:
        if event.seq:
            if isinstance(event, events.TextDelta):
                pass  # comes with the message that has it
            else:
                self.seqs.append(event.seq)
        if isinstance(event, events.TextDelta):
            self.words.append(event.text)
        elif isinstance(event, events.TextReset):
            self.resets += 1
        elif isinstance(event, events.ToolCallCompleted):
            self.results.append(event.text)

    def check(self) -> None:
        """Every word once, every event once, every call once."""
        assert "".join(self.words) == "".join([*SAID, FINAL])
        assert self.resets == 0
        assert self.seqs == sorted(set(self.seqs))
        assert self.seqs == list(range(self.seqs[0], self.seqs[0] + len(self.seqs)))
        assert self.calls == CALLS
        assert sorted(self.results) == ["<a>", "<b>", "<c>", "<d>"]
        assert self.result is not None
        assert (self.result.state, self.result.reason, self.result.text) == ("COMPLETED", "STOP", FINAL)
        assert self.result.steps == 4


def run_sync(url: str, session_id: str) -> Seen:
    seen = Seen()

    def lookup(key: str) -> str:
        seen.calls[key] += 1
        return f"<{key}>"

    def slow_lookup(key: str) -> str:
        seen.calls[key] += 1
        threading.Event().wait(TOOL_SECONDS)
        return f"<{key}>"

    with Contextd(url) as client:
        session = client.session(session_id, model="scripted/steps", tools=[lookup, slow_lookup])
        run = session.run("Go.")
        for event in run:
            seen.see(event)
        seen.result, seen.reconnects = run.result(), run.reconnects
    return seen


async def run_async(url: str, session_id: str) -> Seen:
    seen = Seen()

    async def lookup(key: str) -> str:
        seen.calls[key] += 1
        return f"<{key}>"

    async def slow_lookup(key: str) -> str:
        seen.calls[key] += 1
        await asyncio.sleep(TOOL_SECONDS)
        return f"<{key}>"

    async with AsyncContextd(url) as client:
        session = await client.session(session_id, model="scripted/steps", tools=[lookup, slow_lookup])
        run = session.run("Go.")
        async for event in run:
            seen.see(event)
        seen.result, seen.reconnects = await run.result(), run.reconnects
    return seen


def run_both(url: str, name: str, fault: Callable[[], None]) -> list[Seen]:
    """Runs a turn with each face at the same time, with a fault meanwhile."""
    found: dict[str, Seen] = {}
    failures: list[BaseException] = []

    def collect(face: str, work: Callable[[], Seen]) -> None:
        try:
            found[face] = work()
        except BaseException as error:
            failures.append(error)

    faces: Iterable[tuple[str, Callable[[], Seen]]] = [
        ("sync", lambda: run_sync(url, f"{name}-sync")),
        ("async", lambda: asyncio.run(run_async(url, f"{name}-async"))),
    ]
    threads = [threading.Thread(target=collect, args=face) for face in faces]
    for thread in threads:
        thread.start()
    fault()
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive(), "the turn does not end"
    if failures:
        raise failures[0]
    return [found["sync"], found["async"]]

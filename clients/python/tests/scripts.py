"""The models of the shared server."""

from __future__ import annotations

from typing import Any

from faults import SCRIPT


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"name": name, "arguments": arguments}}


def one_tool(name: str, **arguments: Any) -> dict[str, Any]:
    """A model that calls a tool and repeats its result."""
    return {
        "steps": [
            {"when": {"call": 0}, "say": [call(name, **arguments)]},
            {"say": [{"text": f"Result: {{{{result:{name}}}}}"}]},
        ]
    }


SCRIPTS: dict[str, Any] = {
    "steps": SCRIPT,
    "delete": one_tool("delete_file", path="/tmp/x"),
    "sleep": one_tool("sleep", seconds=30),
    "fail-tool": one_tool("broken"),
    "unknown": one_tool("not_offered"),
    "book": one_tool("book", place={"city": "Jena"}, nights=2),
    "book-wrongly": one_tool("book", place="Jena"),
    "mcp-add": one_tool("add", a=2, b=3),
    "mcp-prefixed": one_tool("it_add", a=2, b=3),
    "mcp-fail": one_tool("fail"),
    "mcp-long": {"steps": [{"when": {"call": 0}, "say": [call("long")]}, {"say": [{"text": "Long."}]}]},
    "parallel": {
        "steps": [
            {"when": {"call": 0}, "say": [call("meet", who=who) for who in ("a", "b", "c")]},
            {"say": [{"text": "All met."}]},
        ]
    },
    "echo": {"steps": [{"say": [{"text": "You said: {{user}}"}]}]},
    "slow": {"steps": [{"say": [{"repeat": {"text": "word ", "times": 100}, "delay_ms": 100}]}]},
    "queue": {
        "steps": [
            {"when": {"call": 0, "user_contains": "begin"}, "say": [call("work")]},
            {"say": [{"text": "Then: {{user}}"}]},
        ]
    },
    "overloaded": {"steps": [{"say": [{"error": {"kind": "bad_request", "message": "no such thing"}}]}]},
    "flaky": {
        "steps": [
            {
                "say": [
                    {"text": "one two three "},
                    {"error": {"kind": "overloaded", "message": "busy", "times": 1}},
                    {"text": "four five"},
                ]
            }
        ]
    },
    "small": {
        "context_window": 3000,
        "max_output": 500,
        "steps": [
            {"when": {"system_contains": "summar"}, "say": [{"text": "A short summary."}]},
            {"say": [{"text": "Noted. "}, {"repeat": {"text": "blah ", "times": 40}}]},
        ],
    },
}

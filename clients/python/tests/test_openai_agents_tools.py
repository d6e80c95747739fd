"""Tools of the OpenAI Agents SDK as host tools: examples/python/openai_agents_tools.py."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from agents import (
    FunctionTool,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    tool_input_guardrail,
)
from agents.tool_context import ToolContext as CallContext
from openai_agents_tools import host_tool
from pydantic import BaseModel, Field

from contextd import Contextd, Run, ToolContext, events
from contextd.tools import success

CONTEXT = ToolContext("s", "t", "c-1", "book", None, False)
FAILED = "An error occurred while running the tool. Please try again."


class Place(BaseModel):
    """Where to stay."""

    city: str = Field(description="Its name")
    country: str | None = None


class Desk:
    """A tool with what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Place, int, list[str] | None, str, Any]] = []
        self.threads: list[threading.Thread] = []

    def tool(self, **options: Any) -> FunctionTool:
        def book(of: CallContext[Any], place: Place, nights: int = 1, tags: list[str] | None = None) -> dict[str, Any]:
            """Books a room.

            Args:
                nights: At most 14.
            """
            self.calls.append((place, nights, tags, of.tool_call_id, of.context))
            self.threads.append(threading.current_thread())
            return {"city": place.city, "nights": nights}

        return function_tool(book, **options)


def outcomes(run: Run) -> list[tuple[str, str]]:
    return [(event.outcome, event.text) for event in run if isinstance(event, events.ToolCallCompleted)]


def test_the_model_sees_name_description_and_schema_without_the_context() -> None:
    made = host_tool(Desk().tool(strict_mode=False, needs_approval=True))
    assert (made.name, made.description, made.strict, made.needs_approval) == ("book", "Books a room.", False, True)
    assert made.schema["required"] == ["place"]
    assert set(made.schema["properties"]) == {"place", "nights", "tags"}
    assert made.schema["properties"]["nights"]["description"] == "At most 14."
    assert made.schema["$defs"]["Place"]["properties"]["city"]["description"] == "Its name"
    assert made.schema["$defs"]["Place"]["required"] == ["city"]


def test_strictness_and_the_timeout_come_over() -> None:
    @function_tool(timeout=5)
    async def wait(seconds: int = 1) -> str:
        return "done"

    made = host_tool(wait)
    assert (made.strict, made.timeout, made.schema["required"]) == (True, 5, ["seconds"])
    assert made.to_proto().timeout.seconds == 65


def test_a_call_runs_the_tool_once_with_parsed_arguments(client: Contextd) -> None:
    desk = Desk()
    run = client.session(model="scripted/book").run("go", tools=[host_tool(desk.tool(), context="the user")])
    requested = [event for event in run if isinstance(event, events.ToolCallRequested)]
    assert desk.calls == [(Place(city="Jena"), 2, None, requested[0].call_id, "the user")]
    assert desk.threads[0] is not threading.main_thread()
    assert run.result().text == 'Result: {"city": "Jena", "nights": 2}'


def test_a_coroutine_is_a_tool(client: Contextd) -> None:
    @function_tool
    async def book(place: Place, nights: int) -> str:
        return f"{nights} nights in {place.city}"

    run = client.session(model="scripted/book").run("go", tools=[host_tool(book)])
    assert run.result().text == "Result: 2 nights in Jena"


def test_an_error_of_a_tool_is_an_error_in_the_words_of_the_sdk(client: Contextd) -> None:
    @function_tool
    def broken() -> str:
        raise OSError("the disk is full")

    run = client.session(model="scripted/fail-tool").run("go", tools=[host_tool(broken)])
    assert outcomes(run) == [("ERROR", FAILED)]


def test_an_error_that_the_sdk_lets_through_is_named(client: Contextd) -> None:
    @function_tool(failure_error_function=None)
    def broken() -> str:
        raise OSError("the disk is full")

    run = client.session(model="scripted/fail-tool").run("go", tools=[host_tool(broken)])
    assert outcomes(run) == [("ERROR", "OSError: the disk is full")]


def test_arguments_that_do_not_fit_are_an_error_and_the_tool_is_not_run(client: Contextd) -> None:
    desk = Desk()
    run = client.session(model="scripted/book-wrongly").run("go", tools=[host_tool(desk.tool())])
    assert outcomes(run) == [("ERROR", FAILED)]
    assert desk.calls == []


async def test_pictures_and_files_stay_what_they_are() -> None:
    @function_tool
    def draw() -> list[Any]:
        return [
            ToolOutputText(text="Here."),
            ToolOutputImage(image_url="data:image/jpeg;base64,iVBORw0K"),
            {"type": "image", "image_url": "https://example.com/a.webp"},
            ToolOutputFileContent(file_data="iVBORw0K", filename="a.pdf"),
        ]

    parts = success("c-1", await host_tool(draw).bind("{}", CONTEXT)()).parts
    assert parts[0].text == "Here."
    assert [(part.media.media_type, part.media.data, part.media.url) for part in parts[1:]] == [
        ("image/jpeg", b"\x89PNG\r\n", ""),
        ("image/webp", b"", "https://example.com/a.webp"),
        ("application/pdf", b"\x89PNG\r\n", ""),
    ]


async def test_lists_and_objects_are_json() -> None:
    for answer, text in (([], "[]"), (["a"], '["a"]'), ({"type": "other"}, '{"type": "other"}')):

        @function_tool
        def find(answer: Any = answer) -> Any:
            return answer

        assert success("c-1", await host_tool(find).bind("{}", CONTEXT)()).parts[0].text == text


def test_what_only_the_runner_of_the_sdk_decides_is_refused() -> None:
    @tool_input_guardrail
    def guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    async def ask(of: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return True

    for options, reason in (
        ({"needs_approval": ask}, "needs_approval"),
        ({"is_enabled": False}, "is_enabled"),
        ({"tool_input_guardrails": [guard]}, "guardrails"),
    ):
        with pytest.raises(ValueError, match=reason):
            host_tool(Desk().tool(**options))

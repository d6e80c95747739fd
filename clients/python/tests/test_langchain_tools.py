"""Tools of LangChain as host tools: examples/python/langchain_tools.py."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException, tool
from langchain_tools import host_tool
from pydantic import BaseModel, Field

from contextd import Contextd, Run, ToolContext, events
from contextd.tools import success

CONTEXT = ToolContext("s", "t", "c-1", "book", None, False)


class Place(BaseModel):
    """Where to stay."""

    city: str = Field(description="Its name")
    country: str | None = None


class Desk:
    """A tool with what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Place, int, list[str] | None, str, str]] = []
        self.threads: list[threading.Thread] = []

    def tool(self) -> BaseTool:
        @tool
        def book(
            place: Place,
            config: RunnableConfig,
            call: Annotated[str, InjectedToolCallId],
            nights: int = 1,
            tags: list[str] | None = None,
        ) -> dict[str, Any]:
            """Books a room."""
            self.calls.append((place, nights, tags, call, config["configurable"]["thread_id"]))
            self.threads.append(threading.current_thread())
            return {"city": place.city, "nights": nights}

        return book


def outcomes(run: Run) -> list[tuple[str, str]]:
    return [(event.outcome, event.text) for event in run if isinstance(event, events.ToolCallCompleted)]


def test_the_model_sees_name_description_and_schema_without_what_is_injected() -> None:
    made = host_tool(Desk().tool(), timeout=10, needs_approval=True)
    assert (made.name, made.description, made.timeout, made.needs_approval) == ("book", "Books a room.", 10, True)
    assert made.schema["required"] == ["place"]
    assert set(made.schema["properties"]) == {"place", "nights", "tags"}
    place = made.schema["properties"]["place"]
    assert place["properties"]["city"] == {"description": "Its name", "type": "string"}
    assert place["required"] == ["city"]
    assert made.schema["properties"]["nights"] == {"default": 1, "type": "integer"}
    assert made.schema["properties"]["tags"]["anyOf"][1] == {"type": "null"}


def test_a_call_runs_the_tool_once_with_parsed_arguments(client: Contextd) -> None:
    desk = Desk()
    session = client.session(model="scripted/book")
    run = session.run("go", tools=[host_tool(desk.tool())])
    seen = list(run)
    requested = [event for event in seen if isinstance(event, events.ToolCallRequested)]
    assert desk.calls == [(Place(city="Jena"), 2, None, requested[0].call_id, session.id)]
    assert desk.threads[0] is not threading.main_thread()
    assert run.result().text == 'Result: {"city": "Jena", "nights": 2}'


def test_a_coroutine_is_a_tool(client: Contextd) -> None:
    @tool
    async def book(place: Place, nights: int) -> str:
        """Books a room."""
        return f"{nights} nights in {place.city}"

    run = client.session(model="scripted/book").run("go", tools=[host_tool(book)])
    assert run.result().text == "Result: 2 nights in Jena"


@pytest.mark.parametrize("handled", [False, True])
def test_an_error_of_a_tool_is_an_error_for_the_model(client: Contextd, handled: bool) -> None:
    def broken() -> str:
        raise ToolException("the disk is full")

    made = StructuredTool.from_function(broken, description="Fails.", handle_tool_error=handled)
    run = client.session(model="scripted/fail-tool").run("go", tools=[host_tool(made)])
    assert outcomes(run) == [("ERROR", "the disk is full")]


def test_an_error_that_is_no_tool_exception_is_named(client: Contextd) -> None:
    @tool
    def broken() -> str:
        """Fails."""
        raise OSError("the disk is full")

    run = client.session(model="scripted/fail-tool").run("go", tools=[host_tool(broken)])
    assert outcomes(run) == [("ERROR", "OSError: the disk is full")]


def test_arguments_that_do_not_fit_are_an_error_and_the_tool_is_not_run(client: Contextd) -> None:
    desk = Desk()
    run = client.session(model="scripted/book-wrongly").run("go", tools=[host_tool(desk.tool())])
    [(outcome, text)] = outcomes(run)
    assert outcome == "ERROR"
    assert text.startswith("ValidationError: ")
    assert "place" in text
    assert desk.calls == []


async def test_pictures_stay_pictures() -> None:
    @tool
    def draw() -> list[dict[str, Any]]:
        """Draws."""
        return [
            {"type": "text", "text": "Here."},
            {"type": "image", "base64": "iVBORw0K", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}},
        ]

    parts = success("c-1", await host_tool(draw).bind("{}", CONTEXT)()).parts
    assert [(part.text, part.media.media_type, part.media.data) for part in parts] == [
        ("Here.", "", b""),
        ("", "image/png", b"\x89PNG\r\n"),
        ("", "image/png", b"\x89PNG\r\n"),
    ]


def test_a_tool_that_needs_the_state_of_a_graph_is_refused() -> None:
    @tool
    def look(state: Annotated[dict[str, Any], InjectedToolArg], city: str) -> str:
        """Looks into the graph's state."""
        return city

    with pytest.raises(ValueError, match="look takes state from a graph"):
        host_tool(look)

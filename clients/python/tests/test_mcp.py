"""Tools of MCP servers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Server, free_port

from contextd import AsyncContextd, Contextd, Media, events
from contextd.mcp import McpTools, mcp_tools, mcp_tools_async

COMMAND = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


@pytest.fixture(scope="module")
def stdio() -> Iterator[McpTools]:
    with mcp_tools(COMMAND) as tools:
        yield tools


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def test_tools_have_the_definitions_of_the_server(stdio: McpTools) -> None:
    by_name = {each.name: each for each in stdio}
    assert set(by_name) == {"add", "fail", "picture", "long"}
    assert by_name["add"].description == "Adds two numbers."
    assert set(by_name["add"].schema["properties"]) == {"a", "b"}
    assert by_name["add"].category == "mcp"


def test_a_turn_calls_a_server_over_stdio(client: Contextd, stdio: McpTools) -> None:
    session = client.session(model="scripted/mcp-add", tools=[*stdio])
    assert session.run_text("go") == "Result: 5"


def test_a_turn_calls_a_server_over_http(client: Contextd, address: str) -> None:
    with mcp_tools(address, prefix="it_", headers={"X-Test": "1"}) as tools:
        session = client.session(model="scripted/mcp-prefixed", tools=[*tools])
        assert session.run_text("go") == "Result: 5"


async def test_a_turn_of_asyncio_calls_a_server(server: Server) -> None:
    with await mcp_tools_async(COMMAND, only=["add"]) as tools:
        assert [each.name for each in tools] == ["add"]
        async with AsyncContextd(server.url) as client:
            session = await client.session(model="scripted/mcp-add", tools=[*tools])
            assert await session.run_text("go") == "Result: 5"


def test_an_error_of_the_server_reaches_the_model(client: Contextd, stdio: McpTools) -> None:
    run = client.session(model="scripted/mcp-fail", tools=[*stdio]).run("go")
    results = [event for event in run if isinstance(event, events.ToolCallCompleted)]
    assert [(each.outcome, "on purpose" in each.text) for each in results] == [("ERROR", True)]


def test_a_long_result_is_cut_by_contextd(client: Contextd, stdio: McpTools) -> None:
    session = client.session(model="scripted/mcp-long", tools=[*stdio])
    session.run("go").result()
    (result,) = [result for message in session.messages() for result in message.tool_results]
    assert result.truncation.original_chars == 500_000


async def test_pictures_become_media(stdio: McpTools) -> None:
    output: Any = await next(each for each in stdio if each.name == "picture")()
    assert output.parts == [Media("image/png", data=b"\x89PNG\r\n")]


def test_a_server_that_died_is_started_again(client: Contextd) -> None:
    with mcp_tools(COMMAND, only=["add"]) as tools:
        tools.server.close()
        assert client.session(model="scripted/mcp-add", tools=[*tools]).run_text("go") == "Result: 5"


def test_a_server_that_does_not_start_is_an_error() -> None:
    with pytest.raises(Exception, match=r"no-such-program|No such file"):
        mcp_tools("no-such-program-at-all")

"""Tools of LangChain and LangGraph as tools of a session: `host_tool` makes one of the other.

python langchain_tools.py http://localhost:7070 "What is the weather and time in Paris?"
"""

import base64
import json
import sys
from typing import Any, Literal

from langchain_core.messages import ContentBlock, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field

import contextd
from contextd import Contextd, Media, ToolContext, ToolError, ToolOutput


def host_tool(made: BaseTool, *, timeout: float | None = None, needs_approval: bool = False) -> contextd.Tool:
    """The tool with its name, description and schema. The session's id is its `thread_id`."""
    if graph := sorted(injected_by_graph(made)):
        raise ValueError(f"{made.name} takes {', '.join(graph)} from a graph: a session has none")
    definition = convert_to_openai_tool(made)["function"]

    async def call(context: ToolContext, /, **arguments: Any) -> ToolOutput:
        request = {"type": "tool_call", "id": context.call_id, "name": made.name, "args": arguments}
        try:
            answer = await made.ainvoke(request, {"configurable": {"thread_id": context.session_id}})
        except ToolException as error:
            raise ToolError(str(error)) from error
        if not isinstance(answer, ToolMessage):
            raise TypeError(f"{made.name} returned {type(answer).__name__}, which is for a graph")
        return ToolOutput([piece(block) for block in answer.content_blocks], is_error=answer.status == "error")

    return contextd.tool(
        name=definition["name"],
        description=definition["description"],
        schema=definition["parameters"],
        timeout=timeout,
        needs_approval=needs_approval,
    )(call)


def injected_by_graph(made: BaseTool) -> set[str]:
    """The arguments that neither the model gives nor the call: state, store and runtime of a graph."""
    given, shown = made.get_input_schema(), made.tool_call_schema
    if isinstance(shown, dict) or not issubclass(given, BaseModel) or not issubclass(shown, BaseModel):
        return set()
    hidden = {name: field for name, field in given.model_fields.items() if name not in shown.model_fields}
    return {name for name, field in hidden.items() if field.is_required() and InjectedToolCallId not in field.metadata}


def piece(block: ContentBlock) -> str | Media:
    """A block of a result: text, media, or anything else as JSON."""
    if block["type"] == "text":
        return block["text"]
    data, url, media_type = block.get("base64"), block.get("url"), block.get("mime_type")
    if isinstance(media_type, str) and isinstance(data, str):
        return Media(media_type, data=base64.b64decode(data))
    if isinstance(media_type, str) and isinstance(url, str):
        return Media(media_type, url=url)
    return json.dumps(block)


# The tools of an agent that exists already.


class Options(BaseModel):
    """How to write a time."""

    style: Literal["short", "long"] = Field(default="short", description="Long has the word for the time of day")


@tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 °C and sunny in {city} (made-up demo data)"


@tool
async def get_time(city: str, options: Options | None = None) -> str:
    """Local time of a city."""
    time = "14:05 in the afternoon" if options and options.style == "long" else "14:05"
    return f"{time} in {city} (made-up demo data)"


def main(server: str, text: str) -> None:
    """Runs a turn with them."""
    with Contextd(server) as client:
        session = client.session(instructions="You are a travel guide.")
        tools = [host_tool(get_weather, timeout=10), host_tool(get_time, timeout=10)]
        print(session.run_text(text, tools=tools))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Tools of the OpenAI Agents SDK as tools of a session: `host_tool` makes one of the other.

python openai_agents_tools.py http://localhost:7070 "What is the weather and time in Paris?"
"""

import base64
import json
import mimetypes
import sys
from typing import Annotated, Any, Literal

from agents import FunctionTool, RunConfig, ToolOutputFileContent, ToolOutputImage, ToolOutputText, function_tool
from agents.run_config import ToolErrorFormatterArgs
from agents.tool_context import ToolContext
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

import contextd
from contextd import Contextd, Media, ToolOutput

Structured = ToolOutputText | ToolOutputImage | ToolOutputFileContent
STRUCTURED: TypeAdapter[list[Structured]] = TypeAdapter(list[Annotated[Structured, Field(discriminator="type")]])


def host_tool(made: FunctionTool, context: Any = None) -> contextd.Tool:
    """The tool with its name, description, schema, timeout and approval. `context` is what the SDK calls `context`."""
    needs_approval = made.needs_approval
    if not isinstance(needs_approval, bool) or made.is_enabled is not True:
        raise ValueError(f"{made.name}: only the SDK's runner calls needs_approval and is_enabled; decide before")
    if made.tool_input_guardrails or made.tool_output_guardrails:
        raise ValueError(f"{made.name} has guardrails, which only the SDK's runner applies")

    async def call(of: contextd.ToolContext, /, **arguments: Any) -> Any:
        failures: list[Exception | None] = []

        def note(failure: ToolErrorFormatterArgs[Any]) -> str:
            failures.append(failure.error)
            return failure.default_message

        arguments_json = json.dumps(arguments)
        answer = await made.on_invoke_tool(
            ToolContext(
                context,
                tool_name=made.name,
                tool_call_id=of.call_id,
                tool_arguments=arguments_json,
                run_config=RunConfig(tool_error_formatter=note),
            ),
            arguments_json,
        )
        return ToolOutput(str(answer), is_error=True) if failures else output(answer)

    return contextd.tool(
        name=made.name,
        description=made.description,
        schema=made.params_json_schema,
        strict=made.strict_json_schema,
        timeout=made.timeout_seconds,
        needs_approval=needs_approval,
    )(call)


def output(answer: Any) -> Any:
    """A result as contextd takes it: the SDK's texts, images and files as parts, anything else as it is."""
    try:
        parts = STRUCTURED.validate_python(answer if answer and isinstance(answer, list) else [answer])
    except ValidationError:
        return answer
    return ToolOutput([piece(part) for part in parts])


def piece(part: Structured) -> str | Media:
    """One part of it."""
    if isinstance(part, ToolOutputText):
        return part.text
    if isinstance(part, ToolOutputImage):
        return media(part.image_url, "image/png", "")
    if part.file_data and not part.file_data.startswith("data:"):
        return media(f"data:;base64,{part.file_data}", "application/octet-stream", part.filename or "")
    return media(part.file_data or part.file_url, "application/octet-stream", part.filename or "")


def media(address: str | None, media_type: str, filename: str) -> Media:
    """What is at an address or in a `data:` URL; `media_type` if neither this nor a name says what it is."""
    if address is None:
        raise ValueError("a file_id can be read by OpenAI only: return the content or an address")
    guessed = mimetypes.guess_type(filename or address)[0] or media_type
    if not address.startswith("data:"):
        return Media(guessed, url=address, filename=filename)
    head, _, data = address.removeprefix("data:").partition(",")
    return Media(head.removesuffix(";base64") or guessed, data=base64.b64decode(data), filename=filename)


# The tools of an agent that exists already.


class Options(BaseModel):
    """How to write a time."""

    style: Literal["short", "long"] = Field(default="short", description="Long has the word for the time of day")


@function_tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 °C and sunny in {city} (made-up demo data)"


@function_tool(strict_mode=False)
async def get_time(city: str, options: Options | None = None) -> str:
    """Local time of a city."""
    time = "14:05 in the afternoon" if options and options.style == "long" else "14:05"
    return f"{time} in {city} (made-up demo data)"


def main(server: str, text: str) -> None:
    """Runs a turn with them."""
    with Contextd(server) as client:
        session = client.session(instructions="You are a travel guide.")
        print(session.run_text(text, tools=[host_tool(get_weather), host_tool(get_time)]))


if __name__ == "__main__":
    main(*sys.argv[1:])

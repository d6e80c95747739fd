"""Tools that run in the host: functions with the definition that contextd and the model need."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, Union, overload

from ._core.schema import Signature, arguments_for, signature_of, takes_context
from .content import Media, Piece, parts_of
from .errors import ToolError
from .options import chosen
from .v1 import message_pb2, tool_pb2, turn_pb2, usage_pb2

# Texts of one result; contextd keeps far less of it (120,000 characters by default) and refuses more than 3 MiB.
MAX_RESULT_BYTES = 2 * 1024 * 1024
# Additional time that contextd waits for a result, for lost connections, restarts and latency.
MARGIN_SECONDS = 60.0
# The default time that contextd waits for a result (TurnLimits.tool_timeout).
DEFAULT_SECONDS = 600.0
MAX_SECONDS = 86_400.0

CATEGORIES: dict[str, usage_pb2.ContextCategory.ValueType] = {
    "tools": usage_pb2.CONTEXT_CATEGORY_TOOLS,
    "mcp": usage_pb2.CONTEXT_CATEGORY_MCP_TOOLS,
    "skills": usage_pb2.CONTEXT_CATEGORY_SKILLS,
    "agents": usage_pb2.CONTEXT_CATEGORY_AGENTS,
}


@dataclass(frozen=True)
class ToolContext:
    """The call that a tool runs for. An argument of this type is filled in and not part of the schema.

    Use `call_id` as an idempotency key: a call that a crashed host had started is run again by the next host.
    """

    session_id: str
    turn_id: str
    call_id: str
    tool_name: str
    deadline: datetime | None
    arguments_edited: bool


@dataclass(frozen=True)
class ToolOutput:
    """Output of a tool other than text: media, several parts, or an error with parts."""

    parts: Piece | Iterable[Piece]
    is_error: bool = False


@dataclass(frozen=True)
class Approval:
    """A person's decision about a call. `arguments` replace those of the model; `reason` is for the model."""

    approved: bool
    arguments: Mapping[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that waits for approval."""

    session_id: str
    turn_id: str
    call_id: str
    name: str
    arguments_json: str
    deadline: datetime | None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the model wrote."""
        parsed: dict[str, Any] = json.loads(self.arguments_json or "{}")
        return parsed


@dataclass(frozen=True)
class Tool:
    """A function with its name, description and schema. Made by `@tool`, or from a plain function by `tool(f)`."""

    name: str
    description: str
    schema: Mapping[str, Any]
    function: Callable[..., Any]
    timeout: float | None = None
    needs_approval: bool = False
    strict: bool | None = None
    category: Literal["tools", "mcp", "skills", "agents"] = "tools"
    deferred: bool = False
    max_output_chars: int | None = None
    signature: Signature | None = field(default=None, repr=False)
    context_first: bool = field(default=False, repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments_json: str, context: ToolContext) -> Callable[[], Any]:
        """Returns the call, ready to be run. Raises an exception if the arguments are invalid."""
        arguments = json.loads(arguments_json or "{}")
        if not isinstance(arguments, dict):
            raise TypeError("the arguments are not a JSON object")
        if self.signature is not None:
            arguments = arguments_for(self.signature, arguments)
            if self.signature.context_parameter:
                arguments[self.signature.context_parameter] = context
        if self.context_first:
            return lambda: self.function(context, **arguments)
        return lambda: self.function(**arguments)

    def to_proto(self) -> tool_pb2.Tool:
        """Converts the definition to the message of the API."""
        definition = tool_pb2.Tool(
            name=self.name,
            description=self.description,
            input_schema=tool_pb2.JsonSchema(json=json.dumps(self.schema, ensure_ascii=False)),
            requires_approval=self.needs_approval,
            category=chosen("category", self.category, CATEGORIES),
            deferred=self.deferred,
        )
        if self.strict is not None:
            definition.strict = self.strict
        if self.max_output_chars:
            definition.output_limits.max_output_chars = self.max_output_chars
        if patience := self._server_seconds():
            definition.timeout.FromNanoseconds(int(patience * 1e9))
        return definition

    def _server_seconds(self) -> float | None:
        """How long contextd waits for the result. This process ends the call earlier. Approvals use the default."""
        if self.timeout is None:
            return None
        seconds = min(self.timeout + MARGIN_SECONDS, MAX_SECONDS)
        return None if self.needs_approval and seconds < DEFAULT_SECONDS else seconds


ToolLike = Union[Tool, Callable[..., Any]]


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    schema: Mapping[str, Any] | None = ...,
    timeout: float | None = ...,
    needs_approval: bool = ...,
    strict: bool | None = ...,
    category: Literal["tools", "mcp", "skills", "agents"] = ...,
    deferred: bool = ...,
    max_output_chars: int | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    needs_approval: bool = False,
    strict: bool | None = None,
    category: Literal["tools", "mcp", "skills", "agents"] = "tools",
    deferred: bool = False,
    max_output_chars: int | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a function: `@tool`, or `@tool(timeout=5, needs_approval=True)`.

    The name is the function's, the description its docstring, and the schema comes from its type hints.

    Args:
        name: Name for the model. Default: the function's name.
        description: What the tool does and when to use it. Default: the docstring.
        schema: JSON schema of the arguments, which are then passed as they come. If the first parameter is of type
            `ToolContext`, the context is passed as well.
        timeout: Seconds after which the call is cancelled. The model gets an error result.
        needs_approval: Require a person's approval.
        strict: Request that the provider enforces the schema of the arguments.
        category: Category of the definition in the context statistics.
        deferred: The definition is not sent to the model.
        max_output_chars: Maximum characters of the output that the model sees.
    """

    def make(made_of: Callable[..., Any]) -> Tool:
        signature = signature_of(made_of, ToolContext) if schema is None else None
        return Tool(
            name=name or made_of.__name__,
            description=description or (signature.description if signature else inspect.getdoc(made_of) or ""),
            schema=schema if schema is not None else (signature.schema if signature else {}),
            function=made_of,
            timeout=timeout,
            needs_approval=needs_approval,
            strict=strict,
            category=category,
            deferred=deferred,
            max_output_chars=max_output_chars,
            signature=signature,
            context_first=schema is not None and takes_context(made_of, ToolContext),
        )

    return make if function is None else make(function)


def tools_by_name(tools: Iterable[ToolLike]) -> dict[str, Tool]:
    """Converts functions to tools. Returns the tools by name."""
    found: dict[str, Tool] = {}
    for each in tools:
        made = each if isinstance(each, Tool) else tool(each)
        if made.name in found:
            raise ValueError(f"two tools are called {made.name!r}")
        found[made.name] = made
    return found


def tool_set(tools: Mapping[str, Tool]) -> tool_pb2.ToolSet:
    """Converts tools to the message of the API."""
    return tool_pb2.ToolSet(host_tools=[each.to_proto() for each in tools.values()])


def success(call_id: str, output: Any) -> message_pb2.ToolResult:
    """Returns the result of a successful call."""
    is_error = False
    if isinstance(output, ToolOutput):
        is_error = output.is_error
        single = isinstance(output.parts, (str, Media, message_pb2.Part))
        parts = parts_of(output.parts if single else list(output.parts))  # type: ignore[arg-type]
    else:
        parts = _parts(output)
    outcome = message_pb2.TOOL_OUTCOME_ERROR if is_error else message_pb2.TOOL_OUTCOME_SUCCESS
    return message_pb2.ToolResult(call_id=call_id, parts=_cut(parts), outcome=outcome)


def failure(call_id: str, error: BaseException | str) -> message_pb2.ToolResult:
    """Returns the result of a failed call. The model reads the cause and can react to it."""
    if isinstance(error, (str, ToolError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    parts = _cut([message_pb2.Part(text=text or "failed")])
    return message_pb2.ToolResult(call_id=call_id, parts=parts, outcome=message_pb2.TOOL_OUTCOME_ERROR)


def _parts(output: Any) -> list[message_pb2.Part]:
    if output is None:
        return []
    if isinstance(output, (str, Media, message_pb2.Part)):
        return parts_of(output) if output != "" else []
    if isinstance(output, (list, tuple)) and output and all(isinstance(o, (Media, message_pb2.Part)) for o in output):
        return parts_of(output)
    return [message_pb2.Part(text=json.dumps(output, ensure_ascii=False, default=_plain))]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


def _cut(parts: list[message_pb2.Part]) -> list[message_pb2.Part]:
    room = MAX_RESULT_BYTES
    for part in parts:
        if len(data := part.text.encode("utf-8", "replace")) > room:
            part.text = data[:room].decode("utf-8", "ignore") + f"\n[cut here: {len(data)} bytes in all]"
        room = max(0, room - len(data))
    return parts


def context_of(session_id: str, turn_id: str, pending: turn_pb2.PendingCall) -> ToolContext:
    """Returns the context of a pending call."""
    deadline = pending.deadline.ToDatetime(timezone.utc) if pending.HasField("deadline") else None
    call = pending.call
    return ToolContext(session_id, turn_id, call.call_id, call.tool_name, deadline, pending.arguments_edited)

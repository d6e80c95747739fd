"""The actions that a stream requests from its shell. The shell reports the outcome by the method named here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..events import AnyEvent
from ..results import Result
from ..tools import ApprovalRequest, Tool
from ..v1 import turn_pb2, turn_service_pb2

StreamRequest = Union[turn_service_pb2.ExecuteTurnRequest, turn_service_pb2.WatchEventsRequest]


@dataclass(frozen=True)
class Open:
    """Open a stream; report its events with `on_event` and its end with `on_end`, both with this number."""

    connection: int
    request: StreamRequest


@dataclass(frozen=True)
class Close:
    """Close the stream: it was silent for too long, or is no longer needed."""

    connection: int


@dataclass(frozen=True)
class RunTool:
    """Run a tool and report with `on_tool_result`."""

    tool: Tool
    turn_id: str
    pending: turn_pb2.PendingCall


@dataclass(frozen=True)
class DropTool:
    """The result of this call is no longer needed: stop the tool if possible."""

    call_id: str


@dataclass(frozen=True)
class ForgetCall:
    """This call is closed: its result is no longer needed."""

    call_id: str


@dataclass(frozen=True)
class AskApproval:
    """Ask the host's callback and report with `on_approval`."""

    request: ApprovalRequest


@dataclass(frozen=True)
class Submit:
    """Send answers and report with `on_submitted` or `on_submit_failed`, with this number."""

    number: int
    request: turn_service_pb2.SubmitToolResultsRequest


@dataclass(frozen=True)
class Emit:
    """Yield an event to the caller."""

    event: AnyEvent


@dataclass(frozen=True)
class Finish:
    """End the stream. `result` is `None` for streams that are not limited to one turn.

    `unseen` is the id of the message whose text belongs to the result, if it was committed before this stream began.
    """

    result: Result | None
    unseen: str = ""


@dataclass(frozen=True)
class Fail:
    """End the stream with this exception."""

    error: Exception


Action = Union[Open, Close, RunTool, DropTool, ForgetCall, AskApproval, Submit, Emit, Finish, Fail]

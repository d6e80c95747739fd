"""What a stream asks its shell to do. The shell does it and reports back by the method that is named here."""

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
    """Give that stream up: it has been silent for too long, or is not needed any more."""

    connection: int


@dataclass(frozen=True)
class RunTool:
    """Run a tool and report with `on_tool_result`."""

    tool: Tool
    turn_id: str
    pending: turn_pb2.PendingCall


@dataclass(frozen=True)
class DropTool:
    """The result of this call is not wanted any more: stop it if that is possible."""

    call_id: str


@dataclass(frozen=True)
class ForgetCall:
    """This call is closed: its result is not needed any more."""

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
    """Give an event to the caller."""

    event: AnyEvent


@dataclass(frozen=True)
class Finish:
    """It is over. `result` is `None` for streams that are not about one turn.

    `unseen` is the message whose words the result is to have, where it came before this stream began.
    """

    result: Result | None
    unseen: str = ""


@dataclass(frozen=True)
class Fail:
    """It is over: raise this."""

    error: Exception


Action = Union[Open, Close, RunTool, DropTool, ForgetCall, AskApproval, Submit, Emit, Finish, Fail]

"""The events of a session: one class for each kind.

`event.type` is the name of the payload in `event.proto`, and `event.raw` the event as received. Kinds that are newer
than this package are `UnknownEvent`. A resumed stream yields each event once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal, Union

from .content import Message, enum_name, result_text
from .results import Failure
from .v1 import event_pb2, message_pb2, turn_pb2


@dataclass(frozen=True)
class Event:
    """An event of a session."""

    type: ClassVar[str] = ""
    raw: event_pb2.Event = field(repr=False)

    @property
    def seq(self) -> int:
        """Position in the session. 0 for events that are not stored."""
        return self.raw.seq

    @property
    def session_id(self) -> str:
        """The session."""
        return self.raw.session_id

    @property
    def turn_id(self) -> str:
        """Id of the turn. Empty if the event belongs to no turn."""
        return self.raw.turn_id

    @property
    def step(self) -> int:
        """The step of the turn, from 1; 0 outside of steps."""
        return self.raw.step

    @property
    def replay(self) -> bool:
        """Whether the event happened before this stream began."""
        return self.raw.replay

    @property
    def time(self) -> datetime:
        """When the event happened."""
        when: datetime = self.raw.time.ToDatetime(timezone.utc)
        return when


@dataclass(frozen=True)
class TextDelta(Event):
    """More text of the response. The concatenated texts are the response; no text is delivered twice."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    message_id: str
    text: str


@dataclass(frozen=True)
class TextReset(Event):
    """The response is being generated again and differs: the text yielded so far is void.

    The new text follows as `TextDelta`. Not an event of the server.
    """

    type: ClassVar[Literal["text_reset"]] = "text_reset"
    message_id: str


@dataclass(frozen=True)
class ReasoningDelta(Event):
    """More of the model's reasoning."""

    type: ClassVar[Literal["reasoning_delta"]] = "reasoning_delta"
    message_id: str
    text: str


@dataclass(frozen=True)
class ReasoningReset(Event):
    """The same as `TextReset`, for the reasoning."""

    type: ClassVar[Literal["reasoning_reset"]] = "reasoning_reset"
    message_id: str


@dataclass(frozen=True)
class ToolInputDelta(Event):
    """More of the arguments of a call that the model is writing. For display only."""

    type: ClassVar[Literal["tool_input_delta"]] = "tool_input_delta"
    message_id: str
    call_id: str
    name: str
    text: str


@dataclass(frozen=True)
class Admitted(Event):
    """How the turn was admitted: `"STARTED"`, `"QUEUED"` or `"ATTACHED"`."""

    type: ClassVar[Literal["admitted"]] = "admitted"
    admission: str
    queued_message_id: str


@dataclass(frozen=True)
class TurnStarted(Event):
    """A turn began."""

    type: ClassVar[Literal["turn_started"]] = "turn_started"

    @property
    def payload(self) -> event_pb2.TurnStarted:
        """The whole payload."""
        return self.raw.turn_started


@dataclass(frozen=True)
class StepStarted(Event):
    """A step began: the model is about to be called."""

    type: ClassVar[Literal["step_started"]] = "step_started"

    @property
    def payload(self) -> event_pb2.StepStarted:
        """The whole payload."""
        return self.raw.step_started


@dataclass(frozen=True)
class MessageCommitted(Event):
    """A message is final, in full."""

    type: ClassVar[Literal["message_committed"]] = "message_committed"
    message: Message


@dataclass(frozen=True)
class ToolCallRequested(Event):
    """A tool call was requested. This package runs it if the tool is one of the run's (`handled`)."""

    type: ClassVar[Literal["tool_call_requested"]] = "tool_call_requested"
    call_id: str
    name: str
    arguments_json: str
    handled: bool

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments."""
        return arguments_of(self.arguments_json)


@dataclass(frozen=True)
class ApprovalRequested(Event):
    """A call needs a person's decision: by `on_approval`, or by `session.approve` or `session.deny`."""

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    call_id: str
    name: str
    arguments_json: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments."""
        return arguments_of(self.arguments_json)


@dataclass(frozen=True)
class ToolCallCompleted(Event):
    """A call has its result. `outcome` is a name of `ToolOutcome`, such as `"SUCCESS"`."""

    type: ClassVar[Literal["tool_call_completed"]] = "tool_call_completed"
    call_id: str
    name: str
    outcome: str
    text: str


@dataclass(frozen=True)
class ToolCallCancelled(Event):
    """A call was closed without a result. `reason` is a name of `ToolCallCancelReason`."""

    type: ClassVar[Literal["tool_call_cancelled"]] = "tool_call_cancelled"
    call_id: str
    name: str
    reason: str


@dataclass(frozen=True)
class UsageRecorded(Event):
    """The usage of a model call was recorded."""

    type: ClassVar[Literal["usage_recorded"]] = "usage_recorded"

    @property
    def payload(self) -> event_pb2.UsageRecorded:
        """The whole payload."""
        return self.raw.usage_recorded


@dataclass(frozen=True)
class UnsupportedInput(Event):
    """The model does not accept a part of the input or a setting. Has the replacement that was sent."""

    type: ClassVar[Literal["unsupported_input"]] = "unsupported_input"

    @property
    def payload(self) -> event_pb2.UnsupportedInput:
        """The whole payload."""
        return self.raw.unsupported_input


@dataclass(frozen=True)
class TurnRetrying(Event):
    """A step is repeated after a failure of the model's service."""

    type: ClassVar[Literal["turn_retrying"]] = "turn_retrying"
    failure: Failure
    next_attempt: int
    delay: float


@dataclass(frozen=True)
class TurnRecovered(Event):
    """Another replica took the turn over."""

    type: ClassVar[Literal["turn_recovered"]] = "turn_recovered"

    @property
    def payload(self) -> event_pb2.TurnRecovered:
        """The whole payload."""
        return self.raw.turn_recovered


@dataclass(frozen=True)
class ModelSwitched(Event):
    """The session's model changed."""

    type: ClassVar[Literal["model_switched"]] = "model_switched"

    @property
    def payload(self) -> event_pb2.ModelSwitched:
        """The whole payload."""
        return self.raw.model_switched


@dataclass(frozen=True)
class ModelFallback(Event):
    """The turn continues with another model."""

    type: ClassVar[Literal["model_fallback"]] = "model_fallback"

    @property
    def payload(self) -> event_pb2.ModelFallback:
        """The whole payload."""
        return self.raw.model_fallback


@dataclass(frozen=True)
class SessionUpdated(Event):
    """The session's configuration changed."""

    type: ClassVar[Literal["session_updated"]] = "session_updated"

    @property
    def payload(self) -> event_pb2.SessionUpdated:
        """The whole payload."""
        return self.raw.session_updated


@dataclass(frozen=True)
class TurnCompleted(Event):
    """The turn completed. `reason` is a name of `CompletionReason`."""

    type: ClassVar[Literal["turn_completed"]] = "turn_completed"
    reason: str


@dataclass(frozen=True)
class TurnCancelled(Event):
    """The turn was cancelled. `cause` is a name of `CancelCause`."""

    type: ClassVar[Literal["turn_cancelled"]] = "turn_cancelled"
    cause: str


@dataclass(frozen=True)
class TurnFailed(Event):
    """The turn failed."""

    type: ClassVar[Literal["turn_failed"]] = "turn_failed"
    failure: Failure


@dataclass(frozen=True)
class MessageQueued(Event):
    """A message was queued."""

    type: ClassVar[Literal["message_queued"]] = "message_queued"
    queued_message_id: str
    position: int


@dataclass(frozen=True)
class MessagesApplied(Event):
    """Queued messages became one user message."""

    type: ClassVar[Literal["messages_applied"]] = "messages_applied"
    message_id: str
    queued_message_ids: tuple[str, ...]


@dataclass(frozen=True)
class QueuedMessageCancelled(Event):
    """A queued message was withdrawn."""

    type: ClassVar[Literal["queued_message_cancelled"]] = "queued_message_cancelled"
    queued_message_id: str


@dataclass(frozen=True)
class QueuedMessageExpired(Event):
    """A queued message expired before it was taken."""

    type: ClassVar[Literal["queued_message_expired"]] = "queued_message_expired"
    queued_message_id: str


@dataclass(frozen=True)
class QueuedMessageDropped(Event):
    """A queued message was dropped by the server."""

    type: ClassVar[Literal["queued_message_dropped"]] = "queued_message_dropped"
    queued_message_id: str

    @property
    def payload(self) -> event_pb2.QueuedMessageDropped:
        """The whole payload."""
        return self.raw.queued_message_dropped


@dataclass(frozen=True)
class ContextPruned(Event):
    """Old tool results were pruned."""

    type: ClassVar[Literal["context_pruned"]] = "context_pruned"

    @property
    def payload(self) -> event_pb2.ContextPruned:
        """The whole payload."""
        return self.raw.context_pruned


@dataclass(frozen=True)
class ContextRestored(Event):
    """Pruned tool results were restored."""

    type: ClassVar[Literal["context_restored"]] = "context_restored"

    @property
    def payload(self) -> event_pb2.ContextRestored:
        """The whole payload."""
        return self.raw.context_restored


@dataclass(frozen=True)
class CompactionStarted(Event):
    """A compaction began."""

    type: ClassVar[Literal["compaction_started"]] = "compaction_started"

    @property
    def payload(self) -> event_pb2.CompactionStarted:
        """The whole payload."""
        return self.raw.compaction_started


@dataclass(frozen=True)
class CompactionCompleted(Event):
    """A compaction is in force."""

    type: ClassVar[Literal["compaction_completed"]] = "compaction_completed"

    @property
    def payload(self) -> event_pb2.CompactionCompleted:
        """The whole payload."""
        return self.raw.compaction_completed


@dataclass(frozen=True)
class CompactionFailed(Event):
    """A compaction failed. Nothing changed."""

    type: ClassVar[Literal["compaction_failed"]] = "compaction_failed"

    @property
    def payload(self) -> event_pb2.CompactionFailed:
        """The whole payload."""
        return self.raw.compaction_failed


@dataclass(frozen=True)
class CompactionReverted(Event):
    """A compaction was reverted."""

    type: ClassVar[Literal["compaction_reverted"]] = "compaction_reverted"

    @property
    def payload(self) -> event_pb2.CompactionReverted:
        """The whole payload."""
        return self.raw.compaction_reverted


@dataclass(frozen=True)
class ActionRequired(Event):
    """The turn waits for the host. This package runs the calls of the run's tools."""

    type: ClassVar[Literal["action_required"]] = "action_required"

    @property
    def payload(self) -> event_pb2.ActionRequired:
        """The whole payload."""
        return self.raw.action_required


@dataclass(frozen=True)
class Thinking(Event):
    """The model was called and has not responded yet."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    model: str


@dataclass(frozen=True)
class Notice(Event):
    """A line for users. `code` is a name of `NoticeCode`."""

    type: ClassVar[Literal["notice"]] = "notice"
    code: str
    text: str


@dataclass(frozen=True)
class UnknownEvent(Event):
    """A kind that is newer than this package."""

    type: ClassVar[Literal["unknown"]] = "unknown"


# Told apart by their class, or by `type`: type checkers know which fields an event of a type has.
AnyEvent = Union[
    TextDelta,
    TextReset,
    ReasoningDelta,
    ReasoningReset,
    ToolInputDelta,
    Admitted,
    TurnStarted,
    StepStarted,
    MessageCommitted,
    ToolCallRequested,
    ApprovalRequested,
    ToolCallCompleted,
    ToolCallCancelled,
    UsageRecorded,
    UnsupportedInput,
    TurnRetrying,
    TurnRecovered,
    ModelSwitched,
    ModelFallback,
    SessionUpdated,
    TurnCompleted,
    TurnCancelled,
    TurnFailed,
    MessageQueued,
    MessagesApplied,
    QueuedMessageCancelled,
    QueuedMessageExpired,
    QueuedMessageDropped,
    ContextPruned,
    ContextRestored,
    CompactionStarted,
    CompactionCompleted,
    CompactionFailed,
    CompactionReverted,
    ActionRequired,
    Thinking,
    Notice,
    UnknownEvent,
]


def arguments_of(arguments_json: str) -> dict[str, Any]:
    """The arguments of a call as an object."""
    parsed = json.loads(arguments_json or "{}")
    return parsed if isinstance(parsed, dict) else {}


def _completed(raw: event_pb2.Event) -> AnyEvent:
    result = raw.tool_call_completed.result
    outcome = enum_name(message_pb2.ToolOutcome, result.outcome, "TOOL_OUTCOME")
    return ToolCallCompleted(raw, result.call_id, result.tool_name, outcome, result_text(result.parts))


def _cancelled(raw: event_pb2.Event) -> AnyEvent:
    call = raw.tool_call_cancelled
    reason = enum_name(event_pb2.ToolCallCancelReason, call.reason, "TOOL_CALL_CANCEL_REASON")
    return ToolCallCancelled(raw, call.call_id, call.tool_name, reason)


def _retrying(raw: event_pb2.Event) -> AnyEvent:
    again = raw.turn_retrying
    return TurnRetrying(raw, Failure.of(again.failure), again.next_attempt, again.delay.ToTimedelta().total_seconds())


def _admitted(raw: event_pb2.Event) -> AnyEvent:
    admission = enum_name(event_pb2.Admission, raw.admitted.admission, "ADMISSION")
    return Admitted(raw, admission, raw.admitted.queued_message_id)


def _turn_completed(raw: event_pb2.Event) -> AnyEvent:
    return TurnCompleted(raw, enum_name(turn_pb2.CompletionReason, raw.turn_completed.reason, "COMPLETION_REASON"))


def _turn_cancelled(raw: event_pb2.Event) -> AnyEvent:
    return TurnCancelled(raw, enum_name(turn_pb2.CancelCause, raw.turn_cancelled.cause, "CANCEL_CAUSE"))


def _applied(raw: event_pb2.Event) -> AnyEvent:
    applied = raw.messages_applied
    return MessagesApplied(raw, applied.message_id, tuple(each.queued_message_id for each in applied.messages))


def _approval(raw: event_pb2.Event) -> AnyEvent:
    call = raw.approval_requested.call
    return ApprovalRequested(raw, call.call_id, call.tool_name, call.arguments_json)


def _notice(raw: event_pb2.Event) -> AnyEvent:
    return Notice(raw, enum_name(event_pb2.NoticeCode, raw.notice.code, "NOTICE_CODE"), raw.notice.text)


# The other kinds are read by the stream itself: text, requests of calls, heartbeats and `sync`.
_READERS: dict[str, Callable[[event_pb2.Event], AnyEvent]] = {
    "admitted": _admitted,
    "turn_started": TurnStarted,
    "step_started": StepStarted,
    "message_committed": lambda raw: MessageCommitted(raw, Message.of(raw.message_committed.message)),
    "approval_requested": _approval,
    "tool_call_completed": _completed,
    "tool_call_cancelled": _cancelled,
    "action_required": ActionRequired,
    "usage_recorded": UsageRecorded,
    "unsupported_input": UnsupportedInput,
    "turn_retrying": _retrying,
    "turn_recovered": TurnRecovered,
    "model_switched": ModelSwitched,
    "session_updated": SessionUpdated,
    "model_fallback": ModelFallback,
    "turn_completed": _turn_completed,
    "turn_cancelled": _turn_cancelled,
    "turn_failed": lambda raw: TurnFailed(raw, Failure.of(raw.turn_failed.failure)),
    "message_queued": lambda raw: MessageQueued(raw, raw.message_queued.queued_message_id, raw.message_queued.position),
    "messages_applied": _applied,
    "queued_message_cancelled": lambda raw: QueuedMessageCancelled(raw, raw.queued_message_cancelled.queued_message_id),
    "queued_message_expired": lambda raw: QueuedMessageExpired(raw, raw.queued_message_expired.queued_message_id),
    "queued_message_dropped": lambda raw: QueuedMessageDropped(raw, raw.queued_message_dropped.queued_message_id),
    "context_pruned": ContextPruned,
    "context_restored": ContextRestored,
    "compaction_started": CompactionStarted,
    "compaction_completed": CompactionCompleted,
    "compaction_failed": CompactionFailed,
    "compaction_reverted": CompactionReverted,
    "thinking": lambda raw: Thinking(raw, raw.thinking.model),
    "notice": _notice,
}

TERMINAL = frozenset({"turn_completed", "turn_cancelled", "turn_failed"})


def event_of(raw: event_pb2.Event) -> AnyEvent:
    """Converts an event to the class of its kind."""
    reader = _READERS.get(raw.WhichOneof("payload") or "")
    return reader(raw) if reader else UnknownEvent(raw)

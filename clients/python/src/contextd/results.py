"""The results of turns."""

from __future__ import annotations

from dataclasses import dataclass, field

from .content import enum_name
from .v1 import error_pb2, event_pb2, message_pb2, turn_pb2, usage_pb2


@dataclass(frozen=True)
class Usage:
    """Tokens of all model calls of a turn, including compactions."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0

    @classmethod
    def of(cls, raw: usage_pb2.UsageTotals) -> Usage:
        """Converts the totals of the API."""
        return cls(
            raw.calls,
            raw.input_tokens,
            raw.output_tokens,
            raw.reasoning_tokens,
            raw.cache_read_tokens,
            raw.cache_write_tokens,
            raw.total_tokens,
        )


@dataclass(frozen=True)
class Failure:
    """Why a turn failed. `reason` is a name of `FailureReason`, such as `"PROVIDER_TIMEOUT"`."""

    reason: str
    message: str
    recoverable: bool
    raw: error_pb2.Failure = field(repr=False)

    @classmethod
    def of(cls, raw: error_pb2.Failure) -> Failure:
        """Converts a failure of the API."""
        reason = enum_name(error_pb2.FailureReason, raw.reason, "FAILURE_REASON")
        return cls(reason, raw.message, raw.recoverable, raw)


@dataclass(frozen=True)
class Result:
    """The result of a turn.

    `state` is `"COMPLETED"`, `"CANCELLED"` or `"FAILED"`; `reason` is a name of `CompletionReason` (`"STOP"`,
    `"MAX_STEPS"`, ...), of `CancelCause`, or of `FailureReason`.
    """

    text: str
    usage: Usage
    state: str
    reason: str
    turn_id: str
    session_id: str
    steps: int
    finish_reason: str
    message_id: str
    failure: Failure | None
    raw: turn_pb2.TurnResult = field(repr=False)

    @property
    def queued_message_ids(self) -> list[str]:
        """Messages that still wait in the queue, oldest first."""
        return list(self.raw.queued_message_ids)


def result_of(event: event_pb2.Event, texts: dict[str, str]) -> Result:
    """Returns the result of a terminal event. `texts` has the text of the assistant messages by their ids."""
    failure = None
    if event.HasField("turn_completed"):
        raw = event.turn_completed.result
        state = "COMPLETED"
        reason = enum_name(turn_pb2.CompletionReason, event.turn_completed.reason, "COMPLETION_REASON")
    elif event.HasField("turn_cancelled"):
        raw, state = event.turn_cancelled.result, "CANCELLED"
        reason = enum_name(turn_pb2.CancelCause, event.turn_cancelled.cause, "CANCEL_CAUSE")
    else:
        raw, state = event.turn_failed.result, "FAILED"
        failure = Failure.of(event.turn_failed.failure)
        reason = failure.reason
    return Result(
        text=texts.get(raw.final_message_id, ""),
        usage=Usage.of(raw.total_usage),
        state=state,
        reason=reason,
        turn_id=event.turn_id,
        session_id=event.session_id,
        steps=raw.step_count,
        finish_reason=enum_name(message_pb2.FinishReason, raw.finish_reason, "FINISH_REASON"),
        message_id=raw.final_message_id,
        failure=failure,
        raw=raw,
    )

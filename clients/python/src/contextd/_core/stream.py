"""One logical stream of events over any number of connections. No sockets, no threads, no clock.

The shell opens streams and reports their events; each report returns actions. Times are seconds of a monotonic clock,
passed by the shell.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import events
from ..errors import Problem, error_of
from ..events import AnyEvent, event_of
from ..v1 import event_pb2, message_pb2, turn_service_pb2
from .actions import Action, Close, Emit, Fail, Finish, Open, StreamRequest
from .backoff import delay
from .status import is_broken_transport, may_pass
from .text import Answer, Piece

# The requested heartbeat interval, and the silence after which a stream is closed and reopened.
HEARTBEAT_SECONDS = 5
SILENCE_SECONDS = 20.0
# Number of consecutive errors that a broken connection may cause. After that, the error is reported.
ODD_ERRORS = 20

NOT_SHOWN = frozenset({"heartbeat", "sync"})


class EventStream:
    """Yields each event of a session or turn once, despite lost connections and restarts of the server."""

    def __init__(self, request: StreamRequest, reconnect_for: float, jitter: float = 0.5) -> None:
        self._request = request
        self._request.stream.heartbeat_interval.seconds = HEARTBEAT_SECONDS
        self.reconnect_for = reconnect_for
        self._jitter = jitter
        self._out: list[Action] = []
        self._over = False
        self._connection = 0
        self._connected = False
        self._open_at: float | None = None
        self._failures = 0
        self._odd = 0
        self._heard = 0.0
        self._lost_at = 0.0
        self._text, self._reasoning = Answer(), Answer()
        self._inputs: dict[tuple[str, int], int] = {}
        self.cursor = request.after_seq
        self.reconnects = 0

    # --- Reports of the shell ------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """Starts."""
        self._heard = now
        self._open(now)
        return self._take()

    def on_event(self, connection: int, event: event_pb2.Event, now: float) -> list[Action]:
        """An event was received."""
        if connection == self._connection and not self._over:
            self._heard, self._failures, self._odd = now, 0, 0
            if event.seq == 0 or event.seq > self.cursor:
                self._handle(event, now)
                self.cursor = max(self.cursor, event.seq)
        return self._take()

    def on_end(self, connection: int, problem: Problem | None, now: float) -> list[Action]:
        """A stream ended, normally or with an error."""
        if connection == self._connection and not self._over:
            self._connected = False
            if problem is None:
                self._ended(now)
            else:
                self._broke(problem, now)
        return self._take()

    def on_time(self, now: float) -> list[Action]:
        """The time of `deadline` has passed."""
        if not self._over:
            if self._open_at is not None and now >= self._open_at:
                self._open(now)
            elif self._connected and now - self._heard >= SILENCE_SECONDS:
                self._out.append(Close(self._connection))
                self._connected = False
                self._connection += 1  # later reports of that stream are ignored
                self._again(Problem("UNAVAILABLE", "the stream fell silent"), now)
            self._on_time(now)
        return self._take()

    def deadline(self) -> float | None:
        """When to call `on_time`, unless something else is reported before."""
        times = [] if self._over else [*self._deadlines()]
        if not self._over and self._open_at is not None:
            times.append(self._open_at)
        elif self._connected and not self._over:
            times.append(self._heard + SILENCE_SECONDS)
        return min(times, default=None)

    # --- What kinds of streams decide for themselves -----------------------------------------------

    def _on_payload(self, kind: str, event: event_pb2.Event, now: float) -> None:
        """An event other than text was received."""
        if kind not in NOT_SHOWN:
            self._emit(event_of(event))

    def _ended(self, now: float) -> None:
        """The stream ended normally."""
        self._finish(Finish(None))

    def _lost(self, problem: Problem, now: float) -> None:
        """The database lost events that were delivered."""
        self._finish(Fail(error_of(problem)))

    def _was_yielded(self, message_id: str) -> bool:
        """Whether the message was yielded before. A watch does not remember this, because it may run for months."""
        return False

    def _on_time(self, now: float) -> None: ...

    def _deadlines(self) -> Iterable[float]:
        return ()

    # --- Connections ---------------------------------------------------------------------------------

    def _open(self, now: float) -> None:
        self._connection += 1
        self._connected, self._open_at = True, None
        self.reconnects += self._connection > 1
        self._heard = now  # an attempt to connect may be silent for as long as a stream
        request = type(self._request)()
        request.CopyFrom(self._request)  # type: ignore[arg-type]
        request.after_seq = self.cursor
        self._out.append(Open(self._connection, request))

    def _broke(self, problem: Problem, now: float) -> None:
        if may_pass(problem):
            self._again(problem, now)
        elif is_broken_transport(problem) and self._odd < ODD_ERRORS:
            self._odd += 1
            self._again(problem, now)
        elif problem.reason == "EVENTS_EXPIRED":
            self.cursor = max(self.cursor, int(problem.metadata.get("oldest_seq", "1")) - 1)
            self._again(problem, now)
        elif problem.reason in ("EVENTS_LOST", "CURSOR_AHEAD"):
            self._lost(problem, now)
        elif problem.reason == "RATE_LIMITED" and self._may_wait():
            self._again(problem, now)
        else:
            self._finish(Fail(error_of(problem)))

    def _may_wait(self) -> bool:
        """Whether to wait for a limit of the tenant instead of reporting it."""
        return True

    def _again(self, problem: Problem, now: float) -> None:
        if self._failures == 0:
            self._lost_at = now
        wait = delay(self._failures, problem.retry_after, self._jitter)
        self._failures += 1
        if now + wait - self._lost_at > self.reconnect_for:
            self._finish(Fail(error_of(problem)))
        else:
            self._open_at = now + wait

    # --- Events --------------------------------------------------------------------------------------

    def _handle(self, event: event_pb2.Event, now: float) -> None:
        kind = event.WhichOneof("payload") or ""
        if kind == "text_delta":
            delta = event.text_delta
            self._emit_text(event, self._text.delta(delta.message_id, delta.part_index, delta.byte_offset, delta.text))
        elif kind == "reasoning_delta":
            more = event.reasoning_delta
            pieces = self._reasoning.delta(more.message_id, more.part_index, more.byte_offset, more.text)
            self._emit_reasoning(event, pieces)
        elif kind == "tool_input_delta":
            self._input_delta(event)
        elif kind == "message_committed":
            self._committed(event, now)
        else:
            if kind == "sync" and event.sync.HasField("open_message"):
                self._open_message(event, event.sync.open_message)
            self._on_payload(kind, event, now)

    def _open_message(self, event: event_pb2.Event, message: message_pb2.Message) -> None:
        self._emit_text(event, self._text.whole(message.message_id, _texts(message)))
        self._emit_reasoning(event, self._reasoning.whole(message.message_id, _reasonings(message)))

    def _committed(self, event: event_pb2.Event, now: float) -> None:
        message = event.message_committed.message
        if self._was_yielded(message.message_id):
            return
        if message.role == message_pb2.ROLE_ASSISTANT:
            self._emit_reasoning(event, self._reasoning.commit(message.message_id, _reasonings(message)))
            self._emit_text(event, self._text.commit(message.message_id, _texts(message)))
            self._inputs.clear()
        self._on_payload("message_committed", event, now)

    def _input_delta(self, event: event_pb2.Event) -> None:
        delta = event.tool_input_delta
        place = (delta.message_id, delta.part_index)
        held, data = self._inputs.get(place, 0), delta.text.encode()
        if delta.byte_offset <= held < delta.byte_offset + len(data):
            new = data[held - delta.byte_offset :].decode("utf-8", "ignore")
            self._inputs[place] = delta.byte_offset + len(data)
            self._emit(events.ToolInputDelta(event, delta.message_id, delta.call_id, delta.tool_name, new))

    def _emit_text(self, event: event_pb2.Event, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.reset:
                self._emit(events.TextReset(event, piece.message_id))
            if piece.text:
                self._emit(events.TextDelta(event, piece.message_id, piece.text))

    def _emit_reasoning(self, event: event_pb2.Event, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.reset:
                self._emit(events.ReasoningReset(event, piece.message_id))
            if piece.text:
                self._emit(events.ReasoningDelta(event, piece.message_id, piece.text))

    # --- Actions ---------------------------------------------------------------------------------------

    def _emit(self, event: AnyEvent) -> None:
        self._out.append(Emit(event))

    def _finish(self, last: Finish | Fail) -> None:
        self._over = True
        if self._connected:
            self._out.append(Close(self._connection))
            self._connected = False
        self._out.append(last)

    def _take(self) -> list[Action]:
        out, self._out = self._out, []
        return out


def _texts(message: message_pb2.Message) -> list[tuple[int, str]]:
    return [(i, part.text or part.refusal) for i, part in enumerate(message.parts) if part.text or part.refusal]


def _reasonings(message: message_pb2.Message) -> list[tuple[int, str]]:
    return [(i, part.reasoning.text) for i, part in enumerate(message.parts) if part.HasField("reasoning")]


def watch_request(session_id: str, turn_id: str, after_seq: int, follow: bool) -> turn_service_pb2.WatchEventsRequest:
    """A stream of a session, or of one turn."""
    return turn_service_pb2.WatchEventsRequest(
        session_id=session_id, turn_id=turn_id, after_seq=after_seq, follow=follow
    )

"""A turn: its stream, and the calls that the host runs for it. No sockets, no threads, no clock.

A call is run when it is requested live, or when `sync` lists it as pending and this process has not started it. A
replay starts no call. The result is kept until the server has accepted it, so that it can be sent again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timezone

from ..content import enum_name
from ..errors import InputNotTakenError, Problem, TurnFailedError, error_of
from ..events import TERMINAL, ToolCallRequested, event_of
from ..results import result_of
from ..tools import Approval, ApprovalRequest, Tool, failure
from ..v1 import event_pb2, message_pb2, queue_pb2, turn_pb2, turn_service_pb2
from .actions import Action, AskApproval, DropTool, Fail, Finish, ForgetCall, RunTool, StreamRequest, Submit
from .backoff import delay
from .status import is_broken_transport, may_pass
from .stream import NOT_SHOWN, EventStream

# Maximum waits for a limit of the tenant before the turn is admitted. After that, there is no maximum.
LIMIT_TRIES = 60
# The result for a closed call that the server requests again.
FORGOTTEN = "this call was answered before, and its result is not kept"
# Reasons for which the server rejects a single result. The model then gets an error result instead.
REFUSED_RESULTS = frozenset({"INVALID_REQUEST", "REQUEST_TOO_LARGE"})


@dataclass
class Call:
    """A tool call of this turn."""

    pending: turn_pb2.PendingCall
    due: float | None = None
    result: message_pb2.ToolResult | None = None
    refused: bool = False


@dataclass
class Submission:
    """Answers that were sent and not yet accepted."""

    request: turn_service_pb2.SubmitToolResultsRequest
    failures: int = 0
    due: float | None = None


class TurnStream(EventStream):
    """Runs a turn to its end."""

    def __init__(
        self,
        request: StreamRequest,
        tools: Mapping[str, Tool],
        reconnect_for: float,
        asks: bool = False,
        jitter: float = 0.5,
    ) -> None:
        super().__init__(request, reconnect_for, jitter)
        self.session_id = request.session_id
        # The turn whose calls this run handles: the one that the request starts, or that is watched.
        self.turn_id = request.turn_id if isinstance(request, turn_service_pb2.WatchEventsRequest) else ""
        self._request_id = request.request_id if isinstance(request, turn_service_pb2.ExecuteTurnRequest) else ""
        self._tools = tools
        self._asks = asks
        # The live turn at this position of the stream. Empty until the request is admitted.
        self.live_turn = self.turn_id
        # The id of the input in the queue, while it waits for that turn.
        self.queued_id = ""
        self._calls: dict[str, Call] = {}
        self._asked: set[str] = set()
        self._decisions: dict[str, turn_service_pb2.Approval] = {}
        self._submissions: dict[int, Submission] = {}
        self._submitted = 0
        self._texts: dict[str, str] = {}
        self._seen_messages: set[str] = set()
        self._not_taken = ""
        self._terminal: event_pb2.Event | None = None

    # --- Reports of the shell ------------------------------------------------------------------------

    def on_tool_result(self, result: message_pb2.ToolResult, now: float) -> list[Action]:
        """A tool returned or failed."""
        call = self._calls.get(result.call_id)
        if call is not None and call.result is None and not self._over:
            self._answer(call, result, now)
        return self._take()

    def on_approval(self, call_id: str, decision: Approval, now: float) -> list[Action]:
        """A person decided."""
        if not self._over:
            verdict = (
                turn_service_pb2.APPROVAL_DECISION_APPROVE
                if decision.approved
                else turn_service_pb2.APPROVAL_DECISION_DENY
            )
            edited = json.dumps(dict(decision.arguments)) if decision.arguments is not None else ""
            approval = turn_service_pb2.Approval(
                call_id=call_id, decision=verdict, edited_arguments_json=edited, reason=decision.reason
            )
            self._decisions[call_id] = approval
            self._send(turn_service_pb2.SubmitToolResultsRequest(session_id=self.session_id, approvals=[approval]))
        return self._take()

    def on_submitted(self, number: int) -> list[Action]:
        """Answers were accepted or are no longer needed. An answer that was too early is sent again on request."""
        self._submissions.pop(number, None)
        return self._take()

    def on_submit_failed(self, number: int, problem: Problem, now: float) -> list[Action]:
        """The submission of answers failed."""
        submission = self._submissions.get(number)
        if submission is not None and not self._over:
            if may_pass(problem) or is_broken_transport(problem) or problem.reason == "RATE_LIMITED":
                submission.due = now + delay(submission.failures, problem.retry_after, self._jitter)
                submission.failures += 1
            else:
                del self._submissions[number]
                self._refused(submission, problem, now)
        return self._take()

    # --- Events --------------------------------------------------------------------------------------

    def _on_payload(self, kind: str, event: event_pb2.Event, now: float) -> None:
        if event.seq > 0 and event.turn_id:
            self.live_turn = event.turn_id
        if kind == "admitted":
            if self._admitted(event):
                return
        elif kind == "sync":
            self._sync(event, now)
        elif kind == "turn_started":
            self._terminal = None
            if self._request_id and event.turn_started.request_id == self._request_id:
                self.turn_id = event.turn_id
        elif kind == "message_committed":
            message = event.message_committed.message
            if message.role == message_pb2.ROLE_ASSISTANT:
                self._texts[message.message_id] = "".join(part.text or part.refusal for part in message.parts)
        elif kind == "tool_call_requested":
            self._requested(event, now)
            return
        elif kind == "tool_call_completed":
            self._closed(event.tool_call_completed.result.call_id)
        elif kind == "tool_call_cancelled":
            self._closed(event.tool_call_cancelled.call_id)
        elif kind in TERMINAL:
            self._terminal = event
        else:
            self._note_queue(kind, event)
        if kind not in NOT_SHOWN:
            self._emit(event_of(event))
        if kind == "approval_requested" and not event.replay and self._is_ours():
            self._ask(event.approval_requested)

    def _admitted(self, event: event_pb2.Event) -> bool:
        """Whether the request was admitted before: each connection repeats the event."""
        admitted, again = event.admitted, bool(self.live_turn)
        self.session_id = event.session_id
        self.live_turn = event.turn_id
        self.queued_id = admitted.queued_message_id or self.queued_id
        if admitted.admission == event_pb2.ADMISSION_STARTED:
            self.turn_id = event.turn_id
        return again

    def _sync(self, event: event_pb2.Event, now: float) -> None:
        if event.turn_id:
            self.live_turn = event.turn_id
        if not self._is_ours():
            return
        for pending in event.sync.pending_calls:
            call = self._calls.get(pending.call.call_id)
            if call is None:
                self._begin(pending, now)
            elif call.result is not None and not self._on_its_way(pending.call.call_id):
                self._answer(call, call.result, now)
        for asked in event.sync.pending_approvals:
            decision = self._decisions.get(asked.call.call_id)
            if decision is None:
                self._ask(asked)
            elif not self._on_its_way(asked.call.call_id):
                self._send(turn_service_pb2.SubmitToolResultsRequest(session_id=self.session_id, approvals=[decision]))

    def _is_ours(self) -> bool:
        """Whether the live turn is the one that this host runs. Calls of other turns belong to other hosts."""
        return bool(self.turn_id) and self.turn_id == self.live_turn

    def _requested(self, event: event_pb2.Event, now: float) -> None:
        pending = event.tool_call_requested
        call = pending.call
        handled = self._is_ours() and pending.executor == turn_pb2.TOOL_EXECUTOR_HOST and call.tool_name in self._tools
        self._emit(ToolCallRequested(event, call.call_id, call.tool_name, call.arguments_json, handled))
        if handled and not event.replay:
            self._begin(pending, now)

    def _note_queue(self, kind: str, event: event_pb2.Event) -> None:
        """Detects that the queued input will not be taken."""
        if not self.queued_id:
            return
        if kind == "queued_message_cancelled" and event.queued_message_cancelled.queued_message_id == self.queued_id:
            self._not_taken = "CANCELLED"
        elif kind == "queued_message_expired" and event.queued_message_expired.queued_message_id == self.queued_id:
            self._not_taken = "EXPIRED"
        elif kind == "queued_message_dropped" and event.queued_message_dropped.queued_message_id == self.queued_id:
            reason = enum_name(queue_pb2.DropReason, event.queued_message_dropped.reason, "DROP_REASON")
            self._not_taken = f"DROPPED ({reason})"

    # --- Calls -----------------------------------------------------------------------------------------

    def _begin(self, pending: turn_pb2.PendingCall, now: float) -> None:
        call_id = pending.call.call_id
        tool = self._tools.get(pending.call.tool_name)
        if call_id in self._calls or tool is None or pending.executor != turn_pb2.TOOL_EXECUTOR_HOST:
            return
        due = now + tool.timeout if tool.timeout is not None else None
        self._calls[call_id] = Call(pending, due)
        self._out.append(RunTool(tool, self.turn_id, pending))

    def _answer(self, call: Call, result: message_pb2.ToolResult, now: float) -> None:
        call.result, call.due = result, None
        self._send(turn_service_pb2.SubmitToolResultsRequest(session_id=self.session_id, results=[result]))

    def _send(self, request: turn_service_pb2.SubmitToolResultsRequest) -> None:
        self._submitted += 1
        self._submissions[self._submitted] = Submission(request)
        self._out.append(Submit(self._submitted, request))

    def _on_its_way(self, call_id: str) -> bool:
        return any(
            any(result.call_id == call_id for result in each.request.results)
            or any(approval.call_id == call_id for approval in each.request.approvals)
            for each in self._submissions.values()
        )

    def _refused(self, submission: Submission, problem: Problem, now: float) -> None:
        """Answers were rejected permanently."""
        if problem.reason == "SESSION_NOT_FOUND":
            return  # the stream reports it
        for result in submission.request.results:
            call = self._calls.get(result.call_id)
            if problem.reason not in REFUSED_RESULTS or call is None or call.refused:
                break
            call.refused = True
            self._answer(call, failure(result.call_id, f"the result cannot be used: {problem.message}"), now)
        else:
            if submission.request.results:
                return
        self._finish(Fail(error_of(problem)))

    def _closed(self, call_id: str) -> None:
        """A call is closed: no further work is needed for it."""
        call = self._calls.get(call_id)
        if call is not None:
            call.due = None
            if call.result is None:
                call.result = message_pb2.ToolResult(call_id=call_id)
                self._out.append(DropTool(call_id))
        self._out.append(ForgetCall(call_id))
        done = [number for number, each in self._submissions.items() if _only_about(each.request, call_id)]
        for number in done:
            del self._submissions[number]

    def _ask(self, asked: turn_pb2.PendingApproval) -> None:
        call = asked.call
        if self._asks and call.call_id not in self._asked:
            self._asked.add(call.call_id)
            deadline = asked.deadline.ToDatetime(timezone.utc) if asked.HasField("deadline") else None
            request = ApprovalRequest(
                self.session_id, self.turn_id, call.call_id, call.tool_name, call.arguments_json, deadline
            )
            self._out.append(AskApproval(request))

    # --- Times -----------------------------------------------------------------------------------------

    def _deadlines(self) -> Iterable[float]:
        yield from (call.due for call in self._calls.values() if call.due is not None)
        yield from (each.due for each in self._submissions.values() if each.due is not None)

    def _on_time(self, now: float) -> None:
        for call_id, call in self._calls.items():
            if call.due is not None and now >= call.due:
                seconds = self._tools[call.pending.call.tool_name].timeout
                text = f"{call.pending.call.tool_name} did not finish within {seconds:g} s and was given up"
                self._out.append(DropTool(call_id))
                self._answer(call, failure(call_id, text), now)
        for number, each in self._submissions.items():
            if each.due is not None and now >= each.due:
                each.due = None
                self._out.append(Submit(number, each.request))

    # --- The end ---------------------------------------------------------------------------------------

    def _ended(self, now: float) -> None:
        if self._not_taken:
            self._finish(Fail(InputNotTakenError(self.queued_id, self._not_taken)))
        elif self._terminal is not None:
            result = result_of(self._terminal, self._texts)
            unseen = "" if result.message_id in self._texts else result.message_id
            self._finish(Finish(result, unseen))
        else:
            self._again(Problem("UNAVAILABLE", "the stream ended before its turn"), now)

    def _broke(self, problem: Problem, now: float) -> None:
        # The session was deleted, which ended the turn.
        if problem.reason == "SESSION_NOT_FOUND" and self._terminal is not None:
            self._ended(now)
        else:
            super()._broke(problem, now)

    def _lost(self, problem: Problem, now: float) -> None:
        # Repeats the request from its beginning: it attaches to its turn or, if that is lost, starts a new one.
        self.cursor = 0
        self._terminal = None
        self._again(problem, now)

    def _was_yielded(self, message_id: str) -> bool:
        seen = message_id in self._seen_messages
        self._seen_messages.add(message_id)
        return seen

    def _may_wait(self) -> bool:
        return bool(self.live_turn) or self._failures < LIMIT_TRIES

    def _finish(self, last: Finish | Fail) -> None:
        for call_id, call in self._calls.items():
            if call.result is None:
                self._out.append(DropTool(call_id))
        super()._finish(last)


def _only_about(request: turn_service_pb2.SubmitToolResultsRequest, call_id: str) -> bool:
    return not request.approvals and [result.call_id for result in request.results] == [call_id]


def outcome(finish: Finish) -> TurnFailedError | None:
    """The error of a turn that failed."""
    result = finish.result
    return TurnFailedError(result.failure, result) if result is not None and result.failure is not None else None

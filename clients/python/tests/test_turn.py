"""The core of a run, without sockets, threads and clock."""

from __future__ import annotations

from typing import Any

from contextd import events, tool
from contextd._core.actions import (
    Action,
    AskApproval,
    Close,
    DropTool,
    Emit,
    Fail,
    Finish,
    ForgetCall,
    Open,
    RunTool,
    Submit,
)
from contextd._core.operations import execute_turn
from contextd._core.stream import SILENCE_SECONDS, EventStream, watch_request
from contextd._core.turn import TurnStream
from contextd.errors import Problem, QueueFullError, UnavailableError
from contextd.tools import Approval, success, tools_by_name
from contextd.v1 import event_pb2, message_pb2, turn_pb2

LOST = Problem("UNAVAILABLE", "gone")


@tool(timeout=5)
def work() -> str:
    """Works."""
    return "done"


class Machine:
    """A turn, with what it asked for and a clock to turn."""

    def __init__(self, **options: Any) -> None:
        self.tools = tools_by_name([work])
        request = execute_turn("s", "go", self.tools, request_id="r")
        self.turn = TurnStream(request, self.tools, reconnect_for=60, **options)
        self.now = 100.0
        self.asked: list[Action] = []
        self.seq = 0
        self.take(self.turn.start(self.now))

    def take(self, actions: list[Action]) -> list[Action]:
        self.asked += actions
        return actions

    def of(self, kind: type[Any]) -> list[Any]:
        return [action for action in self.asked if isinstance(action, kind)]

    def types(self) -> list[str]:
        return [action.event.type for action in self.of(Emit)]

    def event(self, durable: bool = True, replay: bool = False, turn: str = "t", **payload: Any) -> list[Action]:
        self.seq += durable
        event = event_pb2.Event(seq=self.seq if durable else 0, session_id="s", turn_id=turn, replay=replay, **payload)
        return self.take(self.turn.on_event(self.connection(), event, self.now))

    def admitted(self, admission: int = event_pb2.ADMISSION_STARTED, turn: str = "t") -> None:
        self.event(False, turn=turn, admitted=event_pb2.Admitted(admission=admission))  # type: ignore[arg-type]

    def lost(self, problem: Problem = LOST) -> list[Action]:
        self.take(self.turn.on_end(self.connection(), problem, self.now))
        return self.wait()

    def wait(self) -> list[Action]:
        deadline = self.turn.deadline()
        if deadline is None:
            return []
        self.now = max(self.now, deadline)
        return self.take(self.turn.on_time(self.now))

    def connection(self) -> int:
        return int(self.of(Open)[-1].connection)

    def pending(self, call_id: str = "c") -> turn_pb2.PendingCall:
        call = message_pb2.ToolCall(call_id=call_id, tool_name="work", arguments_json="{}")
        return turn_pb2.PendingCall(call=call, executor=turn_pb2.TOOL_EXECUTOR_HOST)

    def sync(self, *call_ids: str) -> list[Action]:
        return self.event(False, sync=event_pb2.Sync(pending_calls=[self.pending(each) for each in call_ids]))

    def completed(self) -> None:
        self.event(turn_completed=event_pb2.TurnCompleted(reason=turn_pb2.COMPLETION_REASON_STOP))
        self.take(self.turn.on_end(self.connection(), None, self.now))


def test_a_lost_stream_goes_on_after_the_last_seq() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(step_started=event_pb2.StepStarted())
    machine.lost()
    opened = machine.of(Open)
    assert [each.request.after_seq for each in opened] == [0, 1]
    assert {each.request.request_id for each in opened} == {"r"}
    machine.admitted(event_pb2.ADMISSION_ATTACHED)
    assert machine.types() == ["admitted", "step_started"]  # admitted once


def test_an_event_that_was_seen_and_a_stream_that_was_left_do_not_count() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(step_started=event_pb2.StepStarted())
    machine.seq = 0
    assert machine.event(step_started=event_pb2.StepStarted()) == []
    machine.lost()
    late = event_pb2.Event(seq=9, turn_id="t", step_started=event_pb2.StepStarted())
    assert machine.turn.on_event(1, late, machine.now) == []
    assert machine.turn.on_end(1, LOST, machine.now) == []


def test_a_call_is_begun_live_or_by_sync_and_once() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(replay=True, tool_call_requested=machine.pending("replayed"))
    assert machine.of(RunTool) == []
    machine.event(tool_call_requested=machine.pending("live"))
    machine.sync("live", "replayed")
    machine.sync("live", "replayed")
    assert [each.pending.call.call_id for each in machine.of(RunTool)] == ["live", "replayed"]


def test_a_result_is_sent_until_it_is_taken() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(tool_call_requested=machine.pending())
    machine.take(machine.turn.on_tool_result(success("c", "done"), machine.now))
    (sent,) = machine.of(Submit)
    machine.take(machine.turn.on_submit_failed(sent.number, LOST, machine.now))
    machine.wait()
    assert [each.number for each in machine.of(Submit)] == [sent.number, sent.number]
    machine.take(machine.turn.on_submitted(sent.number))
    # It was taken, and lost again with the database: the result is sent anew, the tool is not run.
    machine.sync("c")
    assert len(machine.of(Submit)) == 3
    assert len(machine.of(RunTool)) == 1


def test_a_result_that_is_refused_becomes_an_error_for_the_model() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(tool_call_requested=machine.pending())
    machine.take(machine.turn.on_tool_result(success("c", "bad"), machine.now))
    refusal = Problem("INVALID_ARGUMENT", "no such media", reason="INVALID_REQUEST")
    machine.take(machine.turn.on_submit_failed(machine.of(Submit)[0].number, refusal, machine.now))
    second = machine.of(Submit)[1]
    assert second.request.results[0].outcome == message_pb2.TOOL_OUTCOME_ERROR
    machine.take(machine.turn.on_submit_failed(second.number, refusal, machine.now))
    assert isinstance(machine.of(Fail)[0].error, Exception)


def test_a_tool_is_given_up_at_its_time_and_its_late_result_dropped() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(tool_call_requested=machine.pending())
    assert machine.turn.deadline() == 105.0
    machine.wait()
    assert [each.call_id for each in machine.of(DropTool)] == ["c"]
    assert "did not finish within 5 s" in machine.of(Submit)[0].request.results[0].parts[0].text
    assert machine.turn.on_tool_result(success("c", "late"), machine.now) == []


def test_a_call_that_was_closed_is_stopped() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(tool_call_requested=machine.pending())
    *_, dropped, forgotten, _ = machine.event(tool_call_cancelled=event_pb2.ToolCallCancelled(call_id="c"))
    assert (dropped, forgotten) == (
        DropTool("c"),
        ForgetCall("c"),
    )  # in this order: what is forgotten cannot be stopped
    assert machine.turn.on_tool_result(success("c", "late"), machine.now) == []


def test_the_result_of_a_call_that_is_closed_is_forgotten_also_where_another_run_began_it() -> None:
    machine = Machine()
    machine.admitted()
    machine.event(tool_call_requested=machine.pending())
    machine.take(machine.turn.on_tool_result(success("c", "done"), machine.now))
    assert machine.of(ForgetCall) == []
    for call_id in ("c", "of an earlier run"):
        result = message_pb2.ToolResult(call_id=call_id)
        machine.event(tool_call_completed=event_pb2.ToolCallCompleted(result=result))
    assert [each.call_id for each in machine.of(ForgetCall)] == ["c", "of an earlier run"]


def test_a_message_that_came_before_the_stream_is_asked_for_at_the_end() -> None:
    machine = Machine()
    machine.admitted()
    result = turn_pb2.TurnResult(final_message_id="m")
    machine.event(turn_completed=event_pb2.TurnCompleted(result=result))
    machine.take(machine.turn.on_end(machine.connection(), None, machine.now))
    assert [each.unseen for each in machine.of(Finish)] == ["m"]


def test_a_watch_keeps_nothing_of_the_messages_that_it_yielded() -> None:
    watch = EventStream(watch_request("s", "", 0, True), reconnect_for=60)
    watch.start(0.0)
    for seq in range(1, 1001):
        message = message_pb2.Message(message_id=f"m{seq}", role=message_pb2.ROLE_ASSISTANT)
        watch.on_event(1, event_pb2.Event(seq=seq, message_committed=event_pb2.MessageCommitted(message=message)), 0.0)
    assert sum(len(held) for held in vars(watch).values() if isinstance(held, (dict, list, set))) == 0


def test_calls_of_another_turn_are_left_to_its_host() -> None:
    machine = Machine()
    machine.admitted(event_pb2.ADMISSION_QUEUED, turn="other")
    machine.event(turn="other", tool_call_requested=machine.pending("theirs"))
    machine.event(False, turn="other", sync=event_pb2.Sync(pending_calls=[machine.pending("theirs")]))
    assert machine.of(RunTool) == []
    machine.event(turn="other", turn_completed=event_pb2.TurnCompleted())
    machine.event(turn="ours", turn_started=event_pb2.TurnStarted(request_id="r"))
    machine.event(turn="ours", tool_call_requested=machine.pending("ours"))
    assert [each.pending.call.call_id for each in machine.of(RunTool)] == ["ours"]


def test_an_approval_is_asked_for_once_and_sent_until_it_is_taken() -> None:
    machine = Machine(asks=True)
    machine.admitted()
    asked = turn_pb2.PendingApproval(call=machine.pending().call)
    machine.event(approval_requested=asked)
    machine.event(False, sync=event_pb2.Sync(pending_approvals=[asked]))
    assert len(machine.of(AskApproval)) == 1
    machine.take(machine.turn.on_approval("c", Approval(True), machine.now))
    machine.take(machine.turn.on_submitted(machine.of(Submit)[0].number))
    machine.event(False, sync=event_pb2.Sync(pending_approvals=[asked]))
    assert len(machine.of(Submit)) == 2
    assert len(machine.of(AskApproval)) == 1


def test_a_stream_that_falls_silent_is_given_up() -> None:
    machine = Machine()
    machine.admitted()
    assert machine.turn.deadline() == 100.0 + SILENCE_SECONDS
    machine.wait()
    assert len(machine.of(Close)) == 1
    assert machine.turn.on_end(1, Problem("CANCELLED", "closed"), machine.now) == []
    machine.wait()
    assert len(machine.of(Open)) == 2


def test_without_any_server_a_run_is_given_up_after_its_time() -> None:
    machine = Machine()
    for _ in range(500):
        machine.lost()
        if machine.of(Fail):
            break
    assert isinstance(machine.of(Fail)[0].error, UnavailableError)
    assert 150 < machine.now <= 160


def test_contact_begins_the_time_anew() -> None:
    machine = Machine()
    for _ in range(200):
        machine.lost()
        machine.event(False, heartbeat=event_pb2.Heartbeat())
    assert machine.of(Fail) == []


def test_the_server_says_how_long_to_wait() -> None:
    machine = Machine()
    machine.turn.on_end(1, Problem("UNAVAILABLE", "overloaded", reason="OVERLOADED", retry_after=7.0), machine.now)
    assert machine.turn.deadline() == 107.0


def test_what_will_not_pass_is_raised() -> None:
    machine = Machine()
    machine.take(machine.turn.on_end(1, Problem("RESOURCE_EXHAUSTED", "full", reason="QUEUE_FULL"), machine.now))
    assert isinstance(machine.of(Fail)[0].error, QueueFullError)
    assert machine.turn.deadline() is None


def test_events_that_retention_removed_are_passed_over() -> None:
    machine = Machine()
    machine.admitted()
    machine.lost(Problem("OUT_OF_RANGE", "", reason="EVENTS_EXPIRED", metadata={"oldest_seq": "41"}))
    assert machine.of(Open)[-1].request.after_seq == 40


def test_after_lost_events_the_turn_is_told_again_without_its_messages_twice() -> None:
    machine = Machine()
    machine.admitted()
    message = message_pb2.Message(
        message_id="m", role=message_pb2.ROLE_ASSISTANT, parts=[message_pb2.Part(text="Hello.")]
    )
    machine.event(message_committed=event_pb2.MessageCommitted(message=message))
    machine.lost(Problem("DATA_LOSS", "", reason="EVENTS_LOST"))
    assert machine.of(Open)[-1].request.after_seq == 0
    machine.seq = 0
    machine.event(replay=True, message_committed=event_pb2.MessageCommitted(message=message))
    machine.completed()
    assert machine.types().count("text_delta") == machine.types().count("message_committed") == 1


def test_the_end_of_an_earlier_turn_is_not_the_end() -> None:
    machine = Machine()
    machine.admitted(event_pb2.ADMISSION_QUEUED, turn="other")
    machine.event(turn="other", turn_completed=event_pb2.TurnCompleted())
    assert machine.of(Finish) == []
    machine.event(turn="t", turn_started=event_pb2.TurnStarted(request_id="r"))
    machine.completed()
    assert machine.of(Finish)[0].result.turn_id == "t"
    assert isinstance(machine.of(Emit)[-1].event, events.TurnCompleted)


def test_a_stream_that_ends_before_its_turn_is_opened_again() -> None:
    machine = Machine()
    machine.admitted()
    machine.take(machine.turn.on_end(1, None, machine.now))
    machine.wait()
    assert len(machine.of(Open)) == 2

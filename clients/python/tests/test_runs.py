"""Turns, tools, approvals and the queue on a real server."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from harness import Server

from contextd import (
    Approval,
    ApprovalRequest,
    AsyncContextd,
    Contextd,
    InputNotTakenError,
    Media,
    ToolContext,
    ToolError,
    TurnFailedError,
    errors,
    events,
    tool,
)
from contextd._core.turn import FORGOTTEN
from contextd.v1 import turn_pb2


def deleted(path: str) -> str:
    return f"deleted {path}"


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Deletes a file."""
    return deleted(path)


def test_run_text_gives_the_words_of_the_answer(client: Contextd) -> None:
    assert client.session(model="scripted/echo").run_text("hello") == "You said: hello"


def test_text_yields_the_words_alone(client: Contextd) -> None:
    assert "".join(client.session(model="scripted/echo").run("hello").text()) == "You said: hello"


def test_the_result_says_what_the_turn_used(client: Contextd) -> None:
    result = client.session(model="scripted/echo").run("hello").result()
    assert (result.state, result.reason, result.steps) == ("COMPLETED", "STOP", 1)
    assert result.usage.calls == 1
    assert result.usage.total_tokens == result.usage.input_tokens + result.usage.output_tokens > 0


def test_opening_a_session_again_applies_what_is_given(client: Contextd) -> None:
    first = client.session("opened-twice", instructions="One.", model="scripted/echo")
    assert client.session("opened-twice").raw.system_prompt == "One."
    again = client.session("opened-twice", instructions="Two.")
    assert (again.raw.system_prompt, again.raw.model) == ("Two.", "scripted/echo")
    assert first.refresh().system_prompt == "Two."


def test_tools_of_one_step_run_in_parallel(client: Contextd) -> None:
    together = threading.Barrier(3, timeout=10)

    def meet(who: str) -> str:
        together.wait()
        return who

    assert client.session(model="scripted/parallel", tools=[meet]).run_text("go") == "All met."


async def test_async_tools_of_one_step_run_in_parallel(server: Server) -> None:
    arrived: list[str] = []
    all_here = asyncio.Event()

    async def meet(who: str) -> str:
        arrived.append(who)
        if len(arrived) == 3:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), 10)
        return who

    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/parallel", tools=[meet])
        assert await session.run_text("go") == "All met."


def test_a_tool_that_takes_too_long_is_given_up_and_the_model_is_told(client: Contextd) -> None:
    @tool(timeout=0.2)
    def sleep(seconds: float) -> str:
        time.sleep(1)
        return "slept"

    answer = client.session(model="scripted/sleep", tools=[sleep]).run_text("go")
    assert answer == "Result: sleep did not finish within 0.2 s and was given up"


async def test_an_async_tool_that_takes_too_long_is_cancelled(server: Server) -> None:
    cancelled = asyncio.Event()

    @tool(timeout=0.2)
    async def sleep(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "slept"

    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/sleep", tools=[sleep])
        assert "did not finish" in await session.run_text("go")
        await asyncio.wait_for(cancelled.wait(), 5)


async def test_a_tool_whose_work_was_cancelled_is_answered_with_that(server: Server) -> None:
    async def broken() -> str:
        raise asyncio.CancelledError("by a library")

    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/fail-tool", tools=[broken])
        answer = await asyncio.wait_for(session.run_text("go"), 20)
    assert answer == "Result: CancelledError: by a library"
    with Contextd(server.url) as sync_client:
        run = sync_client.session(model="scripted/fail-tool", tools=[broken]).run("go")
        assert await asyncio.wait_for(asyncio.to_thread(run.result), 20)
    assert run.result().text == "Result: CancelledError: by a library"


async def test_a_run_of_a_closed_client_is_an_error_at_once(server: Server) -> None:
    client = AsyncContextd(server.url)
    session = await client.session(model="scripted/slow")
    run = session.run("go")
    async for event in run:
        if isinstance(event, events.TextDelta):
            break
    result = asyncio.create_task(run.result())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(errors.ContextdError, match="the client is closed"):
        await asyncio.wait_for(result, 10)
    with pytest.raises(errors.ContextdError, match="the client is closed"):
        await asyncio.wait_for(session.run("again").result(), 10)


def test_an_exception_of_a_tool_is_an_error_for_the_model(client: Contextd) -> None:
    def broken() -> str:
        raise ToolError("the disk is full")

    run = client.session(model="scripted/fail-tool", tools=[broken]).run("go")
    outcomes = [event.outcome for event in run if isinstance(event, events.ToolCallCompleted)]
    assert outcomes == ["ERROR"]
    assert run.result().text == "Result: the disk is full"


def test_a_tool_may_know_its_call(client: Contextd) -> None:
    seen: list[ToolContext] = []

    def broken(context: ToolContext) -> str:
        seen.append(context)
        return "fine"

    session = client.session(model="scripted/fail-tool", tools=[broken])
    result = session.run("go").result()
    assert [(c.session_id, c.turn_id, c.tool_name) for c in seen] == [(session.id, result.turn_id, "broken")]


def test_an_approval_by_callback_lets_the_call_run(client: Contextd) -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    run = client.session(model="scripted/delete", tools=[delete_file]).run("go", on_approval=approve)
    assert run.result().text == "Result: deleted /tmp/x"
    assert [(request.name, request.arguments) for request in asked] == [("delete_file", {"path": "/tmp/x"})]


def test_a_denial_reaches_the_model_with_its_reason(client: Contextd) -> None:
    session = client.session(model="scripted/delete", tools=[delete_file])
    answer = session.run_text("go", on_approval=lambda request: Approval(False, reason="not today"))
    assert "not today" in answer


def test_an_approval_may_change_the_arguments(client: Contextd) -> None:
    session = client.session(model="scripted/delete", tools=[delete_file])
    answer = session.run_text("go", on_approval=lambda request: Approval(True, {"path": "/tmp/y"}))
    assert "deleted /tmp/y" in answer


def test_an_approval_may_come_from_elsewhere(client: Contextd) -> None:
    session = client.session(model="scripted/delete", tools=[delete_file])
    run = session.run("go")
    for event in run:
        if isinstance(event, events.ApprovalRequested):
            session.approve(event.call_id)
    assert run.result().text == "Result: deleted /tmp/x"


async def test_an_approval_callback_may_be_a_coroutine(server: Server) -> None:
    async def approve(request: ApprovalRequest) -> bool:
        await asyncio.sleep(0.05)
        return True

    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/delete", tools=[delete_file])
        assert await session.run_text("go", on_approval=approve) == "Result: deleted /tmp/x"


def test_a_message_sent_meanwhile_is_taken_by_the_turn_that_runs(client: Contextd) -> None:
    session = client.session(model="scripted/queue")

    def work() -> str:
        session.send("and this")
        return "done"

    run = session.run("begin", tools=[work])
    applied = [event for event in run if isinstance(event, events.MessagesApplied)]
    assert len(applied) == 1
    assert run.result().text == "Then: and this"


def test_a_second_run_leaves_the_calls_of_the_first_one_to_it(client: Contextd, server: Server) -> None:
    """Two hosts with the same tools: the one whose turn it is runs them."""
    session = client.session(model="scripted/queue")
    ran: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def work() -> str:
        ran.append("first")
        begun.set()
        go_on.wait(10)
        return "done"

    first = threading.Thread(target=lambda: session.run("begin", tools=[work]).result())
    first.start()
    assert begun.wait(10)

    def other_work() -> str:
        ran.append("second")
        return "done"

    with Contextd(server.url) as other:
        second = other.session(session.id).run("more", tools=[tool(name="work")(other_work)])
        for event in second:
            if isinstance(event, events.Admitted):
                assert event.admission == "QUEUED"
                go_on.set()
        assert second.result().text == "Then: more"
    first.join()
    assert ran == ["first"]


def test_a_queued_input_that_is_withdrawn_raises(client: Contextd, server: Server) -> None:
    session = client.session(model="scripted/slow")
    running = session.run("go")
    next(running)
    run = session.run("again")
    admitted = next(run)
    assert isinstance(admitted, events.Admitted)
    session.withdraw(admitted.queued_message_id)
    with pytest.raises(InputNotTakenError, match="CANCELLED"):
        run.result()
    session.cancel()
    assert running.result().state == "CANCELLED"


def test_a_run_that_was_left_is_resumed_and_its_call_not_run_again(client: Contextd) -> None:
    ran: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def broken() -> str:
        ran.append(1)
        begun.set()
        go_on.wait(10)
        return "late"

    session = client.session(model="scripted/fail-tool", tools=[broken])
    for event in session.run("go"):
        if isinstance(event, events.ToolCallRequested):
            break
    assert begun.wait(10)
    resumed = session.resume()
    assert resumed is not None
    go_on.set()
    assert resumed.result().text == "Result: late"
    assert ran == [1]


def test_another_process_resumes_a_turn_and_runs_what_waits(client: Contextd, server: Server) -> None:
    def broken() -> str:
        return "from the second host"

    session = client.session(model="scripted/fail-tool", tools=[broken])
    for event in session.run("go", tools=[broken]):
        if isinstance(event, events.StepStarted):
            break  # the first host is gone before it runs anything
    with Contextd(server.url) as other:
        resumed = other.session(session.id).resume(tools=[broken])
        assert resumed is not None
        text = "".join(event.text for event in resumed if isinstance(event, events.TextDelta))
        assert text == "Result: from the second host"
        assert other.session(session.id).resume() is None


async def test_a_resume_after_the_last_message_still_has_its_text(server: Server) -> None:
    with Contextd(server.url) as client:
        made = client.session(model="scripted/steps", tools=[tool(name="lookup")(lambda key: key)])
        session = client.session(made.id)  # knows no function, so that the call waits
        for event in (run := session.run("go")):
            if isinstance(event, events.ToolCallRequested):
                break
        resumed = session.resume(after_seq=run.cursor)
        async with AsyncContextd(server.url) as other:
            same = await (await other.session(session.id)).resume(after_seq=run.cursor)
            session.cancel()
            assert resumed is not None
            assert same is not None
            assert resumed.result().text == (await same.result()).text == "Step one begins here."
            assert (await same.result()).state == "CANCELLED"


def test_a_call_that_is_closed_leaves_only_its_key(client: Contextd) -> None:
    session = client.session(model="scripted/parallel", tools=[tool(name="meet")(lambda who: who)])
    assert session.run_text("go") == "All met."
    held = {key: call for key, call in client._host.ledger._calls.items() if key[0] == session.id}
    assert list(held.values()) == [None, None, None]
    again = client._host.ledger.run(*next(iter(held)), start=lambda: pytest.fail("it is run again"))
    assert again.result().parts[0].text == FORGOTTEN


async def test_a_call_of_asyncio_that_is_closed_leaves_only_its_key(server: Server) -> None:
    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/parallel", tools=[tool(name="meet")(lambda who: who)])
        assert await session.run_text("go") == "All met."
        assert list(client._host._calls.values()) == [None, None, None]


def test_a_repeated_request_id_attaches_and_tells_the_whole_turn(client: Contextd, server: Server) -> None:
    session = client.session(model="scripted/echo")
    first = session.run("hello", request_id="req-1").result()
    with Contextd(server.url) as other:
        again = other.session(session.id).run("hello", request_id="req-1").result()
    assert (again.turn_id, again.text) == (first.turn_id, "You said: hello")
    assert len(list(session.turns())) == 1


def test_a_turn_that_fails_raises_with_its_reason(client: Contextd) -> None:
    run = client.session(model="scripted/overloaded").run("go")
    with pytest.raises(TurnFailedError) as caught:
        run.result()
    assert caught.value.reason == "PROVIDER_BAD_REQUEST"
    assert caught.value.result.state == "FAILED"


def test_an_answer_that_is_made_again_yields_no_word_twice(client: Contextd) -> None:
    run = client.session(model="scripted/flaky").run("go")
    seen = list(run)
    assert any(isinstance(event, events.TurnRetrying) for event in seen)
    assert "".join(e.text for e in seen if isinstance(e, events.TextDelta)) == "one two three four five"
    assert not any(isinstance(event, events.TextReset) for event in seen)


def test_cancel_keeps_the_partial_answer(client: Contextd) -> None:
    session = client.session(model="scripted/slow")
    run = session.run("go")
    for event in run:
        if isinstance(event, events.TextDelta):
            answer = session.cancel(run.turn_id, reason="enough")
            break
    assert answer.turn.turn_id == run.turn_id
    result = run.result()
    assert (result.state, result.reason) == ("CANCELLED", "REQUESTED")
    assert result.text.startswith("word")


def test_a_run_that_is_cancelled_before_it_was_admitted_is_cancelled_then(client: Contextd) -> None:
    run = client.session(model="scripted/slow").run("go")
    cancel = threading.Thread(target=run.cancel, args=("enough",))
    cancel.start()
    assert run.result().state == "CANCELLED"
    cancel.join(10)
    assert not cancel.is_alive()


def test_cancelling_a_run_that_waits_leaves_the_turn_that_runs_alone(client: Contextd) -> None:
    session = client.session(model="scripted/slow")
    running = session.run("go")
    assert [next(running).type, next(running).type] == ["admitted", "turn_started"]
    waiting = session.run("again")
    assert next(waiting).type == "admitted"
    waiting.cancel()
    with pytest.raises(InputNotTakenError):
        waiting.result()
    assert session.turn(running.turn_id).state == turn_pb2.TURN_STATE_RUNNING
    running.cancel()
    assert running.result().state == "CANCELLED"


async def test_cancelling_a_run_of_asyncio_that_waits_leaves_the_turn_that_runs_alone(server: Server) -> None:
    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/slow")
        running, waiting = session.run("go"), session.run("again")
        await anext(running)
        await anext(waiting)
        await waiting.cancel()
        with pytest.raises(InputNotTakenError):
            await waiting.result()
        cancel = asyncio.create_task(running.cancel("enough"))
        assert (await running.result()).state == "CANCELLED"
        await cancel


def test_a_run_that_nothing_reads_cannot_be_cancelled(server: Server) -> None:
    with Contextd(server.url, timeout=0.5) as client:
        run = client.session(model="scripted/slow").run("go")
        with pytest.raises(errors.ContextdError, match="not admitted"):
            run.cancel()


def test_busy_reject_raises_turn_in_progress(client: Contextd) -> None:
    session = client.session(model="scripted/slow")
    running = session.run("go")
    next(running)
    with pytest.raises(errors.TurnInProgressError) as caught:
        session.run("again", busy="reject").result()
    assert caught.value.metadata["turn_id"]
    assert isinstance(caught.value, errors.FailedPreconditionError)
    session.cancel()


def test_a_call_of_a_tool_without_function_is_answered_by_hand(client: Contextd) -> None:
    session = client.session(model="scripted/fail-tool", tools=[tool(name="broken")(lambda: "unused")])
    session._tools = None  # another process knows the function
    run = session.run("go")
    for event in run:
        if isinstance(event, events.ToolCallRequested):
            assert not event.handled
            session.submit(event.call_id, {"by": "hand"})
    assert run.result().text == 'Result: {"by": "hand"}'


def test_watch_tells_what_others_do(client: Contextd) -> None:
    session = client.session(model="scripted/echo")
    session.run("hello").result()
    kinds = [event.type for event in session.watch(after_seq=0, follow=False)]
    assert kinds[0] == "turn_started"
    assert kinds[-1] == "turn_completed"


def test_media_goes_with_the_text(client: Contextd) -> None:
    session = client.session(model="scripted/echo")
    image = Media("image/png", data=b"\x89PNG not really")
    session.run(["Look:", image]).result()
    user = next(iter(session.messages()))
    assert user.text == "Look:"
    assert client.get_blob(user.parts[1].media.blob_id) == b"\x89PNG not really"


async def test_a_run_of_asyncio_can_be_left_and_resumed(server: Server) -> None:
    ran: list[int] = []
    go_on = asyncio.Event()

    async def broken() -> str:
        ran.append(1)
        await go_on.wait()
        return "late"

    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/fail-tool", tools=[broken])
        async with session.run("go") as run:
            async for event in run:
                if isinstance(event, events.ActionRequired):
                    break
        resumed = await session.resume()
        assert resumed is not None
        go_on.set()
        assert (await resumed.result()).text == "Result: late"
        assert ran == [1]


def test_a_loop_that_was_left_gives_its_connection_back(client: Contextd) -> None:
    session = client.session(model="scripted/slow")
    for _ in session.run("go"):
        break
    deadline = time.monotonic() + 10
    while any(thread.name == "contextd-stream" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the stream is still read"
        time.sleep(0.02)
    session.cancel()


async def test_a_loop_of_asyncio_that_was_left_gives_its_connection_back(server: Server) -> None:
    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/slow")
        async for _ in session.run("go"):
            break
        await asyncio.wait_for(asyncio.gather(*client._host._tasks, return_exceptions=True), 10)
        await session.cancel()

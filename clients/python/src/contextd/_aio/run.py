"""A turn that is run, for programs with asyncio: the shell around `TurnStream`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc

from .._core.actions import (
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
    StreamRequest,
    Submit,
)
from .._core.approval import NOT_DECIDED, decision_of
from .._core.logs import log_failed_approval, log_failed_tool
from .._core.operations import cancel_turn, list_messages, submit, withdraw
from .._core.stream import EventStream
from .._core.turn import FORGOTTEN, TurnStream, outcome
from ..errors import ContextdError
from ..events import AnyEvent, TextDelta
from ..results import Result
from ..tools import Approval, ApprovalRequest, Tool, ToolContext, context_of, failure, success
from ..v1 import message_pb2, queue_pb2, turn_pb2, turn_service_pb2
from .transport import Transport, problem_from

OnApproval = Callable[[ApprovalRequest], "bool | Approval | Awaitable[bool | Approval]"]
Report = Callable[[float], list[Action]]
# Maximum events of a stream that wait for a slow caller.
WAITING_EVENTS = 256
SUBMIT_SECONDS = 30.0
# Number of calls that are remembered. The oldest ended calls are forgotten first.
REMEMBERED = 10_000


class Host:
    """Shared by all runs of a client: connections, limits, threads for plain functions, the calls that were started."""

    def __init__(self, transport: Transport, max_parallel_tools: int, reconnect_for: float) -> None:
        self.transport = transport
        self.reconnect_for = reconnect_for
        self.threads = ThreadPoolExecutor(max_parallel_tools, thread_name_prefix="contextd-tool")
        self.closed = False
        # `None` for closed calls, of which only the start is remembered.
        self._calls: OrderedDict[tuple[str, str], asyncio.Task[message_pb2.ToolResult] | None] = OrderedDict()
        self._dropped: weakref.WeakSet[asyncio.Task[message_pb2.ToolResult]] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task that is cancelled when the client is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run_call(
        self, session_id: str, tool: Tool, pending: turn_pb2.PendingCall, context: ToolContext
    ) -> asyncio.Task[message_pb2.ToolResult]:
        """Starts the call, or returns the task of an earlier start: no call is started twice in this process."""
        key = (session_id, pending.call.call_id)
        found = self._calls.get(key)
        if found is None and key in self._calls:
            return self.spawn(_forgotten(pending.call.call_id))
        if found is None or found.cancelled():
            found = self._calls[key] = self.spawn(self._run(tool, pending, context))
            self._drop_oldest()
        return found

    def drop_call(self, call: asyncio.Task[message_pb2.ToolResult]) -> None:
        """Cancels a call whose result is no longer needed."""
        self._dropped.add(call)
        call.cancel()

    def forget_call(self, session_id: str, call_id: str) -> None:
        """Releases the result of a closed call. That the call was started is remembered."""
        if (session_id, call_id) in self._calls:
            self._calls[session_id, call_id] = None

    def _drop_oldest(self) -> None:
        while len(self._calls) > REMEMBERED:
            oldest = next(iter(self._calls.values()))
            if oldest is not None and not oldest.done():
                return
            self._calls.popitem(last=False)

    async def _run(self, tool: Tool, pending: turn_pb2.PendingCall, context: ToolContext) -> message_pb2.ToolResult:
        call_id = pending.call.call_id
        try:
            call = tool.bind(pending.call.arguments_json, context)
        except Exception as error:  # the model's arguments
            return failure(call_id, error)
        try:
            if tool.is_async:
                return success(call_id, await call())
            return success(call_id, await asyncio.get_running_loop().run_in_executor(self.threads, call))
        except asyncio.CancelledError as error:
            if self.closed or asyncio.current_task() in self._dropped:
                raise
            log_failed_tool(context, error)
            return failure(call_id, error)  # what the tool awaited was cancelled, not the call
        except Exception as error:
            log_failed_tool(context, error)
            return failure(call_id, error)

    async def close(self) -> None:
        """Cancels all tasks. Does not wait for functions in threads."""
        self.closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.threads.shutdown(wait=False, cancel_futures=True)


async def _forgotten(call_id: str) -> message_pb2.ToolResult:
    return failure(call_id, FORGOTTEN)


class AsyncStream(AsyncIterator[AnyEvent]):
    """A stream of events, each delivered once, over any number of connections."""

    def __init__(self, host: Host, stream: EventStream) -> None:
        self._host = host
        self._stream = stream
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._events: deque[AnyEvent] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._started = False
        self._error: Exception | None = None
        self._finish: Finish | None = None
        self._left = False

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        """Returns the stream."""
        return self

    async def __anext__(self) -> AnyEvent:
        """Returns the next event."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._finish is not None or self._left:
                raise StopAsyncIteration
            await self._advance()
        return self._events.popleft()

    async def __aenter__(self) -> Any:
        """Returns the stream, which is closed at the end of the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the stream."""
        await self.close()

    def __del__(self) -> None:
        # The reader refers only to the queue, so an abandoned stream is collected and its connection closed.
        reader = getattr(self, "_reader", None)
        if reader is not None and not reader.get_loop().is_closed():
            reader.cancel()

    @property
    def cursor(self) -> int:
        """The newest seq that was handled. Pass it as `after_seq` to resume from here."""
        return self._stream.cursor

    @property
    def reconnects(self) -> int:
        """Number of reconnects."""
        return self._stream.reconnects

    async def close(self) -> None:
        """Closes the stream. The turn continues without a reader; `session.resume` attaches to it again."""
        self._leave()

    def _leave(self) -> None:
        self._left = True
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _advance(self) -> None:
        """Waits for one report or deadline and performs the actions that follow from it."""
        if not self._started:
            self._started = True
            self._do(self._stream.start(time.monotonic()))
            return
        deadline = self._stream.deadline()
        try:
            report = self._reports.get_nowait()
        except asyncio.QueueEmpty:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0)
            try:
                report = await asyncio.wait_for(self._reports.get(), wait)
            except asyncio.TimeoutError:
                self._do(self._stream.on_time(time.monotonic()))
                return
        self._do(report(time.monotonic()))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        if isinstance(action, Emit):
            self._events.append(action.event)
        elif isinstance(action, Open):
            self._stop_reading()
            self._reader = self._host.spawn(read(self._host, self._stream, self._reports, action))
        elif isinstance(action, Close):
            self._stop_reading()
        elif isinstance(action, Finish):
            self._finish = action
            self._leave()
        elif isinstance(action, Fail):
            self._error = action.error
            self._leave()


def closed(now: float) -> list[Action]:
    """The report of a stream whose client was closed."""
    return [Fail(ContextdError("the client is closed"))]


async def read(host: Host, stream: EventStream, reports: asyncio.Queue[Report], action: Open) -> None:
    """Reads one connection's stream and reports it, or that the client was closed."""
    number, problem, call = action.connection, None, None
    room = asyncio.Semaphore(WAITING_EVENTS)
    executes = isinstance(action.request, turn_service_pb2.ExecuteTurnRequest)
    try:
        call = host.transport.stream("TurnService", "ExecuteTurn" if executes else "WatchEvents", action.request)
        async for response in call:
            host.transport.answered()
            await room.acquire()

            def seen(now: float, event: Any = response.event) -> list[Action]:
                room.release()
                return stream.on_event(number, event, now)

            reports.put_nowait(seen)
    except grpc.aio.AioRpcError as error:
        problem = problem_from(error)
        host.transport.failed(problem, stream.reconnect_for)
    except asyncio.CancelledError:
        if host.closed:
            reports.put_nowait(closed)
        raise
    except Exception as error:  # the stream cannot be opened
        failed = Fail(ContextdError(str(error)))
        reports.put_nowait(closed if host.closed else lambda now: [failed])
        return
    finally:
        if call is not None:
            call.cancel()
    reports.put_nowait(lambda now: stream.on_end(number, problem, now))


class AsyncWatch(AsyncStream):
    """The events of a session."""

    def __init__(self, host: Host, request: StreamRequest) -> None:
        super().__init__(host, EventStream(request, host.reconnect_for, random.random()))


class AsyncRun(AsyncStream):
    """A run of a turn. Iterate for its events, or await its `result()`. Both run the tools that the model calls.

    The turn starts when the first of them is used.
    """

    def __init__(
        self,
        host: Host,
        request: StreamRequest,
        tools: dict[str, Tool],
        on_approval: OnApproval | None,
    ) -> None:
        self._turn = TurnStream(request, tools, host.reconnect_for, on_approval is not None, random.random())
        super().__init__(host, self._turn)
        self._on_approval = on_approval
        self._running: dict[str, asyncio.Task[message_pb2.ToolResult]] = {}
        # Set when the request was admitted, or can no longer be admitted.
        self._settled = asyncio.Event()

    @property
    def turn_id(self) -> str:
        """Id of the turn. Empty until the request is admitted."""
        return self._turn.turn_id

    @property
    def session_id(self) -> str:
        """The session."""
        return self._turn.session_id

    async def result(self) -> Result:
        """Waits for the end of the turn and returns its result. Skips events that were not read.

        Raises `TurnFailedError` if the turn failed. A cancelled turn has a result with state `"CANCELLED"`.
        """
        async for _ in self:
            pass
        if self._finish is None or self._finish.result is None:
            raise ContextdError("the run was left before its turn ended")
        result = self._finish.result
        if self._finish.unseen:
            result = replace(result, text=await self._text_of(self._finish.unseen))
            self._finish = Finish(result)
        if failed := outcome(self._finish):
            raise failed
        return result

    async def text(self) -> AsyncIterator[str]:
        """Streams only the text of the response."""
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    async def cancel(self, reason: str = "") -> None:
        """Cancels the turn. If its input still waits in the queue, withdraws the input.

        Waits until the request is admitted, at most for the client's `timeout`. Another task must read the run during
        this time.

        Args:
            reason: Reason, for the log and the event.
        """
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._settled.wait(), self._host.transport.timeout)
        turn = self._turn
        if not turn.live_turn:
            raise ContextdError("the run was not admitted: nothing reads it, or it has ended before")
        call = self._host.transport.call
        if not turn.turn_id and turn.queued_id:
            withdrawn = await call(withdraw(turn.session_id, turn.queued_id))
            if withdrawn.state == queue_pb2.QUEUED_MESSAGE_STATE_CANCELLED:
                return
        # The turn of this run, or the turn that took its input.
        await call(cancel_turn(turn.session_id, turn.turn_id or turn.live_turn, False, reason))

    async def _text_of(self, message_id: str) -> str:
        """The text of a message that was committed before this run attached to the turn."""
        async for message in self._host.transport.items(list_messages(self.session_id, "all", True, 0)):
            if message.id == message_id:
                return message.text
        return ""

    def _leave(self) -> None:
        super()._leave()
        self._settled.set()

    def _do(self, actions: list[Action]) -> None:
        super()._do(actions)
        if self._turn.live_turn:
            self._settled.set()

    def _perform(self, action: Action) -> None:
        if isinstance(action, RunTool):
            call_id = action.pending.call.call_id
            context = context_of(self.session_id, action.turn_id, action.pending)
            running = self._host.run_call(self.session_id, action.tool, action.pending, context)
            self._running[call_id] = running
            running.add_done_callback(lambda done: self._report_result(call_id, done))
        elif isinstance(action, DropTool):
            if dropped := self._running.pop(action.call_id, None):
                self._host.drop_call(dropped)
        elif isinstance(action, ForgetCall):
            self._running.pop(action.call_id, None)
            self._host.forget_call(self.session_id, action.call_id)
        elif isinstance(action, AskApproval):
            self._host.spawn(self._ask(action.request))
        elif isinstance(action, Submit):
            self._host.spawn(self._submit(action))
        else:
            super()._perform(action)

    def _report_result(self, call_id: str, done: asyncio.Task[message_pb2.ToolResult]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        result = failure(call_id, error) if error else done.result()
        self._reports.put_nowait(lambda now: self._turn.on_tool_result(result, now))

    async def _ask(self, request: ApprovalRequest) -> None:
        assert self._on_approval is not None
        try:
            answer = self._on_approval(request)
            decision = decision_of(await answer if inspect.isawaitable(answer) else answer)
        except (Exception, asyncio.CancelledError) as error:
            if self._host.closed:
                raise
            log_failed_approval(request, error)
            decision = Approval(False, reason=NOT_DECIDED)
        self._reports.put_nowait(lambda now: self._turn.on_approval(request.call_id, decision, now))

    async def _submit(self, action: Submit) -> None:
        try:
            await self._host.transport.once(submit(action.request), SUBMIT_SECONDS)
        except grpc.aio.AioRpcError as error:
            problem = problem_from(error)
            self._reports.put_nowait(lambda now: self._turn.on_submit_failed(action.number, problem, now))
        else:
            self._reports.put_nowait(lambda now: self._turn.on_submitted(action.number))

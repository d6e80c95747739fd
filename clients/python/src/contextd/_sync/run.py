"""A turn that is run, for programs with threads: the shell around `TurnStream`."""

from __future__ import annotations

import asyncio
import inspect
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
from .._core.turn import TurnStream, outcome
from ..errors import ContextdError
from ..events import AnyEvent, TextDelta
from ..results import Result
from ..tools import Approval, ApprovalRequest, Tool, context_of, failure, success
from ..v1 import message_pb2, queue_pb2, turn_service_pb2
from .ledger import Ledger
from .loop import LoopThread
from .transport import Transport, problem_from

OnApproval = Callable[[ApprovalRequest], "bool | Approval"]
# Maximum events of a stream that wait for a slow caller.
WAITING_EVENTS = 256
SUBMIT_SECONDS = 30.0


class Host:
    """Shared by all runs of a client: connections, limits, threads for tools, the calls that were started."""

    def __init__(self, transport: Transport, max_parallel_tools: int, reconnect_for: float) -> None:
        self.transport = transport
        self.reconnect_for = reconnect_for
        self.ledger = Ledger()
        self.tools = ThreadPoolExecutor(max_parallel_tools, thread_name_prefix="contextd-tool")
        self.answers = ThreadPoolExecutor(8, thread_name_prefix="contextd-answer")
        self.loop = LoopThread("contextd-loop")

    def close(self) -> None:
        """Ends the threads. Does not wait for running tools."""
        self.tools.shutdown(wait=False, cancel_futures=True)
        self.answers.shutdown(wait=False, cancel_futures=True)
        self.loop.close()


class Reader(threading.Thread):
    """Reads one connection's stream and reports it."""

    def __init__(
        self,
        transport: Transport,
        action: Open,
        report: Callable[[Callable[[float], list[Action]]], None],
        stream: EventStream,
    ) -> None:
        super().__init__(name="contextd-stream", daemon=True)
        self._transport, self._action, self._report, self._stream = transport, action, report, stream
        self._room = threading.Semaphore(WAITING_EVENTS)
        self._closed = threading.Event()
        self._call: Any = None

    def run(self) -> None:
        """Until the stream ends or is closed."""
        number, stream, problem = self._action.connection, self._stream, None
        try:
            method = (
                "ExecuteTurn"
                if isinstance(self._action.request, turn_service_pb2.ExecuteTurnRequest)
                else "WatchEvents"
            )
            self._call = self._transport.stream("TurnService", method, self._action.request)
            for response in self._call:
                self._transport.answered()
                self._room.acquire()
                if self._closed.is_set():
                    return
                event = response.event

                def seen(now: float, event: Any = event) -> list[Action]:
                    self._room.release()
                    return stream.on_event(number, event, now)

                self._report(seen)
        except grpc.RpcError as error:
            problem = problem_from(error)
            if not self._closed.is_set():
                self._transport.failed(problem, stream.reconnect_for)
        except ValueError as error:  # the channel was closed
            if not self._closed.is_set():
                failed = ContextdError(str(error))
                self._report(lambda now: [Fail(failed)])
            return
        finally:
            if self._closed.is_set() and self._call is not None:
                self._call.cancel()
        if self._closed.is_set():
            return
        ended = problem
        self._report(lambda now: stream.on_end(number, ended, now))

    def close(self) -> None:
        """Closes the stream."""
        self._closed.set()
        self._room.release()
        if self._call is not None:
            self._call.cancel()


class Stream(Iterator[AnyEvent]):
    """A stream of events, each delivered once, over any number of connections."""

    def __init__(self, host: Host, stream: EventStream) -> None:
        self._host = host
        self._stream = stream
        self._reports: queue.SimpleQueue[Callable[[float], list[Action]]] = queue.SimpleQueue()
        self._events: deque[AnyEvent] = deque()
        self._readers: dict[int, Reader] = {}
        self._started = False
        self._error: Exception | None = None
        self._finish: Finish | None = None
        self._left = False

    def __iter__(self) -> Iterator[AnyEvent]:
        """Returns the stream."""
        return self

    def __next__(self) -> AnyEvent:
        """Returns the next event."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._finish is not None or self._left:
                raise StopIteration
            self._advance()
        return self._events.popleft()

    def __enter__(self) -> Any:
        """Returns the stream, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the stream."""
        self.close()

    def __del__(self) -> None:
        # Readers refer only to the queue, so an abandoned stream is collected and its connection closed.
        for reader in getattr(self, "_readers", {}).values():
            reader.close()

    @property
    def cursor(self) -> int:
        """The newest seq that was handled. Pass it as `after_seq` to resume from here."""
        return self._stream.cursor

    @property
    def reconnects(self) -> int:
        """Number of reconnects."""
        return self._stream.reconnects

    def close(self) -> None:
        """Closes the stream. The turn continues without a reader; `session.resume` attaches to it again."""
        self._left = True
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _advance(self) -> None:
        """Waits for one report or deadline and performs the actions that follow from it."""
        if not self._started:
            self._started = True
            self._do(self._stream.start(time.monotonic()))
            return
        deadline = self._stream.deadline()
        try:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0)
            report = self._reports.get(timeout=wait)
        except queue.Empty:
            self._do(self._stream.on_time(time.monotonic()))
        else:
            self._do(report(time.monotonic()))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        if isinstance(action, Emit):
            self._events.append(action.event)
        elif isinstance(action, Open):
            for old in self._readers.values():
                old.close()
            reader = Reader(self._host.transport, action, self._reports.put, self._stream)
            self._readers = {action.connection: reader}
            reader.start()
        elif isinstance(action, Close):
            if given_up := self._readers.pop(action.connection, None):
                given_up.close()
        elif isinstance(action, Finish):
            self._finish = action
            self.close()
        elif isinstance(action, Fail):
            self._error = action.error
            self.close()


class Watch(Stream):
    """The events of a session."""

    def __init__(self, host: Host, request: StreamRequest) -> None:
        super().__init__(host, EventStream(request, host.reconnect_for, random.random()))


class Run(Stream):
    """A run of a turn. Iterate for its events, or call its `result()`. Both run the tools that the model calls.

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
        if inspect.iscoroutinefunction(on_approval):
            raise TypeError("on_approval is a coroutine function, which Contextd does not await: use AsyncContextd")
        self._on_approval = on_approval
        self._running: dict[str, Future[message_pb2.ToolResult]] = {}
        # Set when the request was admitted, or can no longer be admitted.
        self._settled = threading.Event()

    @property
    def turn_id(self) -> str:
        """Id of the turn. Empty until the request is admitted."""
        return self._turn.turn_id

    @property
    def session_id(self) -> str:
        """The session."""
        return self._turn.session_id

    def result(self) -> Result:
        """Waits for the end of the turn and returns its result. Skips events that were not read.

        Raises `TurnFailedError` if the turn failed. A cancelled turn has a result with state `"CANCELLED"`.
        """
        for _ in self:
            pass
        if self._finish is None or self._finish.result is None:
            raise ContextdError("the run was left before its turn ended")
        result = self._finish.result
        if self._finish.unseen:
            result = replace(result, text=self._text_of(self._finish.unseen))
            self._finish = Finish(result)
        if failed := outcome(self._finish):
            raise failed
        return result

    def text(self) -> Iterator[str]:
        """Streams only the text of the response."""
        return (event.text for event in self if isinstance(event, TextDelta))

    def cancel(self, reason: str = "") -> None:
        """Cancels the turn. If its input still waits in the queue, withdraws the input.

        Waits until the request is admitted, at most for the client's `timeout`. Another thread must read the run during
        this time.

        Args:
            reason: Reason, for the log and the event.
        """
        self._settled.wait(self._host.transport.timeout)
        turn = self._turn
        if not turn.live_turn:
            raise ContextdError("the run was not admitted: nothing reads it, or it has ended before")
        call = self._host.transport.call
        if not turn.turn_id and turn.queued_id:
            withdrawn = call(withdraw(turn.session_id, turn.queued_id))
            if withdrawn.state == queue_pb2.QUEUED_MESSAGE_STATE_CANCELLED:
                return
        # The turn of this run, or the turn that took its input.
        call(cancel_turn(turn.session_id, turn.turn_id or turn.live_turn, False, reason))

    def _text_of(self, message_id: str) -> str:
        """The text of a message that was committed before this run attached to the turn."""
        listing = list_messages(self.session_id, "all", True, 0)
        messages = self._host.transport.items(listing)
        return next((message.text for message in messages if message.id == message_id), "")

    def close(self) -> None:
        """Closes the stream. The turn continues without a reader; `session.resume` attaches to it again."""
        super().close()
        self._settled.set()

    def _do(self, actions: list[Action]) -> None:
        super()._do(actions)
        if self._turn.live_turn:
            self._settled.set()

    def _perform(self, action: Action) -> None:
        if isinstance(action, RunTool):
            self._run_tool(action)
        elif isinstance(action, DropTool):
            if running := self._running.pop(action.call_id, None):
                running.cancel()
        elif isinstance(action, ForgetCall):
            self._running.pop(action.call_id, None)
            self._host.ledger.forget(self.session_id, action.call_id)
        elif isinstance(action, AskApproval):
            # A person may take their time, so this holds up nothing else.
            threading.Thread(target=self._ask, args=(action.request,), name="contextd-approval", daemon=True).start()
        elif isinstance(action, Submit):
            self._host.answers.submit(self._submit, action)
        else:
            super()._perform(action)

    def _run_tool(self, action: RunTool) -> None:
        call_id = action.pending.call.call_id
        context = context_of(self.session_id, action.turn_id, action.pending)
        running = self._host.ledger.run(self.session_id, call_id, lambda: self._start(action.tool, action, context))
        self._running[call_id] = running
        running.add_done_callback(lambda done: self._report_result(call_id, done))

    def _start(self, tool: Tool, action: RunTool, context: Any) -> Future[message_pb2.ToolResult]:
        call = action.pending.call

        try:
            bound = tool.bind(call.arguments_json, context)
        except Exception as error:  # the model's arguments
            refused: Future[message_pb2.ToolResult] = Future()
            refused.set_result(failure(call.call_id, error))
            return refused

        async def as_coroutine() -> message_pb2.ToolResult:
            try:
                return success(call.call_id, await bound())
            except (Exception, asyncio.CancelledError) as error:  # the result of a dropped call is not read
                if isinstance(error, Exception):
                    log_failed_tool(context, error)
                return failure(call.call_id, error)

        def as_function() -> message_pb2.ToolResult:
            try:
                return success(call.call_id, bound())
            except Exception as error:
                log_failed_tool(context, error)
                return failure(call.call_id, error)

        return self._host.loop.submit(as_coroutine()) if tool.is_async else self._host.tools.submit(as_function)

    def _report_result(self, call_id: str, done: Future[message_pb2.ToolResult]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        result = failure(call_id, error) if error else done.result()
        self._reports.put(lambda now: self._turn.on_tool_result(result, now))

    def _ask(self, request: ApprovalRequest) -> None:
        assert self._on_approval is not None
        try:
            decision = decision_of(self._on_approval(request))
        except BaseException as error:  # also what ends a thread, such as SystemExit
            log_failed_approval(request, error)
            decision = Approval(False, reason=NOT_DECIDED)
        self._reports.put(lambda now: self._turn.on_approval(request.call_id, decision, now))

    def _submit(self, action: Submit) -> None:
        operation = submit(action.request)
        try:
            self._host.transport.once(operation, SUBMIT_SECONDS)
        except grpc.RpcError as error:
            problem = problem_from(error)
            self._reports.put(lambda now: self._turn.on_submit_failed(action.number, problem, now))
        else:
            self._reports.put(lambda now: self._turn.on_submitted(action.number))

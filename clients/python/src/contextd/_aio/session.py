"""A session, for programs with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from .. import vendors
from .._core import operations as ops
from .._core.stream import watch_request
from ..content import Input, Message, input_message
from ..options import Busy, DeliveryMode, Format, GenerationLike, LimitsLike, Strategy, View, session_of
from ..tools import Approval, ToolLike, failure, success, tool_set, tools_by_name
from ..v1 import (
    context_pb2,
    context_service_pb2,
    policy_pb2,
    queue_pb2,
    queue_service_pb2,
    session_pb2,
    session_service_pb2,
    turn_pb2,
    turn_service_pb2,
    usage_pb2,
)
from .blobs import get_blob
from .run import AsyncRun, AsyncWatch, Host, OnApproval

# A compaction may have to wait for a model that writes a summary.
COMPACT_SECONDS = 900.0


class AsyncSession:
    """A conversation: its transcript, its queue and its turns. Made by `client.session(...)`."""

    def __init__(self, host: Host, raw: session_pb2.Session, tools: Iterable[ToolLike] | None) -> None:
        self._host = host
        self._tools = tools_by_name(tools) if tools is not None else None
        self.id = raw.session_id
        self.raw = raw

    def __repr__(self) -> str:
        return f"AsyncSession({self.id!r})"

    # --- Turns -------------------------------------------------------------------------------------

    def run(
        self,
        input: Input | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        model: str | None = None,
        limits: LimitsLike | None = None,
        generation: GenerationLike | None = None,
        busy: Busy = "enqueue",
        on_approval: OnApproval | None = None,
        request_id: str | None = None,
        continue_transcript: bool = False,
        cancel_after_disconnect: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncRun:
        """Runs a turn. Iterate over the run for its events, or call its `result()`.

        The run resumes automatically after lost connections and restarts of the server. Each piece of text and each
        event is delivered once, and each call is run once. Closing the run does not cancel the turn.

        Args:
            input: The user message: text, media, or a list of both. May be omitted if messages wait in the queue.
            tools: Tools of this turn, instead of the session's.
            model: Model reference for this turn.
            limits: Limits of this turn.
            generation: Settings for the model's responses.
            busy: What to do if a turn is running: queue the input, reject it, or interrupt that turn.
            on_approval: Decides about calls that need approval. Without it, use `approve` and `deny`.
            request_id: Idempotency key. A repeated request, also from another process, attaches to the turn.
            continue_transcript: Call the model with the current transcript, without input.
            cancel_after_disconnect: Cancel the turn if no client has read its events for this number of seconds.
            metadata: Labels of the input.
        """
        offered = tools_by_name(tools) if tools is not None else self._tools
        request = ops.execute_turn(
            self.id,
            input,
            offered,
            request_id=request_id,
            model=model,
            limits=limits,
            generation=generation,
            busy=busy,
            continue_transcript=continue_transcript,
            cancel_after_disconnect=cancel_after_disconnect,
            metadata=metadata,
        )
        return AsyncRun(self._host, request, offered or {}, on_approval)

    async def run_text(self, input: Input, **options: Any) -> str:
        """Runs a turn and returns the text of its response. The options are those of `run`."""
        return (await self.run(input, **options).result()).text

    async def resume(
        self,
        *,
        tools: Iterable[ToolLike] | None = None,
        on_approval: OnApproval | None = None,
        after_seq: int | None = None,
    ) -> AsyncRun | None:
        """Resumes the running turn, e.g. after a crash of this process. Returns `None` if no turn is running.

        Calls that wait for a result are run, including those that a crashed host had started.

        Args:
            tools: Tools to run, instead of the session's.
            on_approval: As for `run`.
            after_seq: The last seq that was handled. Default: replay the whole turn.
        """
        turn_id = (await self.refresh()).current_turn_id
        if not turn_id:
            return None
        if after_seq is None:
            after_seq = (await self.turn(turn_id)).first_seq - 1
        offered = tools_by_name(tools) if tools is not None else self._tools
        request = watch_request(self.id, turn_id, after_seq, follow=True)
        return AsyncRun(self._host, request, offered or {}, on_approval)

    async def watch(self, *, after_seq: int | None = None, follow: bool = True) -> AsyncWatch:
        """Streams the events of the session, including turns of other hosts. Reconnects automatically.

        Args:
            after_seq: The last seq that was handled. 0: all events. Default: only new events.
            follow: Continue with live events. If false, the stream ends after the stored events.
        """
        if after_seq is None:
            after_seq = (await self.refresh()).last_seq
        request = watch_request(self.id, "", after_seq, follow)
        return AsyncWatch(self._host, request)

    async def cancel(
        self, turn_id: str = "", *, rollback: bool = False, reason: str = ""
    ) -> turn_service_pb2.CancelTurnResponse:
        """Cancels a turn.

        Args:
            turn_id: Id of the turn. Default: the running turn.
            rollback: Void the messages of the turn. Default: keep them, including the partial response.
            reason: Reason, for the log and the event.
        """
        return await self._call(ops.cancel_turn(self.id, turn_id, rollback, reason))

    async def turn(self, turn_id: str) -> turn_pb2.Turn:
        """Returns a turn."""
        return await self._call(ops.get_turn(self.id, turn_id))

    def turns(self) -> AsyncIterator[turn_pb2.Turn]:
        """Lists the turns, newest first."""
        return self._host.transport.items(ops.list_turns(self.id))

    async def approve(self, call_id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Approves a call that waits for approval, optionally with other arguments."""
        await self._call(ops.decide(self.id, call_id, Approval(True, arguments)))

    async def deny(self, call_id: str, reason: str = "") -> None:
        """Denies a call that waits for approval. The model gets the reason."""
        await self._call(ops.decide(self.id, call_id, Approval(False, reason=reason)))

    async def submit(self, call_id: str, output: Any) -> None:
        """Submits the result of a call that no run handles: the tool's output, or an exception."""
        result = failure(call_id, output) if isinstance(output, BaseException) else success(call_id, output)
        await self._call(ops.submit(turn_service_pb2.SubmitToolResultsRequest(session_id=self.id, results=[result])))

    # --- The queue ---------------------------------------------------------------------------------

    async def send(
        self,
        content: Input,
        *,
        delivery: DeliveryMode = "asap",
        start_turn: bool = False,
        ttl: float | None = None,
        metadata: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> queue_service_pb2.EnqueueMessageResponse:
        """Queues a message while a turn runs. When this returns, the message is stored; it is taken exactly once.

        Args:
            content: Text, media, or a list of both.
            delivery: When it is taken: at the next step of the running turn, after the turn, or by interrupting it.
            start_turn: Start a turn with the session's tools if none is running. Default: wait for the next turn.
            ttl: Seconds after which the message expires if it was not taken.
            metadata: Labels of the message.
            request_id: Idempotency key.
        """
        return await self._call(ops.enqueue(self.id, content, delivery, start_turn, ttl, metadata, request_id))

    def queued(self) -> AsyncIterator[queue_pb2.QueuedMessage]:
        """Lists the waiting messages, in the order in which they will be taken."""
        return self._host.transport.items(ops.list_queued(self.id))

    async def withdraw(self, queued_message_id: str) -> queue_pb2.QueuedMessage:
        """Withdraws a waiting message. The returned message has its state."""
        return await self._call(ops.withdraw(self.id, queued_message_id))

    async def clear_queue(self) -> list[str]:
        """Withdraws all waiting messages and returns their ids."""
        return await self._call(ops.clear_queue(self.id))

    # --- The transcript ----------------------------------------------------------------------------

    def messages(
        self, *, view: View = "all", newest_first: bool = False, at_seq: int = 0, limit: int | None = None
    ) -> AsyncIterator[Message]:
        """Lists the messages: all of them, or those that the model sees (`view="live"`)."""
        return self._host.transport.items(ops.list_messages(self.id, view, newest_first, at_seq), limit)

    async def append(
        self,
        messages: Sequence[Any],
        *,
        format: Format | None = None,
        version: int = 0,
        model: str = "",
    ) -> session_service_pb2.AppendMessagesResponse:
        """Appends messages without running a turn.

        Args:
            messages: User messages (text, or `InputMessage`). With `format`, messages of that API as dictionaries.
            format: The API whose format the messages have.
            version: Append only if the transcript still has this version (`Prompt.version`).
            model: Reference of the model that wrote the assistant messages.
        """
        if format is None:
            plain = [input_message(message) for message in messages]
            return await self._call(ops.append_messages(self.id, plain, context_version=version))
        text = vendors.messages_json(messages)
        return await self._call(ops.append_messages(self.id, (), text, format, version, model))

    async def fork(self, new_id: str | None = None, *, at_seq: int = 0) -> AsyncSession:
        """Creates a session with the transcript of this one, current or as of a seq."""
        return AsyncSession(self._host, await self._call(ops.fork_session(self.id, at_seq, new_id)), self._offered())

    # --- The context -------------------------------------------------------------------------------

    async def stats(self, *, model: str = "") -> context_pb2.ContextStats:
        """Returns what fills the context window, and a forecast of the next compaction."""
        return (await self._call(ops.stats(self.id, model, False))).stats

    async def stats_text(self, *, model: str = "") -> str:
        """Returns the statistics as a text of about 25 lines."""
        return (await self._call(ops.stats(self.id, model, True))).text

    async def compact(
        self,
        *,
        strategy: Strategy | None = None,
        target_tokens: int = 0,
        instructions: str = "",
        summary_model: str = "",
        wait: bool = True,
        validate_only: bool = False,
    ) -> context_pb2.Compaction:
        """Compacts the context now.

        Args:
            strategy: The strategy to try first. Default: the policy's.
            target_tokens: Maximum size of the prompt afterwards.
            instructions: Additional instructions for the summary.
            summary_model: Reference of the model that writes the summary.
            wait: Return when the compaction has ended. If false, return when it has started.
            validate_only: Only report what would change.
        """
        operation = ops.compact(self.id, strategy, target_tokens, instructions, summary_model, wait, validate_only)
        return await self._host.transport.call(operation, COMPACT_SECONDS if wait else None)

    def compactions(self) -> AsyncIterator[context_pb2.Compaction]:
        """Lists the compactions, newest first."""
        return self._host.transport.items(ops.list_compactions(self.id))

    async def revert_compaction(self, compaction_id: str) -> context_pb2.Compaction:
        """Reverts the newest compaction."""
        return await self._call(ops.revert_compaction(self.id, compaction_id))

    async def count_tokens(
        self, content: Input | None = None, *, tools: Iterable[ToolLike] | None = None, exact: bool = False
    ) -> int:
        """Counts the tokens of the next prompt with this content added to it."""
        offered = tools_by_name(tools) if tools is not None else None
        messages = [input_message(content)] if content is not None else []
        return (await self._call(ops.count_tokens(messages, "", self.id, "", offered, exact))).total.tokens

    # --- Bring your own loop -----------------------------------------------------------------------

    async def prepare(
        self,
        *,
        format: Format = "openai",
        model: str = "",
        apply_queued: bool = True,
        stream: bool = False,
    ) -> vendors.Prompt:
        """Returns the next prompt for a host that calls the model itself, in the format of a vendor's SDK.

        Args:
            format: The API whose format the request has.
            model: Reference of the model to prepare for. Default: the session's.
            apply_queued: First move queued messages into the transcript.
            stream: Whether the request is for a streaming response.
        """
        answer = await self._call(ops.prepare(self.id, format, model, apply_queued))
        blob = answer.prompt.request_blob.blob_id
        return vendors.prompt_of(format, answer, await get_blob(self._host.transport, blob) if blob else None, stream)

    async def record(self, response: Any, prompt: vendors.Prompt) -> list[str]:
        """Appends the response of the model and records its usage. Returns the ids of the messages.

        Args:
            response: The response of the vendor's SDK, as an object or as a dictionary.
            prompt: The prompt that was sent.
        """
        answer = vendors.answer_of(prompt.format, response)
        text = vendors.messages_json(answer.messages)
        appended = await self._call(ops.append_messages(self.id, (), text, prompt.format, prompt.version, prompt.model))
        ids = list(appended.message_ids)
        if answer.usage is not None:
            await self.record_usage(answer.usage, model=prompt.model, message_id=ids[0], version=prompt.version)
        return ids

    async def record_usage(
        self, usage: usage_pb2.Usage, *, model: str = "", message_id: str = "", version: int = 0
    ) -> context_service_pb2.RecordUsageResponse:
        """Records the usage of a model call."""
        return await self._call(ops.record_usage(self.id, usage, model, message_id, version))

    # --- The session itself ------------------------------------------------------------------------

    async def refresh(self) -> session_pb2.Session:
        """Reads the session again. The result is also in `raw`."""
        self.raw = await self._call(ops.get_session(self.id))
        return self.raw

    async def update(
        self,
        *,
        model: str | None = None,
        instructions: str | None = None,
        tools: Iterable[ToolLike] | None = None,
        pinned: Mapping[str, str] | None = None,
        limits: LimitsLike | None = None,
        generation: GenerationLike | None = None,
        policy: str | None = None,
        policy_overrides: policy_pb2.Policy | None = None,
        metadata: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> session_pb2.Session:
        """Changes the given settings, from the next step on."""
        offered = tools_by_name(tools) if tools is not None else None
        config = session_of(
            model=model,
            instructions=instructions,
            tools=tool_set(offered) if offered is not None else None,
            pinned=pinned,
            limits=limits,
            generation=generation,
            policy=policy,
            policy_overrides=policy_overrides,
            metadata=metadata,
            ttl=ttl,
        )
        self.raw = await self._call(ops.update_session(self.id, config))
        if offered is not None:
            self._tools = offered
        return self.raw

    async def delete(self) -> None:
        """Deletes the session with all its data."""
        await self._call(ops.delete_session(self.id))

    def _offered(self) -> Iterable[ToolLike] | None:
        return self._tools.values() if self._tools is not None else None

    async def _call(self, operation: ops.Operation[ops.T]) -> ops.T:
        return await self._host.transport.call(operation)

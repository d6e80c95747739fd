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

# A compaction may take as long as a model that writes a summary.
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
        """Runs a turn: iterate over it for its events, or ask it for its `result()`.

        It goes on by itself after lost connections and restarts of the server. Each word and each event comes once, and
        each call is run once. Leaving it cancels nothing.

        Args:
            input: What the user says: text, media, or a list of both. May be left out when messages wait in the queue.
            tools: The tools of this turn, in place of those of the session.
            model: The model of this turn.
            limits: Bounds of this turn.
            generation: How the model is to answer.
            busy: What to do when a turn is running: queue the input, refuse it, or interrupt that turn.
            on_approval: Decides about calls of tools that need approval. Without it, `approve` and `deny` do.
            request_id: Names the request. One that is repeated, also by another process, attaches to its turn.
            continue_transcript: Call the model on the transcript as it stands, without input.
            cancel_after_disconnect: Cancel the turn when no client has read it for so many seconds.
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
        """Runs a turn and gives the words of its answer. The options are those of `run`."""
        return (await self.run(input, **options).result()).text

    async def resume(
        self,
        *,
        tools: Iterable[ToolLike] | None = None,
        on_approval: OnApproval | None = None,
        after_seq: int | None = None,
    ) -> AsyncRun | None:
        """Comes back to the turn that runs, as after a crash of this process: `None` when none does.

        Calls that wait for a result are run, also those that a host began that is gone now.

        Args:
            tools: The tools to run, in place of those of the session.
            on_approval: As for `run`.
            after_seq: The last seq that was handled. By default the whole turn is told again.
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
        """The events of the session, whoever runs its turns. It comes back by itself after lost connections.

        Args:
            after_seq: The last seq that was handled; 0 for everything. By default what comes from now on.
            follow: Go on with live events. Else the stream ends when everything that is stored was yielded.
        """
        if after_seq is None:
            after_seq = (await self.refresh()).last_seq
        request = watch_request(self.id, "", after_seq, follow)
        return AsyncWatch(self._host, request)

    async def cancel(
        self, turn_id: str = "", *, rollback: bool = False, reason: str = ""
    ) -> turn_service_pb2.CancelTurnResponse:
        """Cancels the turn that runs, or the one that is named.

        Args:
            turn_id: The turn.
            rollback: Void its messages. Else they are kept, the partial answer included.
            reason: Why, for the log and the event.
        """
        return await self._call(ops.cancel_turn(self.id, turn_id, rollback, reason))

    async def turn(self, turn_id: str) -> turn_pb2.Turn:
        """Reads a turn."""
        return await self._call(ops.get_turn(self.id, turn_id))

    def turns(self) -> AsyncIterator[turn_pb2.Turn]:
        """The turns, newest first."""
        return self._host.transport.items(ops.list_turns(self.id))

    async def approve(self, call_id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Lets a call run that waits for a person, if need be with other arguments."""
        await self._call(ops.decide(self.id, call_id, Approval(True, arguments)))

    async def deny(self, call_id: str, reason: str = "") -> None:
        """Refuses a call that waits for a person. The model gets the reason."""
        await self._call(ops.decide(self.id, call_id, Approval(False, reason=reason)))

    async def submit(self, call_id: str, output: Any) -> None:
        """Answers a call that no run handles: with the tool's output, or with an exception."""
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
        """Sends a message while the agent works. It is stored when this returns, and taken once.

        Args:
            content: Text, media, or a list of both.
            delivery: At the next step of the turn that runs, after it, or by interrupting it.
            start_turn: Start a turn where none runs, with the session's own tools. Else it waits for the next one.
            ttl: Seconds after which it expires if it was not taken.
            metadata: Labels.
            request_id: Names the request.
        """
        return await self._call(ops.enqueue(self.id, content, delivery, start_turn, ttl, metadata, request_id))

    def queued(self) -> AsyncIterator[queue_pb2.QueuedMessage]:
        """The messages that wait, the next one first."""
        return self._host.transport.items(ops.list_queued(self.id))

    async def withdraw(self, queued_message_id: str) -> queue_pb2.QueuedMessage:
        """Withdraws a message that waits; the answer says whether it still did."""
        return await self._call(ops.withdraw(self.id, queued_message_id))

    async def clear_queue(self) -> list[str]:
        """Withdraws all messages that wait."""
        return await self._call(ops.clear_queue(self.id))

    # --- The transcript ----------------------------------------------------------------------------

    def messages(
        self, *, view: View = "all", newest_first: bool = False, at_seq: int = 0, limit: int | None = None
    ) -> AsyncIterator[Message]:
        """The messages: all of them, or those that the model sees (`view="live"`)."""
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
            messages: What users say (text, or `InputMessage`); with a format, messages of that API as dictionaries.
            format: The API whose shape the messages have.
            version: Append only if the transcript still has this version (`Prompt.version`).
            model: The model that wrote the assistant's messages among them.
        """
        if format is None:
            plain = [input_message(message) for message in messages]
            return await self._call(ops.append_messages(self.id, plain, context_version=version))
        text = vendors.messages_json(messages)
        return await self._call(ops.append_messages(self.id, (), text, format, version, model))

    async def fork(self, new_id: str | None = None, *, at_seq: int = 0) -> AsyncSession:
        """A new session with the transcript of this one, as it was at a seq or as it is."""
        return AsyncSession(self._host, await self._call(ops.fork_session(self.id, at_seq, new_id)), self._offered())

    # --- The context -------------------------------------------------------------------------------

    async def stats(self, *, model: str = "") -> context_pb2.ContextStats:
        """What fills the context window, and how long it will last."""
        return (await self._call(ops.stats(self.id, model, False))).stats

    async def stats_text(self, *, model: str = "") -> str:
        """The same as a text of some 25 lines."""
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
        """Makes the context smaller now.

        Args:
            strategy: How, if not as the policy says.
            target_tokens: Make the prompt at most this large.
            instructions: Further instructions for the summary.
            summary_model: The model that writes it.
            wait: Return when it is done. Else when it is started.
            validate_only: Only report what would be done.
        """
        operation = ops.compact(self.id, strategy, target_tokens, instructions, summary_model, wait, validate_only)
        return await self._host.transport.call(operation, COMPACT_SECONDS if wait else None)

    def compactions(self) -> AsyncIterator[context_pb2.Compaction]:
        """The compactions, newest first."""
        return self._host.transport.items(ops.list_compactions(self.id))

    async def revert_compaction(self, compaction_id: str) -> context_pb2.Compaction:
        """Takes the newest compaction back."""
        return await self._call(ops.revert_compaction(self.id, compaction_id))

    async def count_tokens(
        self, content: Input | None = None, *, tools: Iterable[ToolLike] | None = None, exact: bool = False
    ) -> int:
        """Tokens of the next prompt, with what is given added to it."""
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
        """The next prompt for a host that calls the model by itself, in the shape of a vendor's SDK.

        Args:
            format: The API.
            model: The model to prepare for, if not the session's.
            apply_queued: Take waiting messages into the transcript first.
            stream: Whether the request asks for a stream.
        """
        answer = await self._call(ops.prepare(self.id, format, model, apply_queued))
        blob = answer.prompt.request_blob.blob_id
        return vendors.prompt_of(format, answer, await get_blob(self._host.transport, blob) if blob else None, stream)

    async def record(self, response: Any, prompt: vendors.Prompt) -> list[str]:
        """Appends what the model said, and records what it used; gives the ids of the messages.

        Args:
            response: The response of the vendor's SDK, or the same as a dictionary.
            prompt: What it answers.
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
        """Records what a call of the model used."""
        return await self._call(ops.record_usage(self.id, usage, model, message_id, version))

    # --- The session itself ------------------------------------------------------------------------

    async def refresh(self) -> session_pb2.Session:
        """Reads the session anew; `raw` has it too."""
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
        """Changes what is given; in force from the next step."""
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
        """Deletes the session with all it holds."""
        await self._call(ops.delete_session(self.id))

    def _offered(self) -> Iterable[ToolLike] | None:
        return self._tools.values() if self._tools is not None else None

    async def _call(self, operation: ops.Operation[ops.T]) -> ops.T:
        return await self._host.transport.call(operation)

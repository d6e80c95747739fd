"""The unary calls: their requests and how their responses are decoded, for both APIs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ..content import Input, Message, input_message
from ..options import (
    BUSY,
    DELIVERY,
    FORMATS,
    STRATEGIES,
    GenerationLike,
    LimitsLike,
    chosen,
    duration,
    generation_of,
    limits_of,
)
from ..tools import Approval, Tool, tool_set
from ..v1 import (
    context_pb2,
    context_service_pb2,
    message_pb2,
    model_pb2,
    model_service_pb2,
    queue_pb2,
    queue_service_pb2,
    session_pb2,
    session_service_pb2,
    turn_pb2,
    turn_service_pb2,
    usage_pb2,
)

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
PAGE = 100


@dataclass(frozen=True)
class Operation(Generic[T]):
    """A call. It can be repeated: reads have no effect, and writes have a request_id."""

    service: str
    method: str
    request: ProtoMessage
    decode: Callable[[Any], T]


@dataclass(frozen=True)
class Listing(Generic[I]):
    """A list that is read page by page: an operation for each page token."""

    page: Callable[[str], Operation[tuple[list[I], str]]]


def new_id() -> str:
    """An idempotency key."""
    return str(uuid.uuid4())


# --- Sessions ------------------------------------------------------------------------------------------


def create_session(session_id: str | None, config: session_pb2.Session) -> Operation[session_pb2.Session]:
    """Creates a session."""
    session = session_pb2.Session()
    session.CopyFrom(config)
    session.session_id = session_id or ""
    request = session_service_pb2.CreateSessionRequest(session=session, request_id=new_id())
    return Operation("SessionService", "CreateSession", request, lambda answer: answer.session)


def get_session(session_id: str) -> Operation[session_pb2.Session]:
    """Reads a session."""
    request = session_service_pb2.GetSessionRequest(session_id=session_id)
    return Operation("SessionService", "GetSession", request, lambda answer: answer.session)


def update_session(
    session_id: str, config: session_pb2.Session, mask: Sequence[str] = ()
) -> Operation[session_pb2.Session]:
    """Changes what is set in `config`, or what `mask` lists."""
    session = session_pb2.Session()
    session.CopyFrom(config)
    session.session_id = session_id
    request = session_service_pb2.UpdateSessionRequest(session=session, request_id=new_id())
    request.update_mask.paths.extend(mask)
    return Operation("SessionService", "UpdateSession", request, lambda answer: answer.session)


def delete_session(session_id: str) -> Operation[None]:
    """Deletes a session."""
    request = session_service_pb2.DeleteSessionRequest(session_id=session_id, request_id=new_id())
    return Operation("SessionService", "DeleteSession", request, lambda answer: None)


def fork_session(session_id: str, at_seq: int, new_session_id: str | None) -> Operation[session_pb2.Session]:
    """Makes a new session with the transcript of another one."""
    request = session_service_pb2.ForkSessionRequest(
        session_id=session_id, at_seq=at_seq, new_session_id=new_session_id or "", request_id=new_id()
    )
    return Operation("SessionService", "ForkSession", request, lambda answer: answer.session)


def list_sessions() -> Listing[session_pb2.Session]:
    """Lists all sessions, most recently updated first."""

    def page(token: str) -> Operation[tuple[list[session_pb2.Session], str]]:
        request = session_service_pb2.ListSessionsRequest(page_size=PAGE, page_token=token)
        return Operation("SessionService", "ListSessions", request, lambda a: (list(a.sessions), a.next_page_token))

    return Listing(page)


def append_messages(
    session_id: str,
    messages: Sequence[message_pb2.InputMessage] = (),
    messages_json: str = "",
    format: str = "",
    context_version: int = 0,
    model: str = "",
) -> Operation[session_service_pb2.AppendMessagesResponse]:
    """Appends messages without running a turn."""
    request = session_service_pb2.AppendMessagesRequest(
        session_id=session_id,
        request_id=new_id(),
        messages=messages,
        messages_json=messages_json,
        context_version=context_version,
        messages_model=model,
    )
    if format:
        request.messages_format = chosen("format", format, FORMATS)
    return Operation("SessionService", "AppendMessages", request, lambda answer: answer)


def list_messages(session_id: str, view: str, newest_first: bool, at_seq: int) -> Listing[Message]:
    """The messages of a session."""
    views = {"all": session_service_pb2.MESSAGE_VIEW_ALL, "live": session_service_pb2.MESSAGE_VIEW_LIVE}

    def page(token: str) -> Operation[tuple[list[Message], str]]:
        request = session_service_pb2.ListMessagesRequest(
            session_id=session_id,
            view=chosen("view", view, views),
            newest_first=newest_first,
            at_seq=at_seq,
            page_size=PAGE,
            page_token=token,
        )
        return Operation(
            "SessionService",
            "ListMessages",
            request,
            lambda a: ([Message.of(message) for message in a.messages], a.next_page_token),
        )

    return Listing(page)


# --- Turns ---------------------------------------------------------------------------------------------


def execute_turn(
    session_id: str,
    input: Input | None,
    tools: Mapping[str, Tool] | None,
    *,
    request_id: str | None = None,
    model: str | None = None,
    limits: LimitsLike | None = None,
    generation: GenerationLike | None = None,
    busy: str = "enqueue",
    continue_transcript: bool = False,
    cancel_after_disconnect: float | None = None,
    metadata: Mapping[str, str] | None = None,
) -> turn_service_pb2.ExecuteTurnRequest:
    """A turn to run."""
    return turn_service_pb2.ExecuteTurnRequest(
        session_id=session_id,
        request_id=request_id or new_id(),
        input=input_message(input, metadata) if input is not None else None,
        continue_transcript=continue_transcript,
        tools=tool_set(tools) if tools is not None else None,
        limits=limits_of(limits) if limits else None,
        model=model or "",
        generation=generation_of(generation) if generation else None,
        busy_policy=chosen("busy", busy, BUSY),
        cancel_after_disconnect=duration(cancel_after_disconnect) if cancel_after_disconnect else None,
    )


def get_turn(session_id: str, turn_id: str) -> Operation[turn_pb2.Turn]:
    """Returns a turn."""
    request = turn_service_pb2.GetTurnRequest(session_id=session_id, turn_id=turn_id)
    return Operation("TurnService", "GetTurn", request, lambda answer: answer.turn)


def list_turns(session_id: str) -> Listing[turn_pb2.Turn]:
    """The turns of a session, newest first."""

    def page(token: str) -> Operation[tuple[list[turn_pb2.Turn], str]]:
        request = turn_service_pb2.ListTurnsRequest(session_id=session_id, page_size=PAGE, page_token=token)
        return Operation("TurnService", "ListTurns", request, lambda a: (list(a.turns), a.next_page_token))

    return Listing(page)


def cancel_turn(
    session_id: str, turn_id: str, rollback: bool, reason: str
) -> Operation[turn_service_pb2.CancelTurnResponse]:
    """Cancels a turn."""
    request = turn_service_pb2.CancelTurnRequest(
        session_id=session_id,
        turn_id=turn_id,
        request_id=new_id(),
        mode=turn_pb2.CANCEL_MODE_ROLLBACK if rollback else turn_pb2.CANCEL_MODE_STOP,
        reason=reason,
    )
    return Operation("TurnService", "CancelTurn", request, lambda answer: answer)


def decide(session_id: str, call_id: str, decision: Approval) -> Operation[None]:
    """A person's decision about a call."""
    approval = turn_service_pb2.Approval(
        call_id=call_id,
        decision=turn_service_pb2.APPROVAL_DECISION_APPROVE
        if decision.approved
        else turn_service_pb2.APPROVAL_DECISION_DENY,
        edited_arguments_json=json.dumps(dict(decision.arguments)) if decision.arguments is not None else "",
        reason=decision.reason,
    )
    request = turn_service_pb2.SubmitToolResultsRequest(session_id=session_id, approvals=[approval])
    return Operation("TurnService", "SubmitToolResults", request, lambda answer: None)


def submit(
    request: turn_service_pb2.SubmitToolResultsRequest,
) -> Operation[turn_service_pb2.SubmitToolResultsResponse]:
    """Answers to tool calls."""
    return Operation("TurnService", "SubmitToolResults", request, lambda answer: answer)


# --- The queue -----------------------------------------------------------------------------------------


def enqueue(
    session_id: str,
    content: Input,
    delivery: str,
    start_turn: bool,
    ttl: float | None,
    metadata: Mapping[str, str] | None,
    request_id: str | None,
) -> Operation[queue_service_pb2.EnqueueMessageResponse]:
    """Queues a message."""
    request = queue_service_pb2.EnqueueMessageRequest(
        session_id=session_id,
        request_id=request_id or new_id(),
        message=input_message(content, metadata),
        delivery=chosen("delivery", delivery, DELIVERY),
        on_idle=queue_pb2.IDLE_ACTION_START_TURN if start_turn else queue_pb2.IDLE_ACTION_HOLD,
        ttl=duration(ttl) if ttl is not None else None,
    )
    return Operation("QueueService", "EnqueueMessage", request, lambda answer: answer)


def list_queued(session_id: str) -> Listing[queue_pb2.QueuedMessage]:
    """Lists the waiting messages, in the order in which they will be taken."""

    def page(token: str) -> Operation[tuple[list[queue_pb2.QueuedMessage], str]]:
        request = queue_service_pb2.ListQueuedMessagesRequest(session_id=session_id, page_size=PAGE, page_token=token)
        return Operation(
            "QueueService", "ListQueuedMessages", request, lambda a: (list(a.queued_messages), a.next_page_token)
        )

    return Listing(page)


def withdraw(session_id: str, queued_message_id: str) -> Operation[queue_pb2.QueuedMessage]:
    """Withdraws a waiting message."""
    request = queue_service_pb2.CancelQueuedMessageRequest(
        session_id=session_id, queued_message_id=queued_message_id, request_id=new_id()
    )
    return Operation("QueueService", "CancelQueuedMessage", request, lambda answer: answer.queued_message)


def clear_queue(session_id: str) -> Operation[list[str]]:
    """Withdraws all waiting messages and returns their ids."""
    request = queue_service_pb2.ClearQueueRequest(session_id=session_id, request_id=new_id())
    return Operation("QueueService", "ClearQueue", request, lambda answer: list(answer.cancelled_message_ids))


# --- The context ---------------------------------------------------------------------------------------


def stats(session_id: str, model: str, text: bool) -> Operation[context_service_pb2.GetContextStatsResponse]:
    """Returns the statistics of the context window."""
    style = context_service_pb2.STATS_FORMAT_TEXT if text else context_service_pb2.STATS_FORMAT_UNSPECIFIED
    request = context_service_pb2.GetContextStatsRequest(session_id=session_id, model=model, format=style)
    return Operation("ContextService", "GetContextStats", request, lambda answer: answer)


def compact(
    session_id: str,
    strategy: str | None,
    target_tokens: int,
    instructions: str,
    summary_model: str,
    wait: bool,
    validate_only: bool,
) -> Operation[context_pb2.Compaction]:
    """Compacts the context."""
    request = context_service_pb2.CompactRequest(
        session_id=session_id,
        request_id=new_id(),
        target_tokens=target_tokens,
        instructions=instructions,
        summary_model=summary_model,
        wait=wait,
        validate_only=validate_only,
    )
    if strategy:
        request.strategy = chosen("strategy", strategy, STRATEGIES)
    return Operation("ContextService", "Compact", request, lambda answer: answer.compaction)


def list_compactions(session_id: str) -> Listing[context_pb2.Compaction]:
    """The compactions of a session, newest first."""

    def page(token: str) -> Operation[tuple[list[context_pb2.Compaction], str]]:
        request = context_service_pb2.ListCompactionsRequest(session_id=session_id, page_size=PAGE, page_token=token)
        return Operation(
            "ContextService", "ListCompactions", request, lambda a: (list(a.compactions), a.next_page_token)
        )

    return Listing(page)


def revert_compaction(session_id: str, compaction_id: str) -> Operation[context_pb2.Compaction]:
    """Reverts the newest compaction."""
    request = context_service_pb2.RevertCompactionRequest(
        session_id=session_id, compaction_id=compaction_id, request_id=new_id()
    )
    return Operation("ContextService", "RevertCompaction", request, lambda answer: answer.compaction)


def prepare(
    session_id: str,
    format: str,
    model: str,
    apply_queued: bool,
) -> Operation[context_service_pb2.PrepareContextResponse]:
    """Prepares the next prompt."""
    request = context_service_pb2.PrepareContextRequest(
        session_id=session_id,
        request_id=new_id(),
        model=model,
        format=chosen("format", format, FORMATS),
        apply_queued_messages=apply_queued,
    )
    return Operation("ContextService", "PrepareContext", request, lambda answer: answer)


def record_usage(
    session_id: str, usage: usage_pb2.Usage, model: str, message_id: str, context_version: int
) -> Operation[context_service_pb2.RecordUsageResponse]:
    """Records what a call of the host used."""
    request = context_service_pb2.RecordUsageRequest(
        session_id=session_id,
        request_id=new_id(),
        model=model,
        usage=usage,
        message_id=message_id,
        context_version=context_version,
    )
    return Operation("ContextService", "RecordUsage", request, lambda answer: answer)


def count_tokens(
    content: Sequence[message_pb2.InputMessage],
    model: str,
    session_id: str,
    instructions: str,
    tools: Mapping[str, Tool] | None,
    exact: bool,
) -> Operation[context_service_pb2.CountTokensResponse]:
    """Counts tokens."""
    request = context_service_pb2.CountTokensRequest(
        model=model,
        session_id=session_id,
        messages=content,
        system_prompt=instructions,
        tools=tool_set(tools) if tools is not None else None,
        exact=exact,
    )
    return Operation("ContextService", "CountTokens", request, lambda answer: answer)


# --- Models --------------------------------------------------------------------------------------------


def list_models(provider: str) -> Listing[model_pb2.Model]:
    """Lists the models that sessions can use."""

    def page(token: str) -> Operation[tuple[list[model_pb2.Model], str]]:
        request = model_service_pb2.ListModelsRequest(page_size=PAGE, page_token=token, provider=provider)
        return Operation("ModelService", "ListModels", request, lambda a: (list(a.models), a.next_page_token))

    return Listing(page)

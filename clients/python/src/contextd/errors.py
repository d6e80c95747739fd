"""What can go wrong, as exceptions.

Every refusal of the server is an `ApiError`. Its class is chosen by the reason (`SessionNotFoundError`), which is a
kind of the class of its gRPC code (`NotFoundError`), so that one may catch either. A turn that failed is a
`TurnFailedError` of `Result`: it was admitted, so it is no `ApiError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Failure, Result

DOMAIN = "contextd.dev"


class ContextdError(Exception):
    """Whatever this package raises on its own account."""


@dataclass(frozen=True)
class FieldViolation:
    """One field of a request that is wrong: its path, the `FieldReason` and a sentence."""

    field: str
    reason: str
    description: str


@dataclass(frozen=True)
class QuotaViolation:
    """One limit that was met."""

    subject: str
    description: str


@dataclass(frozen=True)
class Problem:
    """What a status says, read from its details."""

    code: str
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    fields: tuple[FieldViolation, ...] = ()
    quotas: tuple[QuotaViolation, ...] = ()
    retry_after: float | None = None
    resource_type: str = ""
    resource_name: str = ""
    request_id: str = ""


class ApiError(ContextdError):
    """The server refused a request, or could not be reached.

    `reason` is a name of the enum `ErrorReason`, such as `"QUEUE_FULL"`; it is empty when the answer did not come from
    contextd. Switch on the class or on `reason`, never on the text.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(self._text())

    def _text(self) -> str:
        problem = self.problem
        lines = [f"{problem.reason or problem.code}: {problem.message}"]
        lines += [f"  {violation.field}: {violation.description}" for violation in problem.fields]
        return "\n".join(lines)

    @property
    def code(self) -> str:
        """The gRPC code, such as `"NOT_FOUND"`."""
        return self.problem.code

    @property
    def reason(self) -> str:
        """Why, as a name of `ErrorReason`; empty when it is not from contextd."""
        return self.problem.reason

    @property
    def metadata(self) -> dict[str, str]:
        """What the reason comes with, such as `oldest_seq`; see the comment on the reason in `error.proto`."""
        return self.problem.metadata

    @property
    def fields(self) -> tuple[FieldViolation, ...]:
        """The fields of the request that are wrong."""
        return self.problem.fields

    @property
    def quotas(self) -> tuple[QuotaViolation, ...]:
        """The limits that were met."""
        return self.problem.quotas

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server asks to try again."""
        return self.problem.retry_after

    @property
    def resource(self) -> tuple[str, str]:
        """What was not found, or is there already: its type and its name."""
        return self.problem.resource_type, self.problem.resource_name

    @property
    def request_id(self) -> str:
        """Under which the server's log has the details of an internal error."""
        return self.problem.request_id


class InvalidArgumentError(ApiError):
    """INVALID_ARGUMENT."""


class OutOfRangeError(ApiError):
    """OUT_OF_RANGE."""


class ResourceExhaustedError(ApiError):
    """RESOURCE_EXHAUSTED."""


class DataLossError(ApiError):
    """DATA_LOSS."""


class NotFoundError(ApiError):
    """NOT_FOUND."""


class AlreadyExistsError(ApiError):
    """ALREADY_EXISTS."""


class AbortedError(ApiError):
    """ABORTED."""


class FailedPreconditionError(ApiError):
    """FAILED_PRECONDITION."""


class UnavailableError(ApiError):
    """UNAVAILABLE: no server could be reached, or none can serve now."""


class ServerUnreachableError(UnavailableError):
    """The first connection to the server did not come about: the message says why, and what to do."""


class TimedOutError(ApiError):
    """DEADLINE_EXCEEDED."""


class UnauthenticatedError(ApiError):
    """UNAUTHENTICATED: the API key is missing, unknown, expired or revoked."""


class PermissionDeniedError(ApiError):
    """PERMISSION_DENIED: the API key does not allow it; `metadata["access"]` says what would."""


class UnimplementedError(ApiError):
    """UNIMPLEMENTED: the server is older than this client, or leaves this out."""


class InternalError(ApiError):
    """INTERNAL: an error of the server; its log has it under `request_id`."""


class InvalidRequestError(InvalidArgumentError):
    """Fields of the request are wrong; see `fields`."""


class IdempotencyMismatchError(InvalidArgumentError):
    """The request_id was used for a different request."""


class PageTokenInvalidError(InvalidArgumentError):
    """The page token is damaged or belongs to another list."""


class CursorAheadError(InvalidArgumentError):
    """The seq is ahead of the session."""


class EventsExpiredError(OutOfRangeError):
    """Retention removed these events; go on from `metadata["oldest_seq"]` - 1."""


class RequestTooLargeError(ResourceExhaustedError):
    """The request is larger than the server reads."""


class EventsLostError(DataLossError):
    """The database no longer has events that were shown; read the session anew."""


class SessionNotFoundError(NotFoundError):
    """No session has the id."""


class TurnNotFoundError(NotFoundError):
    """The session has no such turn."""


class QueuedMessageNotFoundError(NotFoundError):
    """The session has no such queued message."""


class CompactionNotFoundError(NotFoundError):
    """The session has no such compaction."""


class BlobNotFoundError(NotFoundError):
    """No blob has the id."""


class ModelNotFoundError(NotFoundError):
    """No provider has this model; `client.models()` shows what there is."""


class PolicyNotFoundError(NotFoundError):
    """The server's configuration names no such policy."""


class KeyNotFoundError(NotFoundError):
    """The tenant has no such API key."""


class McpServerNotFoundError(NotFoundError):
    """The server's configuration names no such MCP server."""


class SessionAlreadyExistsError(AlreadyExistsError):
    """A session has the id, or was deleted a moment ago."""


class EtagMismatchError(AbortedError):
    """The session changed since it was read."""


class ContextChangedError(AbortedError):
    """The transcript changed since it was prepared; prepare again."""


class CompactionInProgressError(AbortedError):
    """Another compaction of this session is running."""


class TurnInProgressError(FailedPreconditionError):
    """A turn is running: watch it, queue the message, or cancel it."""


class NoInputError(FailedPreconditionError):
    """There is nothing to run."""


class TranscriptOpenError(FailedPreconditionError):
    """The transcript ends in calls without results; `metadata["call_ids"]` names them."""


class ContextOverflowError(FailedPreconditionError):
    """The prompt cannot be made to fit."""


class ContextWindowUnknownError(FailedPreconditionError):
    """The model's window is not known, and the policy asks for one."""


class CompactionNoGainError(FailedPreconditionError):
    """A compaction would not make the context smaller."""


class CompactionSupersededError(FailedPreconditionError):
    """A later compaction builds on this one."""


class TenantBeingDeletedError(FailedPreconditionError):
    """The tenant is being deleted with everything that it has."""


class McpToolsUnusableError(FailedPreconditionError):
    """The tools that an MCP server lists cannot be used as the tool set says."""


class QueueFullError(ResourceExhaustedError):
    """The session's queue is full."""


class RateLimitedError(ResourceExhaustedError):
    """The tenant is at a limit that waiting helps with; see `retry_after`."""


class QuotaExceededError(ResourceExhaustedError):
    """A lasting quota is used up."""


class OverloadedError(UnavailableError):
    """The server is overloaded."""


class DrainingError(UnavailableError):
    """The server is shutting down."""


class DatabaseUnavailableError(UnavailableError):
    """The server cannot reach its database."""


class ProviderFailedError(UnavailableError):
    """A model service failed in a call that needs it."""


class McpServerFailedError(UnavailableError):
    """An MCP server could not be asked for its tools."""


class SchemaOutdatedError(UnavailableError):
    """The database waits for a migration."""


BY_CODE: dict[str, type[ApiError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": OutOfRangeError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "DATA_LOSS": DataLossError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "ABORTED": AbortedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": TimedOutError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNIMPLEMENTED": UnimplementedError,
    "INTERNAL": InternalError,
}

BY_REASON: dict[str, type[ApiError]] = {
    "INVALID_REQUEST": InvalidRequestError,
    "IDEMPOTENCY_MISMATCH": IdempotencyMismatchError,
    "PAGE_TOKEN_INVALID": PageTokenInvalidError,
    "CURSOR_AHEAD": CursorAheadError,
    "EVENTS_EXPIRED": EventsExpiredError,
    "REQUEST_TOO_LARGE": RequestTooLargeError,
    "EVENTS_LOST": EventsLostError,
    "SESSION_NOT_FOUND": SessionNotFoundError,
    "TURN_NOT_FOUND": TurnNotFoundError,
    "QUEUED_MESSAGE_NOT_FOUND": QueuedMessageNotFoundError,
    "COMPACTION_NOT_FOUND": CompactionNotFoundError,
    "BLOB_NOT_FOUND": BlobNotFoundError,
    "MODEL_NOT_FOUND": ModelNotFoundError,
    "POLICY_NOT_FOUND": PolicyNotFoundError,
    "KEY_NOT_FOUND": KeyNotFoundError,
    "MCP_SERVER_NOT_FOUND": McpServerNotFoundError,
    "MCP_SERVER_FAILED": McpServerFailedError,
    "MCP_TOOLS_UNUSABLE": McpToolsUnusableError,
    "SESSION_ALREADY_EXISTS": SessionAlreadyExistsError,
    "ETAG_MISMATCH": EtagMismatchError,
    "CONTEXT_CHANGED": ContextChangedError,
    "TURN_IN_PROGRESS": TurnInProgressError,
    "NO_INPUT": NoInputError,
    "TRANSCRIPT_OPEN": TranscriptOpenError,
    "CONTEXT_OVERFLOW": ContextOverflowError,
    "CONTEXT_WINDOW_UNKNOWN": ContextWindowUnknownError,
    "COMPACTION_IN_PROGRESS": CompactionInProgressError,
    "COMPACTION_NO_GAIN": CompactionNoGainError,
    "COMPACTION_SUPERSEDED": CompactionSupersededError,
    "TENANT_BEING_DELETED": TenantBeingDeletedError,
    "QUEUE_FULL": QueueFullError,
    "RATE_LIMITED": RateLimitedError,
    "QUOTA_EXCEEDED": QuotaExceededError,
    "OVERLOADED": OverloadedError,
    "DRAINING": DrainingError,
    "DATABASE_UNAVAILABLE": DatabaseUnavailableError,
    "PROVIDER_FAILED": ProviderFailedError,
    "SCHEMA_OUTDATED": SchemaOutdatedError,
    "DEADLINE_EXCEEDED": TimedOutError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "NOT_IMPLEMENTED": UnimplementedError,
    "INTERNAL": InternalError,
}


def error_of(problem: Problem) -> ApiError:
    """The exception for what a status says. A reason that is not known goes by its code."""
    kind = BY_REASON.get(problem.reason) or BY_CODE.get(problem.code) or ApiError
    return kind(problem)


class TurnFailedError(ContextdError):
    """An admitted turn failed. `failure` says why; `result` is what there was until then.

    The transcript stays valid: where `failure.recoverable`, `session.run(continue_transcript=True)` goes on.
    """

    def __init__(self, failure: Failure, result: Result) -> None:
        self.failure = failure
        self.result = result
        super().__init__(f"{failure.reason}: {failure.message}")

    @property
    def reason(self) -> str:
        """Why, as a name of the enum `FailureReason`, such as `"PROVIDER_TIMEOUT"`."""
        return self.failure.reason


class InputNotTakenError(ContextdError):
    """The input waited for a running turn and was withdrawn, expired or dropped; no turn took it."""

    def __init__(self, queued_message_id: str, outcome: str) -> None:
        self.queued_message_id = queued_message_id
        self.outcome = outcome
        super().__init__(f"the queued input {queued_message_id} was not taken: {outcome}")


class ToolError(Exception):
    """Raise it in a tool to tell the model what went wrong, in your words alone."""

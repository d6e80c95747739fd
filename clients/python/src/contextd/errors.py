"""The exceptions of this package.

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
    """Base class of the exceptions of this package."""


@dataclass(frozen=True)
class FieldViolation:
    """An invalid field of a request: its path, the `FieldReason` and a description."""

    field: str
    reason: str
    description: str


@dataclass(frozen=True)
class QuotaViolation:
    """A limit that was reached."""

    subject: str
    description: str


@dataclass(frozen=True)
class Problem:
    """The error of a gRPC status, read from its details."""

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
    """The server rejected a request, or could not be reached.

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
        """Name of the `ErrorReason`. Empty if the error is not from contextd."""
        return self.problem.reason

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the reason, such as `oldest_seq`; see the comment of the reason in `error.proto`."""
        return self.problem.metadata

    @property
    def fields(self) -> tuple[FieldViolation, ...]:
        """The invalid fields of the request."""
        return self.problem.fields

    @property
    def quotas(self) -> tuple[QuotaViolation, ...]:
        """The limits that were reached."""
        return self.problem.quotas

    @property
    def retry_after(self) -> float | None:
        """Seconds after which to retry, if the server sent them."""
        return self.problem.retry_after

    @property
    def resource(self) -> tuple[str, str]:
        """Type and id of the resource that was not found or already exists."""
        return self.problem.resource_type, self.problem.resource_name

    @property
    def request_id(self) -> str:
        """Id under which the server's log has the details of an internal error."""
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
    """UNAVAILABLE: no server can be reached, or the server cannot process requests now."""


class ServerUnreachableError(UnavailableError):
    """The first connection of the client failed. The message has the cause and what to do."""


class TimedOutError(ApiError):
    """DEADLINE_EXCEEDED."""


class UnauthenticatedError(ApiError):
    """UNAUTHENTICATED: the API key is missing, unknown, expired or revoked."""


class PermissionDeniedError(ApiError):
    """PERMISSION_DENIED: the API key does not grant the required access, `metadata["access"]`."""


class UnimplementedError(ApiError):
    """UNIMPLEMENTED: the server does not implement the call, e.g. because it is older than this client."""


class InternalError(ApiError):
    """INTERNAL: an internal error of the server. Its log has the details under `request_id`."""


class InvalidRequestError(InvalidArgumentError):
    """Fields of the request are invalid; see `fields`."""


class IdempotencyMismatchError(InvalidArgumentError):
    """The request_id was used for a different request."""


class PageTokenInvalidError(InvalidArgumentError):
    """The page token is malformed or belongs to another list."""


class CursorAheadError(InvalidArgumentError):
    """The seq is greater than the session's newest seq."""


class EventsExpiredError(OutOfRangeError):
    """Retention removed these events. Continue from `metadata["oldest_seq"]` - 1."""


class RequestTooLargeError(ResourceExhaustedError):
    """The request is larger than the server accepts."""


class EventsLostError(DataLossError):
    """The database no longer has events that were delivered. Read the session again."""


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
    """No provider has this model. `client.models()` lists the available models."""


class PolicyNotFoundError(NotFoundError):
    """The server's configuration has no such policy."""


class KeyNotFoundError(NotFoundError):
    """The tenant has no such API key."""


class McpServerNotFoundError(NotFoundError):
    """The server's configuration has no such MCP server."""


class SessionAlreadyExistsError(AlreadyExistsError):
    """A session with this id exists, or was deleted recently."""


class EtagMismatchError(AbortedError):
    """The session changed since it was read."""


class ContextChangedError(AbortedError):
    """The transcript changed since the prompt was prepared. Prepare it again."""


class CompactionInProgressError(AbortedError):
    """Another compaction of this session is running."""


class TurnInProgressError(FailedPreconditionError):
    """A turn is running: watch it, queue the message, or cancel it."""


class NoInputError(FailedPreconditionError):
    """There is nothing to run."""


class TranscriptOpenError(FailedPreconditionError):
    """The transcript ends in calls without results; `metadata["call_ids"]` lists them."""


class ContextOverflowError(FailedPreconditionError):
    """The prompt does not fit the context window and cannot be made smaller."""


class ContextWindowUnknownError(FailedPreconditionError):
    """The model's context window is not known, and the policy requires a known one."""


class CompactionNoGainError(FailedPreconditionError):
    """A compaction would not make the context smaller."""


class CompactionSupersededError(FailedPreconditionError):
    """A later compaction builds on this one."""


class TenantBeingDeletedError(FailedPreconditionError):
    """The tenant is being deleted with all its data."""


class McpToolsUnusableError(FailedPreconditionError):
    """The tools of an MCP server cannot be used as the tool set requests."""


class QueueFullError(ResourceExhaustedError):
    """The session's queue is full."""


class RateLimitedError(ResourceExhaustedError):
    """The tenant has reached a temporary limit; see `retry_after`."""


class QuotaExceededError(ResourceExhaustedError):
    """The tenant has reached a limit that is not temporary."""


class OverloadedError(UnavailableError):
    """The server is overloaded."""


class DrainingError(UnavailableError):
    """The server is shutting down."""


class DatabaseUnavailableError(UnavailableError):
    """The server cannot reach its database."""


class ProviderFailedError(UnavailableError):
    """The model provider failed in a unary call."""


class McpServerFailedError(UnavailableError):
    """The tools of an MCP server could not be listed."""


class SchemaOutdatedError(UnavailableError):
    """The database schema lacks a migration that the server requires."""


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
    """The exception for an error. Unknown reasons are mapped by their gRPC code."""
    kind = BY_REASON.get(problem.reason) or BY_CODE.get(problem.code) or ApiError
    return kind(problem)


class TurnFailedError(ContextdError):
    """An admitted turn failed. `failure` has the cause, and `result` the result until then.

    The transcript stays valid: where `failure.recoverable`, `session.run(continue_transcript=True)` goes on.
    """

    def __init__(self, failure: Failure, result: Result) -> None:
        self.failure = failure
        self.result = result
        super().__init__(f"{failure.reason}: {failure.message}")

    @property
    def reason(self) -> str:
        """Name of the `FailureReason`, such as `"PROVIDER_TIMEOUT"`."""
        return self.failure.reason


class InputNotTakenError(ContextdError):
    """The queued input was withdrawn, expired or was dropped, so no turn took it."""

    def __init__(self, queued_message_id: str, outcome: str) -> None:
        self.queued_message_id = queued_message_id
        self.outcome = outcome
        super().__init__(f"the queued input {queued_message_id} was not taken: {outcome}")


class ToolError(Exception):
    """Raise it in a tool: the model reads only its message."""

package contextd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contextd/contextd/clients/go/internal/core"
)

// Reason is why the server refused a request: a name of the enum ErrorReason of error.proto. The constants are errors,
// so that errors.Is(err, contextd.SessionNotFound) works on whatever this package returns.
type Reason string

// Error makes a reason usable with errors.Is.
func (r Reason) Error() string { return string(r) }

// The reasons, each with its gRPC code and metadata in error.proto.
const (
	InvalidRequest        Reason = "INVALID_REQUEST"
	IdempotencyMismatch   Reason = "IDEMPOTENCY_MISMATCH"
	PageTokenInvalid      Reason = "PAGE_TOKEN_INVALID"
	CursorAhead           Reason = "CURSOR_AHEAD"
	EventsExpired         Reason = "EVENTS_EXPIRED"
	RequestTooLarge       Reason = "REQUEST_TOO_LARGE"
	EventsLost            Reason = "EVENTS_LOST"
	SessionNotFound       Reason = "SESSION_NOT_FOUND"
	TurnNotFound          Reason = "TURN_NOT_FOUND"
	QueuedMessageNotFound Reason = "QUEUED_MESSAGE_NOT_FOUND"
	CompactionNotFound    Reason = "COMPACTION_NOT_FOUND"
	BlobNotFound          Reason = "BLOB_NOT_FOUND"
	ModelNotFound         Reason = "MODEL_NOT_FOUND"
	PolicyNotFound        Reason = "POLICY_NOT_FOUND"
	KeyNotFound           Reason = "KEY_NOT_FOUND"
	McpServerNotFound     Reason = "MCP_SERVER_NOT_FOUND"
	McpServerFailed       Reason = "MCP_SERVER_FAILED"
	McpToolsUnusable      Reason = "MCP_TOOLS_UNUSABLE"
	SessionAlreadyExists  Reason = "SESSION_ALREADY_EXISTS"
	EtagMismatch          Reason = "ETAG_MISMATCH"
	ContextChanged        Reason = "CONTEXT_CHANGED"
	TurnInProgress        Reason = "TURN_IN_PROGRESS"
	NoInput               Reason = "NO_INPUT"
	TranscriptOpen        Reason = "TRANSCRIPT_OPEN"
	ContextOverflow       Reason = "CONTEXT_OVERFLOW"
	ContextWindowUnknown  Reason = "CONTEXT_WINDOW_UNKNOWN"
	CompactionInProgress  Reason = "COMPACTION_IN_PROGRESS"
	CompactionNoGain      Reason = "COMPACTION_NO_GAIN"
	CompactionSuperseded  Reason = "COMPACTION_SUPERSEDED"
	TenantBeingDeleted    Reason = "TENANT_BEING_DELETED"
	QueueFull             Reason = "QUEUE_FULL"
	RateLimited           Reason = "RATE_LIMITED"
	QuotaExceeded         Reason = "QUOTA_EXCEEDED"
	Overloaded            Reason = "OVERLOADED"
	Draining              Reason = "DRAINING"
	DatabaseUnavailable   Reason = "DATABASE_UNAVAILABLE"
	ProviderFailed        Reason = "PROVIDER_FAILED"
	SchemaOutdated        Reason = "SCHEMA_OUTDATED"
	DeadlineExceeded      Reason = "DEADLINE_EXCEEDED"
	Unauthenticated       Reason = "UNAUTHENTICATED"
	PermissionDenied      Reason = "PERMISSION_DENIED"
	NotImplemented        Reason = "NOT_IMPLEMENTED"
	Internal              Reason = "INTERNAL"
)

// ErrNoTurn says that no turn runs in the session.
var ErrNoTurn = errors.New("contextd: no turn runs in the session")

// ErrClosed says that the client was closed.
var ErrClosed = errors.New("contextd: the client is closed")

// Error is a refusal of the server, or a server that cannot be reached. Switch on Reason (with errors.Is) or Code,
// never on the text.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is empty when the answer did not come from contextd.
	Reason Reason
	// Message is a sentence for people.
	Message string
	// Metadata is what the reason comes with, such as "oldest_seq": see the comment on the reason in error.proto.
	Metadata map[string]string
	// Fields are the fields of the request that are wrong.
	Fields []FieldViolation
	// Quotas are the limits that were met.
	Quotas []QuotaViolation
	// RetryAfter is the time after which the server asks to try again; 0 for none.
	RetryAfter time.Duration
	// ResourceType and ResourceName are what was not found, or is there already.
	ResourceType, ResourceName string
	// RequestID is what the server's log has the details of an internal error under.
	RequestID string

	status      *status.Status
	unreachable bool
}

// FieldViolation is one field of a request that is wrong.
type FieldViolation struct {
	// Field is its path as in the proto, e.g. "input.parts[2].media.media_type".
	Field string
	// Reason is a name of FieldReason, e.g. "TOO_LARGE".
	Reason string
	// Description is a sentence for people.
	Description string
}

// QuotaViolation is one limit that was met.
type QuotaViolation struct {
	Subject     string
	Description string
}

// Error is the reason, the message and the fields.
func (e *Error) Error() string {
	var text strings.Builder
	what := string(e.Reason)
	if what == "" {
		what = e.Code.String()
	}
	fmt.Fprintf(&text, "contextd: %s: %s", what, e.Message)
	for _, field := range e.Fields {
		fmt.Fprintf(&text, "; %s: %s", field.Field, field.Description)
	}
	return text.String()
}

// Is makes errors.Is work with reasons and with ErrUnreachable.
func (e *Error) Is(target error) bool {
	if target == ErrUnreachable {
		return e.unreachable
	}
	reason, ok := target.(Reason)
	return ok && reason == e.Reason
}

// GRPCStatus makes status.Code and status.FromError work.
func (e *Error) GRPCStatus() *status.Status {
	if e.status != nil {
		return e.status
	}
	return status.New(e.Code, e.Message)
}

func errorOf(problem *core.Problem) *Error {
	made := &Error{
		Code:         problem.Code,
		Reason:       Reason(problem.Reason),
		Message:      problem.Message,
		Metadata:     problem.Metadata,
		RetryAfter:   problem.RetryAfter,
		ResourceType: problem.ResourceType,
		ResourceName: problem.ResourceName,
		RequestID:    problem.RequestID,
		status:       problem.Status,
	}
	for _, each := range problem.Fields {
		made.Fields = append(made.Fields, FieldViolation{each.GetField(), each.GetReason(), each.GetDescription()})
	}
	for _, each := range problem.Quotas {
		made.Quotas = append(made.Quotas, QuotaViolation{each.GetSubject(), each.GetDescription()})
	}
	return made
}

// TurnFailedError says that an admitted turn failed. The transcript stays valid: where Failure.Recoverable, a run with
// Continue goes on.
type TurnFailedError struct {
	Failure Failure
	// Result is what there was until then.
	Result *Result
}

func (e *TurnFailedError) Error() string {
	return fmt.Sprintf("contextd: the turn failed: %s: %s", e.Failure.Reason, e.Failure.Message)
}

// InputNotTakenError says that the input waited for a running turn and was withdrawn, expired or dropped.
type InputNotTakenError struct {
	QueuedMessageID string
	// Outcome is "CANCELLED", "EXPIRED" or "DROPPED" with its reason.
	Outcome string
}

func (e *InputNotTakenError) Error() string {
	return fmt.Sprintf("contextd: the queued input %s was not taken: %s", e.QueuedMessageID, e.Outcome)
}

// Must gives the value of a call, and panics with its error: for programs that an error ends anyhow, and for tests.
func Must[Value any](value Value, err error) Value {
	if err != nil {
		panic(err)
	}
	return value
}

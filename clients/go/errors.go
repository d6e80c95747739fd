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

// Reason is the reason of an error: a name of the enum ErrorReason in error.proto. The constants are errors, so that
// errors.Is(err, contextd.SessionNotFound) works with all errors of this package.
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

// ErrNoTurn reports that no turn is running in the session.
var ErrNoTurn = errors.New("contextd: no turn runs in the session")

// ErrClosed reports that the client was closed.
var ErrClosed = errors.New("contextd: the client is closed")

// Error reports that the server rejected a request or cannot be reached. Switch on Reason (with errors.Is) or Code, never
// on the text.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is empty if the error is not from contextd.
	Reason Reason
	// Message is one sentence for users.
	Message string
	// Metadata has the metadata of the reason, such as "oldest_seq": see the comment of the reason in error.proto.
	Metadata map[string]string
	// Fields are the invalid fields of the request.
	Fields []FieldViolation
	// Quotas are the limits that were reached.
	Quotas []QuotaViolation
	// RetryAfter is the delay before a retry that the server requested, or 0.
	RetryAfter time.Duration
	// ResourceType and ResourceName identify the resource that was not found or already exists.
	ResourceType, ResourceName string
	// RequestID is the id under which the server's log has the details of an internal error.
	RequestID string

	status      *status.Status
	unreachable bool
}

// FieldViolation is an invalid field of a request.
type FieldViolation struct {
	// Field is the path of the field as in the proto, e.g. "input.parts[2].media.media_type".
	Field string
	// Reason is a name of FieldReason, e.g. "TOO_LARGE".
	Reason string
	// Description is one sentence for users.
	Description string
}

// QuotaViolation is a limit that was reached.
type QuotaViolation struct {
	Subject     string
	Description string
}

// Error returns the reason, the message and the fields.
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

// TurnFailedError reports that an admitted turn failed. The transcript stays valid: if Failure.Recoverable is set, a run
// with Continue may succeed.
type TurnFailedError struct {
	Failure Failure
	// Result is the result until the failure.
	Result *Result
}

func (e *TurnFailedError) Error() string {
	return fmt.Sprintf("contextd: the turn failed: %s: %s", e.Failure.Reason, e.Failure.Message)
}

// InputNotTakenError reports that the queued input was withdrawn, expired or was dropped.
type InputNotTakenError struct {
	QueuedMessageID string
	// Outcome is "CANCELLED", "EXPIRED" or "DROPPED" with its reason.
	Outcome string
}

func (e *InputNotTakenError) Error() string {
	return fmt.Sprintf("contextd: the queued input %s was not taken: %s", e.QueuedMessageID, e.Outcome)
}

// Must returns the value of a call, or panics with its error: for small programs and tests.
func Must[Value any](value Value, err error) Value {
	if err != nil {
		panic(err)
	}
	return value
}

package contextd

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

// Result is the result of a turn.
type Result struct {
	// Text is the text of the last message.
	Text string
	// Usage has the tokens of all model calls of the turn, including compactions.
	Usage Usage
	// State is "COMPLETED", "CANCELLED" or "FAILED".
	State string
	// Reason is a name of CompletionReason ("STOP", "MAX_STEPS", ...), of CancelCause, or of FailureReason.
	Reason string
	// TurnID and SessionID identify the turn and its session.
	TurnID, SessionID string
	// Steps is the number of steps: each is a call of the model and its tools.
	Steps int
	// FinishReason is why the model stopped in the last step, a name of FinishReason.
	FinishReason string
	// MessageID is the id of the last assistant message. Empty if there is none.
	MessageID string
	// QueuedMessageIDs are messages that still wait in the queue, oldest first.
	QueuedMessageIDs []string
	// Raw is the whole result.
	Raw *pb.TurnResult
}

// Usage has sums of tokens over model calls.
type Usage struct {
	Calls, InputTokens, OutputTokens, ReasoningTokens, CacheReadTokens, CacheWriteTokens, TotalTokens int64
}

// Failure is why a turn or a step failed.
type Failure struct {
	// Reason is a name of FailureReason, such as "PROVIDER_TIMEOUT".
	Reason string
	// Message is one sentence for users.
	Message string
	// Recoverable reports whether the same request may succeed later.
	Recoverable bool
	// Raw is the whole failure.
	Raw *pb.Failure
}

func failureOf(raw *pb.Failure) Failure {
	return Failure{enumName(raw.GetReason(), "FAILURE_REASON"), raw.GetMessage(), raw.GetRecoverable(), raw}
}

func usageOf(raw *pb.UsageTotals) Usage {
	return Usage{
		Calls:            raw.GetCalls(),
		InputTokens:      raw.GetInputTokens(),
		OutputTokens:     raw.GetOutputTokens(),
		ReasoningTokens:  raw.GetReasoningTokens(),
		CacheReadTokens:  raw.GetCacheReadTokens(),
		CacheWriteTokens: raw.GetCacheWriteTokens(),
		TotalTokens:      raw.GetTotalTokens(),
	}
}

// resultOf reads a terminal event. It returns an error if the turn failed.
func resultOf(terminal *pb.Event, text string) (*Result, error) {
	raw := core.ResultOf(terminal)
	result := &Result{
		Text:             text,
		Usage:            usageOf(raw.GetTotalUsage()),
		TurnID:           terminal.GetTurnId(),
		SessionID:        terminal.GetSessionId(),
		Steps:            int(raw.GetStepCount()),
		FinishReason:     enumName(raw.GetFinishReason(), "FINISH_REASON"),
		MessageID:        raw.GetFinalMessageId(),
		QueuedMessageIDs: raw.GetQueuedMessageIds(),
		Raw:              raw,
	}
	switch payload := terminal.GetPayload().(type) {
	case *pb.Event_TurnCompleted:
		result.State = "COMPLETED"
		result.Reason = enumName(payload.TurnCompleted.GetReason(), "COMPLETION_REASON")
	case *pb.Event_TurnCancelled:
		result.State = "CANCELLED"
		result.Reason = enumName(payload.TurnCancelled.GetCause(), "CANCEL_CAUSE")
	case *pb.Event_TurnFailed:
		failure := failureOf(payload.TurnFailed.GetFailure())
		result.State, result.Reason = "FAILED", failure.Reason
		return result, &TurnFailedError{failure, result}
	}
	return result, nil
}

// enumName returns the name of a value without the prefix of its enum: "STOP". For a value that is newer than this
// package, it returns the number.
func enumName(value interface {
	protoreflect.Enum
	String() string
}, prefix string) string {
	return strings.TrimPrefix(value.String(), prefix+"_")
}

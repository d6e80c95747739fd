package contextd

import (
	"time"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

// Event is something that happened in a session: one of the types of this file. Tell them apart with a type switch.
type Event interface {
	// Type is the name of the payload in event.proto, such as "text_delta". "text_reset" and "reasoning_reset" are of
	// this package.
	Type() string
	// Seq is its position in the session; 0 for what is not stored. Text that a stored event brought has its seq.
	Seq() int64
	// SessionID is the session.
	SessionID() string
	// TurnID is the turn; empty when it belongs to none.
	TurnID() string
	// Step is the step of the turn, from 1; 0 outside of steps.
	Step() int
	// Replay says whether it happened before this stream began.
	Replay() bool
	// Time is when it happened.
	Time() time.Time
	// Raw is the event as it came.
	Raw() *pb.Event
}

// occurrence is what all events have.
type occurrence struct{ raw *pb.Event }

var payloads = (&pb.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("payload")

// Type is the name of the payload.
func (o occurrence) Type() string {
	if field := o.raw.ProtoReflect().WhichOneof(payloads); field != nil {
		return string(field.Name())
	}
	return "unknown"
}

// Seq is its position in the session.
func (o occurrence) Seq() int64 { return o.raw.GetSeq() }

// SessionID is the session.
func (o occurrence) SessionID() string { return o.raw.GetSessionId() }

// TurnID is the turn.
func (o occurrence) TurnID() string { return o.raw.GetTurnId() }

// Step is the step of the turn.
func (o occurrence) Step() int { return int(o.raw.GetStep()) }

// Replay says whether it happened before this stream began.
func (o occurrence) Replay() bool { return o.raw.GetReplay() }

// Time is when it happened.
func (o occurrence) Time() time.Time { return o.raw.GetTime().AsTime() }

// Raw is the event as it came.
func (o occurrence) Raw() *pb.Event { return o.raw }

// What this package makes of the texts and calls of a stream.
type (
	// TextDelta is more text of the answer. Appended, they are the message's text.
	TextDelta struct {
		occurrence
		MessageID, Text string
	}
	// TextReset says that the answer is written again and says something else: what was yielded of it is void. The new
	// text follows.
	TextReset struct {
		occurrence
		MessageID string
	}
	// ReasoningDelta is more of the model's reasoning.
	ReasoningDelta struct {
		occurrence
		MessageID, Text string
	}
	// ReasoningReset is TextReset for the reasoning.
	ReasoningReset struct {
		occurrence
		MessageID string
	}
	// ToolInputDelta is more of the arguments of a call that the model is writing. For displays only.
	ToolInputDelta struct {
		occurrence
		MessageID, CallID, Name, Text string
	}
	// MessageCommitted is a message that is final, in full.
	MessageCommitted struct {
		occurrence
		Message *Message
	}
	// ToolCallRequested is a call that is to be run. Handled says that this package runs it.
	ToolCallRequested struct {
		occurrence
		CallID, Name, Arguments string
		Handled                 bool
	}
	// ApprovalRequested is a call that waits for a person: OnApproval decides, or Session.Approve and Session.Deny.
	ApprovalRequested struct {
		occurrence
		CallID, Name, Arguments string
	}
	// ToolCallCompleted is a call that has its result. Outcome is a name of ToolOutcome, such as "SUCCESS".
	ToolCallCompleted struct {
		occurrence
		CallID, Name, Outcome, Text string
	}
	// ToolCallCancelled is a call that was closed without a result. Reason is a name of ToolCallCancelReason.
	ToolCallCancelled struct {
		occurrence
		CallID, Name, Reason string
	}
)

// The turn and its steps.
type (
	// Admitted says how the turn was admitted: "STARTED", "QUEUED" or "ATTACHED".
	Admitted struct {
		occurrence
		Admission, QueuedMessageID string
	}
	// TurnStarted says that a turn began.
	TurnStarted struct {
		occurrence
		Payload *pb.TurnStarted
	}
	// StepStarted says that the model is about to be called.
	StepStarted struct {
		occurrence
		Payload *pb.StepStarted
	}
	// ActionRequired says that nothing goes on until the host acts; this package does, for the tools of the run.
	ActionRequired struct {
		occurrence
		Payload *pb.ActionRequired
	}
	// TurnRetrying says that a step is repeated after a failure of the model's service.
	TurnRetrying struct {
		occurrence
		Failure     Failure
		NextAttempt int
		Delay       time.Duration
	}
	// TurnRecovered says that another replica took the turn over.
	TurnRecovered struct {
		occurrence
		Payload *pb.TurnRecovered
	}
	// TurnCompleted ends a turn in the ordinary way. Reason is a name of CompletionReason.
	TurnCompleted struct {
		occurrence
		Reason string
	}
	// TurnCancelled ends a turn that was cancelled. Cause is a name of CancelCause.
	TurnCancelled struct {
		occurrence
		Cause string
	}
	// TurnFailed ends a turn that failed.
	TurnFailed struct {
		occurrence
		Failure Failure
	}
	// Thinking says that the model was called and has not answered yet.
	Thinking struct {
		occurrence
		Model string
	}
	// Notice is a line for people. Code is a name of NoticeCode.
	Notice struct {
		occurrence
		Code, Text string
	}
)

// The queue, the model and the context.
type (
	// MessageQueued says that a message was queued.
	MessageQueued struct {
		occurrence
		QueuedMessageID string
		Position        int
	}
	// MessagesApplied says that queued messages became one user message.
	MessagesApplied struct {
		occurrence
		MessageID        string
		QueuedMessageIDs []string
	}
	// QueuedMessageCancelled says that a queued message was withdrawn.
	QueuedMessageCancelled struct {
		occurrence
		QueuedMessageID string
	}
	// QueuedMessageExpired says that a queued message's time passed before it was taken.
	QueuedMessageExpired struct {
		occurrence
		QueuedMessageID string
	}
	// QueuedMessageDropped says that the server dropped a queued message. Reason is a name of DropReason.
	QueuedMessageDropped struct {
		occurrence
		QueuedMessageID, Reason string
	}
	// UsageRecorded says that a call of a model was accounted for.
	UsageRecorded struct {
		occurrence
		Payload *pb.UsageRecorded
	}
	// UnsupportedInput is something that the model could not take, and what was sent instead.
	UnsupportedInput struct {
		occurrence
		Payload *pb.UnsupportedInput
	}
	// ModelSwitched says that the session's model changed.
	ModelSwitched struct {
		occurrence
		Payload *pb.ModelSwitched
	}
	// ModelFallback says that the turn goes on with another model.
	ModelFallback struct {
		occurrence
		Payload *pb.ModelFallback
	}
	// SessionUpdated says that the session's configuration changed.
	SessionUpdated struct {
		occurrence
		Payload *pb.SessionUpdated
	}
	// ContextPruned says that old tool results were cleared.
	ContextPruned struct {
		occurrence
		Payload *pb.ContextPruned
	}
	// ContextRestored says that cleared tool results are back.
	ContextRestored struct {
		occurrence
		Payload *pb.ContextRestored
	}
	// CompactionStarted says that a compaction began.
	CompactionStarted struct {
		occurrence
		Compaction *pb.Compaction
	}
	// CompactionCompleted says that a compaction is in force.
	CompactionCompleted struct {
		occurrence
		Compaction *pb.Compaction
	}
	// CompactionFailed says that a compaction was given up; nothing changed.
	CompactionFailed struct {
		occurrence
		Compaction *pb.Compaction
	}
	// CompactionReverted says that a compaction was taken back.
	CompactionReverted struct {
		occurrence
		Compaction *pb.Compaction
	}
	// UnknownEvent is of a kind that is newer than this package.
	UnknownEvent struct{ occurrence }
)

// Type is "text_delta", also for text that came with a stored event.
func (TextDelta) Type() string { return "text_delta" }

// Type is "text_reset".
func (TextReset) Type() string { return "text_reset" }

// Type is "reasoning_delta".
func (ReasoningDelta) Type() string { return "reasoning_delta" }

// Type is "reasoning_reset".
func (ReasoningReset) Type() string { return "reasoning_reset" }

// pieceOf is the event of a piece of text.
func pieceOf(emit core.Emit) Event {
	base, piece := occurrence{emit.Raw}, emit.Piece
	switch {
	case emit.Kind == core.InputPiece:
		delta := emit.Raw.GetToolInputDelta()
		return ToolInputDelta{base, piece.MessageID, delta.GetCallId(), delta.GetToolName(), piece.Text}
	case emit.Kind == core.ReasoningPiece && piece.Reset:
		return ReasoningReset{base, piece.MessageID}
	case emit.Kind == core.ReasoningPiece:
		return ReasoningDelta{base, piece.MessageID, piece.Text}
	case piece.Reset:
		return TextReset{base, piece.MessageID}
	}
	return TextDelta{base, piece.MessageID, piece.Text}
}

// eventOf is what is given to the caller.
func eventOf(emit core.Emit) Event {
	if emit.Piece != nil {
		return pieceOf(emit)
	}
	raw := emit.Raw
	base := occurrence{raw}
	switch payload := raw.GetPayload().(type) {
	case *pb.Event_MessageCommitted:
		return MessageCommitted{base, messageOf(payload.MessageCommitted.GetMessage())}
	case *pb.Event_ToolCallRequested:
		call := payload.ToolCallRequested.GetCall()
		return ToolCallRequested{base, call.GetCallId(), call.GetToolName(), call.GetArgumentsJson(), emit.Handled}
	case *pb.Event_ApprovalRequested:
		call := payload.ApprovalRequested.GetCall()
		return ApprovalRequested{base, call.GetCallId(), call.GetToolName(), call.GetArgumentsJson()}
	case *pb.Event_ToolCallCompleted:
		result := payload.ToolCallCompleted.GetResult()
		outcome := enumName(result.GetOutcome(), "TOOL_OUTCOME")
		return ToolCallCompleted{base, result.GetCallId(), result.GetToolName(), outcome, resultText(result.GetParts())}
	case *pb.Event_ToolCallCancelled:
		call := payload.ToolCallCancelled
		return ToolCallCancelled{base, call.GetCallId(), call.GetToolName(), enumName(call.GetReason(), "TOOL_CALL_CANCEL_REASON")}
	case *pb.Event_MessageQueued:
		return MessageQueued{base, payload.MessageQueued.GetQueuedMessageId(), int(payload.MessageQueued.GetPosition())}
	case *pb.Event_MessagesApplied:
		applied := MessagesApplied{occurrence: base, MessageID: payload.MessagesApplied.GetMessageId()}
		for _, each := range payload.MessagesApplied.GetMessages() {
			applied.QueuedMessageIDs = append(applied.QueuedMessageIDs, each.GetQueuedMessageId())
		}
		return applied
	case *pb.Event_QueuedMessageCancelled:
		return QueuedMessageCancelled{base, payload.QueuedMessageCancelled.GetQueuedMessageId()}
	case *pb.Event_QueuedMessageExpired:
		return QueuedMessageExpired{base, payload.QueuedMessageExpired.GetQueuedMessageId()}
	case *pb.Event_QueuedMessageDropped:
		dropped := payload.QueuedMessageDropped
		return QueuedMessageDropped{base, dropped.GetQueuedMessageId(), enumName(dropped.GetReason(), "DROP_REASON")}
	}
	if event := turnEvent(raw); event != nil {
		return event
	}
	return contextEvent(raw)
}

// turnEvent is an event of the turn and its steps; nil for others.
func turnEvent(raw *pb.Event) Event {
	base := occurrence{raw}
	switch payload := raw.GetPayload().(type) {
	case *pb.Event_Admitted:
		return Admitted{base, enumName(payload.Admitted.GetAdmission(), "ADMISSION"), payload.Admitted.GetQueuedMessageId()}
	case *pb.Event_TurnStarted:
		return TurnStarted{base, payload.TurnStarted}
	case *pb.Event_StepStarted:
		return StepStarted{base, payload.StepStarted}
	case *pb.Event_ActionRequired:
		return ActionRequired{base, payload.ActionRequired}
	case *pb.Event_TurnRetrying:
		again := payload.TurnRetrying
		return TurnRetrying{base, failureOf(again.GetFailure()), int(again.GetNextAttempt()), again.GetDelay().AsDuration()}
	case *pb.Event_TurnRecovered:
		return TurnRecovered{base, payload.TurnRecovered}
	case *pb.Event_TurnCompleted:
		return TurnCompleted{base, enumName(payload.TurnCompleted.GetReason(), "COMPLETION_REASON")}
	case *pb.Event_TurnCancelled:
		return TurnCancelled{base, enumName(payload.TurnCancelled.GetCause(), "CANCEL_CAUSE")}
	case *pb.Event_TurnFailed:
		return TurnFailed{base, failureOf(payload.TurnFailed.GetFailure())}
	case *pb.Event_Thinking:
		return Thinking{base, payload.Thinking.GetModel()}
	case *pb.Event_Notice:
		return Notice{base, enumName(payload.Notice.GetCode(), "NOTICE_CODE"), payload.Notice.GetText()}
	}
	return nil
}

// contextEvent is an event of the model and the context, or one of a kind that is not known.
func contextEvent(raw *pb.Event) Event {
	base := occurrence{raw}
	switch payload := raw.GetPayload().(type) {
	case *pb.Event_UsageRecorded:
		return UsageRecorded{base, payload.UsageRecorded}
	case *pb.Event_UnsupportedInput:
		return UnsupportedInput{base, payload.UnsupportedInput}
	case *pb.Event_ModelSwitched:
		return ModelSwitched{base, payload.ModelSwitched}
	case *pb.Event_ModelFallback:
		return ModelFallback{base, payload.ModelFallback}
	case *pb.Event_SessionUpdated:
		return SessionUpdated{base, payload.SessionUpdated}
	case *pb.Event_ContextPruned:
		return ContextPruned{base, payload.ContextPruned}
	case *pb.Event_ContextRestored:
		return ContextRestored{base, payload.ContextRestored}
	case *pb.Event_CompactionStarted:
		return CompactionStarted{base, payload.CompactionStarted.GetCompaction()}
	case *pb.Event_CompactionCompleted:
		return CompactionCompleted{base, payload.CompactionCompleted.GetCompaction()}
	case *pb.Event_CompactionFailed:
		return CompactionFailed{base, payload.CompactionFailed.GetCompaction()}
	case *pb.Event_CompactionReverted:
		return CompactionReverted{base, payload.CompactionReverted.GetCompaction()}
	}
	return UnknownEvent{base}
}

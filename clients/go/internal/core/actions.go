package core

import (
	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

// Action is what a stream asks its shell to do. The shell does it and reports back by the method that is named here.
type Action interface{ action() }

// Open a stream; report its events with OnEvent and its end with OnEnd, both with this number. One of the requests is
// set.
type Open struct {
	Connection int
	Execute    *pb.ExecuteTurnRequest
	Watch      *pb.WatchEventsRequest
}

// Close gives that stream up: it has been silent for too long, or is not needed any more.
type Close struct{ Connection int }

// RunTool runs a tool; report with OnToolResult.
type RunTool struct {
	TurnID  string
	Pending *pb.PendingCall
}

// DropTool reports that the result of this call is not wanted any more: stop it if that is possible.
type DropTool struct{ CallID string }

// ForgetCall reports that this call is closed: its result is not needed any more.
type ForgetCall struct{ CallID string }

// Identify asks for a turn, to learn whether it is the one that the request started; report with OnTurn or OnNoTurn.
type Identify struct{ TurnID string }

// AskApproval asks the host's callback; report with OnApproval.
type AskApproval struct {
	TurnID string
	Asked  *pb.PendingApproval
}

// Submit sends answers; report with OnSubmitted or OnSubmitFailed, with this number.
type Submit struct {
	Number  int
	Request *pb.SubmitToolResultsRequest
}

// Emit gives an event to the caller.
type Emit struct {
	Raw *pb.Event
	// Piece is what is new of the text, the reasoning or the input of a call; nil for other events.
	Piece *Piece
	Kind  PieceKind
	// Handled reports that the call of a tool_call_requested is run by this host.
	Handled bool
}

// PieceKind says what a piece is of.
type PieceKind int

// Kinds of pieces.
const (
	TextPiece PieceKind = iota + 1
	ReasoningPiece
	InputPiece
)

// Finish reports that it is over. Terminal is nil for streams that are not about one turn.
type Finish struct {
	Terminal *pb.Event
	// Text is what the final message says; Known is false where that message was not seen.
	Text  string
	Known bool
}

// Fail reports that it is over, with a problem or because the input was not taken.
type Fail struct {
	Problem *Problem
	// QueuedMessageID is the input that waited, and Outcome why no turn took it.
	QueuedMessageID string
	Outcome         string
}

func (Open) action()        {}
func (Close) action()       {}
func (RunTool) action()     {}
func (DropTool) action()    {}
func (ForgetCall) action()  {}
func (Identify) action()    {}
func (AskApproval) action() {}
func (Submit) action()      {}
func (Emit) action()        {}
func (Finish) action()      {}
func (Fail) action()        {}

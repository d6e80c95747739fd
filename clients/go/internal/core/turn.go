package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

// How often a limit of the tenant is waited for before the turn is admitted; afterwards, for as long as it takes.
const limitTries = 60

// Turn runs a turn to its end: its stream, and the calls that the host runs for it.
//
// A call is run when it is requested live, or when `sync` says that it waits and it was not begun here; never because
// it was replayed. Its result is kept until it was taken, so that it can be sent again as often as it takes.
type Turn struct {
	*Stream
	sessionID string
	// The turn whose calls are ours: the one that this request starts, or that is watched.
	turnID    string
	requestID string
	// The request goes on after a seq, which may be past the event that says which turn it started.
	skips bool
	// What the host runs, with the time that each may take; 0 for no limit.
	tools       map[string]time.Duration
	asks        bool
	wasAdmitted bool
	liveTurn    string
	calls       map[string]*call
	order       []string
	asked       map[string]bool
	decisions   map[string]*pb.Approval
	submissions map[int]*submission
	submitted   int
	texts       map[string]string
	queuedID    string
	notTaken    string
	terminal    *pb.Event
}

// call is a call of this turn.
type call struct {
	pending *pb.PendingCall
	due     time.Time
	result  *pb.ToolResult
	refused bool
}

// submission is answers on their way.
type submission struct {
	request  *pb.SubmitToolResultsRequest
	failures int
	due      time.Time
}

// TurnOptions of a turn.
type TurnOptions struct {
	Options
	// Tools are the names of what the host runs, with the time that each may take; 0 for no limit.
	Tools map[string]time.Duration
	// Asks reports that the host has a callback for approvals.
	Asks bool
}

// NewTurn makes a turn that a request starts.
func NewTurn(request *pb.ExecuteTurnRequest, options TurnOptions) *Turn {
	turn := newTurn(newStream(request, nil, options.Options), options)
	turn.sessionID, turn.requestID = request.GetSessionId(), request.GetRequestId()
	turn.skips = request.GetAfterSeq() > 0
	return turn
}

// ResumeTurn makes a turn that is taken up: its calls are ours.
func ResumeTurn(request *pb.WatchEventsRequest, options TurnOptions) *Turn {
	turn := newTurn(newStream(nil, request, options.Options), options)
	turn.sessionID, turn.turnID, turn.liveTurn = request.GetSessionId(), request.GetTurnId(), request.GetTurnId()
	turn.wasAdmitted = true
	return turn
}

func newTurn(stream *Stream, options TurnOptions) *Turn {
	turn := &Turn{
		Stream:      stream,
		tools:       options.Tools,
		asks:        options.Asks,
		calls:       map[string]*call{},
		asked:       map[string]bool{},
		decisions:   map[string]*pb.Approval{},
		submissions: map[int]*submission{},
		texts:       map[string]string{},
	}
	stream.kind = turn
	return turn
}

// TurnID is the turn whose calls are run; empty until it is known.
func (t *Turn) TurnID() string { return t.turnID }

// Waits is the id that the input had in the queue; empty where it did not wait.
func (t *Turn) Waits() string { return t.queuedID }

// Admitted says whether the request was.
func (t *Turn) Admitted() bool { return t.wasAdmitted }

// Live is the turn that runs, as far as the stream has come.
func (t *Turn) Live() string { return t.liveTurn }

// SessionID is the id of the session.
func (t *Turn) SessionID() string { return t.sessionID }

// --- What the shell reports ---------------------------------------------------------------------------

// OnToolResult reports that a tool returned or failed.
func (t *Turn) OnToolResult(result *pb.ToolResult, now time.Time) []Action {
	if call := t.calls[result.GetCallId()]; call != nil && call.result == nil && !t.over {
		t.answer(call, result)
	}
	return t.take()
}

// OnApproval reports what a person decided.
func (t *Turn) OnApproval(approval *pb.Approval, now time.Time) []Action {
	if !t.over {
		t.decisions[approval.GetCallId()] = approval
		t.send(&pb.SubmitToolResultsRequest{SessionId: t.sessionID, Approvals: []*pb.Approval{approval}})
	}
	return t.take()
}

// OnSubmitted reports that answers were taken, or are not needed any more. One that came too early is sent when it is
// asked for.
func (t *Turn) OnSubmitted(number int) []Action {
	delete(t.submissions, number)
	return t.take()
}

// OnSubmitFailed reports that answers did not arrive.
func (t *Turn) OnSubmitFailed(number int, problem *Problem, now time.Time) []Action {
	submission := t.submissions[number]
	if submission == nil || t.over {
		return t.take()
	}
	if problem.MayPass() || problem.IsBrokenTransport() || problem.Reason == "RATE_LIMITED" {
		submission.due = now.Add(Delay(submission.failures, problem.RetryAfter, t.options.Jitter))
		submission.failures++
	} else {
		delete(t.submissions, number)
		t.refused(submission, problem)
	}
	return t.take()
}

// OnTurn reports what a turn is, whose id Identify has.
func (t *Turn) OnTurn(found *pb.Turn) []Action {
	if found.GetRequestId() == t.requestID && !t.over {
		t.turnID = found.GetTurnId()
	}
	return t.take()
}

// OnNoTurn reports that the turn could not be read: the next connection asks again.
func (t *Turn) OnNoTurn(problem *Problem, now time.Time) []Action {
	if t.connected && !t.over {
		t.giveUp()
		t.Stream.broke(problem, now)
	}
	return t.take()
}

// --- Events -------------------------------------------------------------------------------------------

func (t *Turn) payload(event *pb.Event, now time.Time) {
	if event.GetSeq() > 0 && event.GetTurnId() != "" {
		t.liveTurn = event.GetTurnId()
	}
	switch payload := event.GetPayload().(type) {
	case *pb.Event_Admitted:
		if t.admitted(event, payload.Admitted) {
			return
		}
	case *pb.Event_Sync:
		t.sync(event, payload.Sync, now)
	case *pb.Event_TurnStarted:
		t.terminal = nil
		if t.requestID != "" && payload.TurnStarted.GetRequestId() == t.requestID {
			t.turnID = event.GetTurnId()
		}
	case *pb.Event_MessageCommitted:
		if message := payload.MessageCommitted.GetMessage(); message.GetRole() == pb.Role_ROLE_ASSISTANT {
			t.texts[message.GetMessageId()] = TextOf(message.GetParts())
		}
	case *pb.Event_ToolCallRequested:
		t.requested(event, payload.ToolCallRequested, now)
		return
	case *pb.Event_ToolCallCompleted:
		t.closed(payload.ToolCallCompleted.GetResult().GetCallId())
	case *pb.Event_ToolCallCancelled:
		t.closed(payload.ToolCallCancelled.GetCallId())
	case *pb.Event_TurnCompleted, *pb.Event_TurnCancelled, *pb.Event_TurnFailed:
		t.terminal = event
	case *pb.Event_QueuedMessageCancelled:
		t.noteQueue(payload.QueuedMessageCancelled.GetQueuedMessageId(), "CANCELLED")
	case *pb.Event_QueuedMessageExpired:
		t.noteQueue(payload.QueuedMessageExpired.GetQueuedMessageId(), "EXPIRED")
	case *pb.Event_QueuedMessageDropped:
		dropped := payload.QueuedMessageDropped
		reason := strings.TrimPrefix(dropped.GetReason().String(), "DROP_REASON_")
		t.noteQueue(dropped.GetQueuedMessageId(), fmt.Sprintf("DROPPED (%s)", reason))
	}
	t.show(event)
	if asked := event.GetApprovalRequested(); asked != nil && !event.GetReplay() && t.isOurs() {
		t.ask(asked)
	}
}

// admitted says whether it was admitted before: each connection reports it again.
func (t *Turn) admitted(event *pb.Event, admitted *pb.Admitted) bool {
	again := t.wasAdmitted
	t.wasAdmitted = true
	t.sessionID, t.liveTurn = event.GetSessionId(), event.GetTurnId()
	if id := admitted.GetQueuedMessageId(); id != "" {
		t.queuedID = id
	}
	if admitted.GetAdmission() == pb.Admission_ADMISSION_STARTED {
		t.turnID = event.GetTurnId()
	} else if admitted.GetAdmission() == pb.Admission_ADMISSION_ATTACHED && t.turnID == "" && t.skips {
		t.out = append(t.out, Identify{event.GetTurnId()})
	}
	return again
}

func (t *Turn) sync(event *pb.Event, sync *pb.Sync, now time.Time) {
	if id := event.GetTurnId(); id != "" {
		t.liveTurn = id
	}
	if !t.isOurs() {
		return
	}
	for _, pending := range sync.GetPendingCalls() {
		id := pending.GetCall().GetCallId()
		if call := t.calls[id]; call == nil {
			t.begin(pending, now)
		} else if call.result != nil && !t.onItsWay(id) {
			t.answer(call, call.result)
		}
	}
	for _, asked := range sync.GetPendingApprovals() {
		id := asked.GetCall().GetCallId()
		if decision := t.decisions[id]; decision == nil {
			t.ask(asked)
		} else if !t.onItsWay(id) {
			t.send(&pb.SubmitToolResultsRequest{SessionId: t.sessionID, Approvals: []*pb.Approval{decision}})
		}
	}
}

// isOurs says whether the live turn is the one that this host runs: another one's calls are its own host's.
func (t *Turn) isOurs() bool { return t.turnID != "" && t.turnID == t.liveTurn }

func (t *Turn) requested(event *pb.Event, pending *pb.PendingCall, now time.Time) {
	_, known := t.tools[pending.GetCall().GetToolName()]
	handled := t.isOurs() && known && pending.GetExecutor() == pb.ToolExecutor_TOOL_EXECUTOR_HOST
	t.out = append(t.out, Emit{Raw: event, Handled: handled})
	if handled && !event.GetReplay() {
		t.begin(pending, now)
	}
}

// noteQueue learns that the input that waits will never be taken.
func (t *Turn) noteQueue(queuedID, outcome string) {
	if t.queuedID != "" && queuedID == t.queuedID {
		t.notTaken = outcome
	}
}

// --- Calls --------------------------------------------------------------------------------------------

func (t *Turn) begin(pending *pb.PendingCall, now time.Time) {
	id := pending.GetCall().GetCallId()
	timeout, known := t.tools[pending.GetCall().GetToolName()]
	if t.calls[id] != nil || !known || pending.GetExecutor() != pb.ToolExecutor_TOOL_EXECUTOR_HOST {
		return
	}
	begun := &call{pending: pending}
	if timeout > 0 {
		begun.due = now.Add(timeout)
	}
	t.calls[id] = begun
	t.order = append(t.order, id)
	t.out = append(t.out, RunTool{TurnID: t.turnID, Pending: pending})
}

func (t *Turn) answer(call *call, result *pb.ToolResult) {
	call.result, call.due = result, time.Time{}
	t.send(&pb.SubmitToolResultsRequest{SessionId: t.sessionID, Results: []*pb.ToolResult{result}})
}

func (t *Turn) send(request *pb.SubmitToolResultsRequest) {
	t.submitted++
	t.submissions[t.submitted] = &submission{request: request}
	t.out = append(t.out, Submit{Number: t.submitted, Request: request})
}

// callIDs are the calls that answers are about.
func callIDs(request *pb.SubmitToolResultsRequest) []string {
	var ids []string
	for _, result := range request.GetResults() {
		ids = append(ids, result.GetCallId())
	}
	for _, approval := range request.GetApprovals() {
		ids = append(ids, approval.GetCallId())
	}
	return ids
}

func (t *Turn) onItsWay(callID string) bool {
	for _, each := range t.submissions {
		if slices.Contains(callIDs(each.request), callID) {
			return true
		}
	}
	return false
}

// refused handles answers that will never be taken as they are. A result that cannot be used is replaced, once, by
// an error for the model.
func (t *Turn) refused(submission *submission, problem *Problem) {
	if problem.Reason == "SESSION_NOT_FOUND" {
		return // the stream reports it
	}
	replaceable := problem.Reason == "INVALID_REQUEST" || problem.Reason == "REQUEST_TOO_LARGE"
	for _, result := range submission.request.GetResults() {
		call := t.calls[result.GetCallId()]
		if replaceable && call != nil && !call.refused {
			call.refused = true
			t.answer(call, Failure(result.GetCallId(), "the result cannot be used: "+problem.Message))
			return // a submission has one answer
		}
	}
	t.finish(Fail{Problem: problem})
}

// closed handles that a call has its result, or never will: nothing more is to be done for it.
func (t *Turn) closed(callID string) {
	if call := t.calls[callID]; call != nil {
		call.due = time.Time{}
		if call.result == nil {
			call.result = &pb.ToolResult{CallId: callID}
			t.out = append(t.out, DropTool{callID})
		}
	}
	t.out = append(t.out, ForgetCall{callID})
	for number, each := range t.submissions {
		if len(each.request.GetApprovals()) == 0 && slices.Equal(callIDs(each.request), []string{callID}) {
			delete(t.submissions, number)
		}
	}
}

func (t *Turn) ask(asked *pb.PendingApproval) {
	if id := asked.GetCall().GetCallId(); t.asks && !t.asked[id] {
		t.asked[id] = true
		t.out = append(t.out, AskApproval{TurnID: t.turnID, Asked: asked})
	}
}

// Failure is the result of a call that failed, for the model.
func Failure(callID, text string) *pb.ToolResult {
	if text == "" {
		text = "failed"
	}
	parts := []*pb.Part{{Content: &pb.Part_Text{Text: text}}}
	return &pb.ToolResult{CallId: callID, Parts: parts, Outcome: pb.ToolOutcome_TOOL_OUTCOME_ERROR}
}

// --- Times --------------------------------------------------------------------------------------------

func (t *Turn) due() time.Time {
	var due time.Time
	for _, call := range t.calls {
		due = earlier(due, call.due)
	}
	for _, submission := range t.submissions {
		due = earlier(due, submission.due)
	}
	return due
}

func (t *Turn) onTime(now time.Time) {
	for _, id := range t.order {
		call := t.calls[id]
		if call.due.IsZero() || now.Before(call.due) {
			continue
		}
		name := call.pending.GetCall().GetToolName()
		t.out = append(t.out, DropTool{id})
		t.answer(call, Failure(id, fmt.Sprintf("%s did not finish within %s and was given up", name, t.tools[name])))
	}
	for _, number := range slices.Sorted(maps.Keys(t.submissions)) {
		if each := t.submissions[number]; !each.due.IsZero() && !now.Before(each.due) {
			each.due = time.Time{}
			t.out = append(t.out, Submit{Number: number, Request: each.request})
		}
	}
}

// --- The end ------------------------------------------------------------------------------------------

func (t *Turn) ended(now time.Time) {
	switch {
	case t.notTaken != "":
		t.finish(Fail{QueuedMessageID: t.queuedID, Outcome: t.notTaken})
	case t.terminal != nil:
		text, known := t.texts[finalMessage(t.terminal)]
		t.finish(Finish{Terminal: t.terminal, Text: text, Known: known})
	default:
		t.again(unavailable("the stream ended before its turn"), now)
	}
}

// finalMessage is the id of a turn's last message, by its terminal event.
func finalMessage(terminal *pb.Event) string { return ResultOf(terminal).GetFinalMessageId() }

// ResultOf is the result in a terminal event.
func ResultOf(terminal *pb.Event) *pb.TurnResult {
	switch payload := terminal.GetPayload().(type) {
	case *pb.Event_TurnCompleted:
		return payload.TurnCompleted.GetResult()
	case *pb.Event_TurnCancelled:
		return payload.TurnCancelled.GetResult()
	case *pb.Event_TurnFailed:
		return payload.TurnFailed.GetResult()
	}
	return nil
}

// broke ends a turn whose session was deleted: the turn ended with it.
func (t *Turn) broke(problem *Problem, now time.Time) bool {
	if problem.Reason != "SESSION_NOT_FOUND" || t.terminal == nil {
		return false
	}
	t.ended(now)
	return true
}

// lost sends the same request again from its beginning: attached if it is still there, carried out anew if it is not.
func (t *Turn) lost(problem *Problem, now time.Time) {
	t.cursor, t.terminal = 0, nil
	t.again(problem, now)
}

func (t *Turn) mayWait() bool { return t.wasAdmitted || t.failures < limitTries }

func (t *Turn) finishing() {
	for _, id := range t.order {
		if t.calls[id].result == nil {
			t.out = append(t.out, DropTool{id})
		}
	}
}

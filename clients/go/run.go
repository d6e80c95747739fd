package contextd

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"time"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

const (
	submitTimeout   = 30 * time.Second
	identifyTimeout = 10 * time.Second
	// notDecided is the reason that the model reads if the host returned no valid decision. The details are logged.
	notDecided = "The host did not approve this call: its approval callback failed."
)

// Run is a run of a turn. Range over its Events, or wait for its Result: both run the tools that the model calls. The
// turn starts with the first use of one of them.
//
// Leaving a loop closes the connection and does not cancel the turn: it continues on the server until it needs a tool,
// running tools complete, and Events or Result attach to the turn again. The end of the run's context has the same
// effect.
type Run struct {
	*stream
	turn       *core.Turn
	tools      *tools
	onApproval func(context.Context, ApprovalRequest) (Decision, error)
	running    map[string]*hostCall

	admitted chan struct{} // closed when it was; what follows is guarded by mutex
	known    bool
	turnID   string
	waits    string
	live     string
}

func newRun(ctx context.Context, client *Client, turn *core.Turn, options *runOptions) *Run {
	run := &Run{turn: turn, tools: &options.tools, onApproval: options.onApproval, running: map[string]*hostCall{}, admitted: make(chan struct{})}
	run.stream = newStream(ctx, client, turn.Stream, run)
	return run
}

// failedRun is a run that could not be started.
func failedRun(ctx context.Context, client *Client, err error) *Run {
	options := &runOptions{}
	run := newRun(ctx, client, core.NewTurn(&pb.ExecuteTurnRequest{}, core.TurnOptions{}), options)
	run.over, run.err = true, err
	return run
}

func (c *Client) coreOptions() core.Options {
	return core.Options{ReconnectFor: c.settings.reconnectFor, Jitter: rand.Float64()}
}

// TurnID is the id of the turn. Empty until it is known.
func (r *Run) TurnID() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.turnID
}

// Text streams only the text of the response.
func (r *Run) Text() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for event, err := range r.Events() {
			if err != nil {
				yield("", err)
				return
			}
			if delta, ok := event.(TextDelta); ok && !yield(delta.Text, nil) {
				return
			}
		}
	}
}

// Result waits for the end of the turn and skips events that were not read. If the turn failed, the error is a
// *TurnFailedError. A cancelled turn has a result with state "CANCELLED".
func (r *Run) Result() (*Result, error) {
	for _, err := range r.Events() {
		if err != nil {
			return nil, err
		}
	}
	text := r.finish.Text
	if id := core.ResultOf(r.finish.Terminal).GetFinalMessageId(); id != "" && !r.finish.Known {
		found, err := r.messageText(id)
		if err != nil {
			return nil, err
		}
		text = found
	}
	return resultOf(r.finish.Terminal, text)
}

// Cancel cancels the turn. If its input still waits in the queue, it withdraws the input. Cancel waits until
// the request is admitted; another goroutine must read the run during this time.
func (r *Run) Cancel(ctx context.Context, reason string) error {
	select {
	case <-r.admitted:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.client.ctx.Done():
		return ErrClosed
	}
	session := newSession(r.client, r.turn.SessionID(), nil)
	r.mutex.Lock()
	turnID, waits := r.turnID, r.waits
	r.mutex.Unlock()
	if turnID == "" && waits != "" {
		withdrawn, err := session.Withdraw(ctx, waits)
		if err != nil || withdrawn.GetState() == pb.QueuedMessageState_QUEUED_MESSAGE_STATE_CANCELLED {
			return err
		}
	}
	r.mutex.Lock()
	turnID = or(r.turnID, r.live) // its own, or the one that took the input
	r.mutex.Unlock()
	_, err := session.Cancel(ctx, turnID, false, reason)
	return err
}

// note keeps what other goroutines may ask for.
func (r *Run) note() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.turnID, r.waits, r.live = r.turn.TurnID(), r.turn.Waits(), r.turn.Live()
	if r.turn.Admitted() && !r.known {
		r.known = true
		close(r.admitted)
	}
}

// messageText reads the text of a message that was committed before the run attached to the turn.
func (r *Run) messageText(id string) (string, error) {
	session := newSession(r.client, r.turn.SessionID(), nil)
	for message, err := range session.Messages(r.ctx, NewestFirst()) {
		if err != nil {
			return "", err
		}
		if message.ID == id {
			return message.Text, nil
		}
	}
	return "", nil
}

// perform does what only turns ask for.
func (r *Run) perform(action core.Action) {
	switch action := action.(type) {
	case core.RunTool:
		r.runTool(action)
	case core.DropTool:
		if dropped := r.running[action.CallID]; dropped != nil {
			dropped.cancel()
			delete(r.running, action.CallID)
		}
	case core.ForgetCall:
		delete(r.running, action.CallID)
		r.client.host.forget(r.turn.SessionID(), action.CallID)
	case core.Identify:
		r.identify(action)
	case core.AskApproval:
		go r.ask(action)
	case core.Submit:
		go r.submit(action)
	}
}

// identify reads a turn before anything else is done: which calls are this run's depends on it.
func (r *Run) identify(action core.Identify) {
	ctx, cancel := context.WithTimeout(r.working, identifyTimeout)
	defer cancel()
	request := &pb.GetTurnRequest{SessionId: r.turn.SessionID(), TurnId: action.TurnID}
	found, err := r.client.transport.turns.GetTurn(ctx, request)
	if err != nil {
		r.do(r.turn.OnNoTurn(core.ProblemOf(err), time.Now()))
		return
	}
	r.do(r.turn.OnTurn(found.GetTurn()))
}

func (r *Run) runTool(action core.RunTool) {
	raw := action.Pending.GetCall()
	call := Call{
		SessionID:       r.turn.SessionID(),
		TurnID:          action.TurnID,
		ID:              raw.GetCallId(),
		ToolName:        raw.GetToolName(),
		ArgumentsEdited: action.Pending.GetArgumentsEdited(),
	}
	if deadline := action.Pending.GetDeadline(); deadline != nil {
		call.Deadline = deadline.AsTime()
	}
	begun := r.client.host.run(r.ctx, r.tools.byName[call.ToolName], call, raw.GetArgumentsJson())
	r.running[call.ID] = begun
	go func() {
		<-begun.done
		r.report(func(now time.Time) []core.Action { return r.turn.OnToolResult(begun.result, now) })
	}()
}

func (r *Run) ask(action core.AskApproval) {
	raw := action.Asked.GetCall()
	request := ApprovalRequest{
		Call:      Call{SessionID: r.turn.SessionID(), TurnID: action.TurnID, ID: raw.GetCallId(), ToolName: raw.GetToolName()},
		Arguments: []byte(raw.GetArgumentsJson()),
	}
	if deadline := action.Asked.GetDeadline(); deadline != nil {
		request.Deadline = deadline.AsTime()
	}
	approval, err := r.decide(request)
	if r.ctx.Err() != nil {
		return // the run was left, which decides nothing: another one asks again
	}
	if err != nil {
		r.client.settings.log.Error("contextd: call denied: the approval callback failed",
			"tool", request.ToolName, "call.id", request.ID, "session.id", request.SessionID, "error", err)
		approval, _ = Deny(notDecided).approval(request.ID)
	}
	r.report(func(now time.Time) []core.Action { return r.turn.OnApproval(approval, now) })
}

// decide calls the callback. Only a decision with Approved and no error lets the call run.
func (r *Run) decide(request ApprovalRequest) (approval *pb.Approval, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("it panicked: %v\n%s", panicked, debug.Stack())
		}
	}()
	decision, err := r.onApproval(r.ctx, request)
	if err != nil {
		return nil, err
	}
	return decision.approval(request.ID)
}

func (r *Run) submit(action core.Submit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), submitTimeout)
	defer cancel()
	_, err := r.client.transport.turns.SubmitToolResults(ctx, action.Request)
	if err == nil {
		r.report(func(time.Time) []core.Action { return r.turn.OnSubmitted(action.Number) })
		return
	}
	problem := core.ProblemOf(err)
	r.report(func(now time.Time) []core.Action { return r.turn.OnSubmitFailed(action.Number, problem, now) })
}

package contextd

import (
	"context"
	"encoding/json"
	"iter"
	"sync/atomic"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

// Session is a conversation: its transcript, its queue and its turns. Client.Session makes one.
// It may be used by many goroutines.
type Session struct {
	client *Client
	id     string
	tools  atomic.Pointer[tools]
}

func newSession(client *Client, id string, tools *tools) *Session {
	session := &Session{client: client, id: id}
	session.tools.Store(tools)
	return session
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// --- Turns --------------------------------------------------------------------------------------------

// Run runs a turn: range over its Events, or wait for its Result. It goes on by itself after lost connections and
// restarts of the server: each word and each event comes once, and each call is run once. Without a text it takes what
// waits in the queue.
func (s *Session) Run(ctx context.Context, text string, options ...RunOption) *Run {
	made, err := runOf(s.offered(), options)
	if err != nil {
		return failedRun(ctx, s.client, err)
	}
	request := made.request
	request.SessionId = s.id
	request.RequestId = or(request.GetRequestId(), requestID())
	if text != "" || len(made.attached) > 0 {
		request.Input = input(text, made.attached, made.metadata)
	}
	if made.after != nil {
		request.AfterSeq = *made.after
	}
	return newRun(ctx, s.client, core.NewTurn(request, s.turnOptions(made)), made)
}

func (s *Session) turnOptions(made *runOptions) core.TurnOptions {
	return core.TurnOptions{Options: s.client.coreOptions(), Tools: made.tools.timeouts(), Asks: made.onApproval != nil}
}

// offered are the session's tools, as far as this process knows their functions.
func (s *Session) offered() *tools {
	if known := s.tools.Load(); known != nil {
		return known
	}
	return &tools{}
}

// RunText runs a turn and gives the words of its answer.
func (s *Session) RunText(ctx context.Context, text string, options ...RunOption) (string, error) {
	result, err := s.Run(ctx, text, options...).Result()
	if err != nil {
		return "", err
	}
	return result.Text, nil
}

// Resume comes back to the turn that runs, as after a crash of this process; ErrNoTurn when none does. Calls that wait
// for a result are run, also those that a process began that is gone now. Its options are tools, OnApproval and
// AfterSeq; without the latter the whole turn is yielded again.
func (s *Session) Resume(ctx context.Context, options ...RunOption) (*Run, error) {
	made, err := runOf(s.offered(), options)
	if err != nil {
		return nil, err
	}
	raw, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	id := raw.GetCurrentTurnId()
	if id == "" {
		return nil, ErrNoTurn
	}
	request := &pb.WatchEventsRequest{SessionId: s.id, TurnId: id, Follow: true}
	if made.after != nil {
		request.AfterSeq = *made.after
	} else {
		turn, err := s.Turn(ctx, id)
		if err != nil {
			return nil, err
		}
		request.AfterSeq = turn.GetFirstSeq() - 1
	}
	return newRun(ctx, s.client, core.ResumeTurn(request, s.turnOptions(made)), made), nil
}

// Watch yields the events of the session, whoever runs its turns: from now on, or after AfterSeq. It comes back by
// itself after lost connections, and ends with NoFollow or with the context. Each loop over it begins anew.
func (s *Session) Watch(ctx context.Context, options ...WatchOption) iter.Seq2[Event, error] {
	made := &watchOptions{follow: true}
	for _, each := range options {
		each.watch(made)
	}
	return func(yield func(Event, error) bool) {
		request := &pb.WatchEventsRequest{SessionId: s.id, Follow: made.follow}
		if made.after != nil {
			request.AfterSeq = *made.after
		} else {
			raw, err := s.Get(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			request.AfterSeq = raw.GetLastSeq()
		}
		newStream(ctx, s.client, core.NewWatch(request, s.client.coreOptions()), nil).Events()(yield)
	}
}

// Cancel cancels a turn, and answers once it has ended; an empty id is the turn that runs. With rollback its messages
// are void, else they are kept, the partial answer included. The reason is for the log and the event.
func (s *Session) Cancel(ctx context.Context, turnID string, rollback bool, reason string) (*pb.CancelTurnResponse, error) {
	request := &pb.CancelTurnRequest{SessionId: s.id, TurnId: turnID, RequestId: requestID(), Reason: reason}
	if rollback {
		request.Mode = pb.CancelMode_CANCEL_MODE_ROLLBACK
	}
	return call(ctx, s.client.transport, s.client.transport.turns.CancelTurn, request)
}

// Turn reads a turn.
func (s *Session) Turn(ctx context.Context, id string) (*pb.Turn, error) {
	request := &pb.GetTurnRequest{SessionId: s.id, TurnId: id}
	found, err := call(ctx, s.client.transport, s.client.transport.turns.GetTurn, request)
	return found.GetTurn(), err
}

// Turns are the turns, newest first.
func (s *Session) Turns(ctx context.Context) iter.Seq2[*pb.Turn, error] {
	return pages(func(token string) ([]*pb.Turn, string, error) {
		request := &pb.ListTurnsRequest{SessionId: s.id, PageSize: pageSize, PageToken: token}
		page, err := call(ctx, s.client.transport, s.client.transport.turns.ListTurns, request)
		return page.GetTurns(), page.GetNextPageToken(), err
	})
}

// Approve lets a call run that waits for a person; arguments that are not nil replace those of the model.
func (s *Session) Approve(ctx context.Context, callID string, arguments json.RawMessage) error {
	return s.decide(ctx, callID, Decision{Approved: true, Arguments: arguments})
}

// Deny refuses a call that waits for a person. The model reads the reason.
func (s *Session) Deny(ctx context.Context, callID, reason string) error {
	return s.decide(ctx, callID, Deny(reason))
}

func (s *Session) decide(ctx context.Context, callID string, decision Decision) error {
	approval, err := decision.approval(callID)
	if err != nil {
		return err
	}
	return s.submit(ctx, &pb.SubmitToolResultsRequest{SessionId: s.id, Approvals: []*pb.Approval{approval}})
}

// Submit answers a call that no run handles, with a tool's output or its error.
func (s *Session) Submit(ctx context.Context, callID string, output any, failed error) error {
	results := []*pb.ToolResult{result(callID, output, failed)}
	return s.submit(ctx, &pb.SubmitToolResultsRequest{SessionId: s.id, Results: results})
}

func (s *Session) submit(ctx context.Context, request *pb.SubmitToolResultsRequest) error {
	_, err := call(ctx, s.client.transport, s.client.transport.turns.SubmitToolResults, request)
	return err
}

// --- The queue ----------------------------------------------------------------------------------------

// Send sends a message while the agent works. It is stored when this returns, and taken once.
func (s *Session) Send(ctx context.Context, text string, options ...SendOption) (*pb.EnqueueMessageResponse, error) {
	made := &sendOptions{request: &pb.EnqueueMessageRequest{}}
	for _, each := range options {
		each.send(made)
	}
	request := made.request
	request.SessionId = s.id
	request.RequestId = or(request.GetRequestId(), requestID())
	request.Message = input(text, made.attached, made.metadata)
	return call(ctx, s.client.transport, s.client.transport.queue.EnqueueMessage, request)
}

// Queued are the messages that wait, the next one first.
func (s *Session) Queued(ctx context.Context) iter.Seq2[*pb.QueuedMessage, error] {
	return pages(func(token string) ([]*pb.QueuedMessage, string, error) {
		request := &pb.ListQueuedMessagesRequest{SessionId: s.id, PageSize: pageSize, PageToken: token}
		page, err := call(ctx, s.client.transport, s.client.transport.queue.ListQueuedMessages, request)
		return page.GetQueuedMessages(), page.GetNextPageToken(), err
	})
}

// Withdraw withdraws a message that waits; the answer says whether it still did.
func (s *Session) Withdraw(ctx context.Context, queuedMessageID string) (*pb.QueuedMessage, error) {
	request := &pb.CancelQueuedMessageRequest{SessionId: s.id, QueuedMessageId: queuedMessageID, RequestId: requestID()}
	withdrawn, err := call(ctx, s.client.transport, s.client.transport.queue.CancelQueuedMessage, request)
	return withdrawn.GetQueuedMessage(), err
}

// ClearQueue withdraws all messages that wait, and gives their ids.
func (s *Session) ClearQueue(ctx context.Context) ([]string, error) {
	request := &pb.ClearQueueRequest{SessionId: s.id, RequestId: requestID()}
	cleared, err := call(ctx, s.client.transport, s.client.transport.queue.ClearQueue, request)
	return cleared.GetCancelledMessageIds(), err
}

// --- The session itself -------------------------------------------------------------------------------

// Get reads the session.
func (s *Session) Get(ctx context.Context) (*pb.Session, error) { return s.client.get(ctx, s.id) }

// Update changes what the options say; in force from the next step.
func (s *Session) Update(ctx context.Context, options ...SessionOption) (*pb.Session, error) {
	config, tools, err := sessionOf(options)
	if err != nil {
		return nil, err
	}
	config.SessionId = s.id
	updated, err := s.client.update(ctx, config)
	if err == nil && tools.list != nil {
		s.tools.Store(tools)
	}
	return updated, err
}

// Delete deletes the session with all it holds.
func (s *Session) Delete(ctx context.Context) error {
	request := &pb.DeleteSessionRequest{SessionId: s.id, RequestId: requestID()}
	_, err := call(ctx, s.client.transport, s.client.transport.sessions.DeleteSession, request)
	return err
}

// Fork makes a session with the transcript of this one, as it was at a seq, or as it is (0). An empty id is chosen by
// the server.
func (s *Session) Fork(ctx context.Context, newID string, atSeq int64) (*Session, error) {
	request := &pb.ForkSessionRequest{SessionId: s.id, NewSessionId: newID, AtSeq: atSeq, RequestId: requestID()}
	forked, err := call(ctx, s.client.transport, s.client.transport.sessions.ForkSession, request)
	if err != nil {
		return nil, err
	}
	return newSession(s.client, forked.GetSession().GetSessionId(), s.tools.Load()), nil
}

package contextd

import (
	"context"
	"encoding/json"
	"iter"
	"sync/atomic"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

// Session is a conversation: its transcript, its queue and its turns. Client.Session opens one.
// It is safe for concurrent use.
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

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// --- Turns --------------------------------------------------------------------------------------------

// Run runs a turn: range over its Events, or wait for its Result. It resumes automatically after lost connections and
// restarts of the server: each piece of text and each event is delivered once, and each call is run once. Without a text,
// the turn takes the waiting messages.
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

// offered returns the session's tools whose functions this process has.
func (s *Session) offered() *tools {
	if known := s.tools.Load(); known != nil {
		return known
	}
	return &tools{}
}

// RunText runs a turn and returns the text of its response.
func (s *Session) RunText(ctx context.Context, text string, options ...RunOption) (string, error) {
	result, err := s.Run(ctx, text, options...).Result()
	if err != nil {
		return "", err
	}
	return result.Text, nil
}

// Resume attaches to the running turn, e.g. after a crash of this process. It returns ErrNoTurn if no turn is running.
// Calls that wait for a result are run, including those that a crashed process had started. Its options are tools,
// OnApproval and AfterSeq; without the latter, the whole turn is replayed.
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

// Watch yields the events of the session, including turns of other hosts: new events, or those after AfterSeq. It
// reconnects automatically, and ends with NoFollow or with the context. Each loop starts from the beginning.
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

// Cancel cancels a turn and returns when the turn has ended. An empty id means the running turn. With rollback, the
// turn's messages are voided; otherwise they are kept, including the partial response. The reason is for the log and the
// event.
func (s *Session) Cancel(ctx context.Context, turnID string, rollback bool, reason string) (*pb.CancelTurnResponse, error) {
	request := &pb.CancelTurnRequest{SessionId: s.id, TurnId: turnID, RequestId: requestID(), Reason: reason}
	if rollback {
		request.Mode = pb.CancelMode_CANCEL_MODE_ROLLBACK
	}
	return call(ctx, s.client.transport, s.client.transport.turns.CancelTurn, request)
}

// Turn returns a turn.
func (s *Session) Turn(ctx context.Context, id string) (*pb.Turn, error) {
	request := &pb.GetTurnRequest{SessionId: s.id, TurnId: id}
	found, err := call(ctx, s.client.transport, s.client.transport.turns.GetTurn, request)
	return found.GetTurn(), err
}

// Turns lists the turns, newest first.
func (s *Session) Turns(ctx context.Context) iter.Seq2[*pb.Turn, error] {
	return pages(func(token string) ([]*pb.Turn, string, error) {
		request := &pb.ListTurnsRequest{SessionId: s.id, PageSize: pageSize, PageToken: token}
		page, err := call(ctx, s.client.transport, s.client.transport.turns.ListTurns, request)
		return page.GetTurns(), page.GetNextPageToken(), err
	})
}

// Approve approves a call that waits for approval. Arguments that are not nil replace those of the model.
func (s *Session) Approve(ctx context.Context, callID string, arguments json.RawMessage) error {
	return s.decide(ctx, callID, Decision{Approved: true, Arguments: arguments})
}

// Deny denies a call that waits for approval. The model reads the reason.
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

// Submit submits the result of a call that no run handles: the tool's output or its error.
func (s *Session) Submit(ctx context.Context, callID string, output any, failed error) error {
	results := []*pb.ToolResult{result(callID, output, failed)}
	return s.submit(ctx, &pb.SubmitToolResultsRequest{SessionId: s.id, Results: results})
}

func (s *Session) submit(ctx context.Context, request *pb.SubmitToolResultsRequest) error {
	_, err := call(ctx, s.client.transport, s.client.transport.turns.SubmitToolResults, request)
	return err
}

// --- The queue ----------------------------------------------------------------------------------------

// Send queues a message while a turn runs. When it returns, the message is stored; it is taken exactly once.
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

// Queued lists the waiting messages, in the order in which they will be taken.
func (s *Session) Queued(ctx context.Context) iter.Seq2[*pb.QueuedMessage, error] {
	return pages(func(token string) ([]*pb.QueuedMessage, string, error) {
		request := &pb.ListQueuedMessagesRequest{SessionId: s.id, PageSize: pageSize, PageToken: token}
		page, err := call(ctx, s.client.transport, s.client.transport.queue.ListQueuedMessages, request)
		return page.GetQueuedMessages(), page.GetNextPageToken(), err
	})
}

// Withdraw withdraws a waiting message. The returned message has its state.
func (s *Session) Withdraw(ctx context.Context, queuedMessageID string) (*pb.QueuedMessage, error) {
	request := &pb.CancelQueuedMessageRequest{SessionId: s.id, QueuedMessageId: queuedMessageID, RequestId: requestID()}
	withdrawn, err := call(ctx, s.client.transport, s.client.transport.queue.CancelQueuedMessage, request)
	return withdrawn.GetQueuedMessage(), err
}

// ClearQueue withdraws all waiting messages and returns their ids.
func (s *Session) ClearQueue(ctx context.Context) ([]string, error) {
	request := &pb.ClearQueueRequest{SessionId: s.id, RequestId: requestID()}
	cleared, err := call(ctx, s.client.transport, s.client.transport.queue.ClearQueue, request)
	return cleared.GetCancelledMessageIds(), err
}

// --- The session itself -------------------------------------------------------------------------------

// Get returns the session.
func (s *Session) Get(ctx context.Context) (*pb.Session, error) { return s.client.get(ctx, s.id) }

// Update applies the options, from the next step on.
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

// Delete deletes the session with all its data.
func (s *Session) Delete(ctx context.Context) error {
	request := &pb.DeleteSessionRequest{SessionId: s.id, RequestId: requestID()}
	_, err := call(ctx, s.client.transport, s.client.transport.sessions.DeleteSession, request)
	return err
}

// Fork creates a session with the transcript of this one as of a seq, or the current one (0). If the id is empty, the
// server chooses one.
func (s *Session) Fork(ctx context.Context, newID string, atSeq int64) (*Session, error) {
	request := &pb.ForkSessionRequest{SessionId: s.id, NewSessionId: newID, AtSeq: atSeq, RequestId: requestID()}
	forked, err := call(ctx, s.client.transport, s.client.transport.sessions.ForkSession, request)
	if err != nil {
		return nil, err
	}
	return newSession(s.client, forked.GetSession().GetSessionId(), s.tools.Load()), nil
}

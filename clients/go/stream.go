package contextd

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

const (
	// Maximum events that wait for a slow caller. Then the stream is not read further.
	waitingEvents = 256
	// Maximum events of a connection that were read and are not handled yet.
	waitingReads = 16
)

var errReading = errors.New("contextd: the run is being read already, by this loop or another one")

// stream is the shell around a core.Stream: it performs its actions, in one goroutine while the caller reads.
type stream struct {
	ctx    context.Context
	client *Client
	core   *core.Stream
	run    *Run // the run that this is the stream of; nil for watches

	reading sync.Mutex      // held by who reads: one at a time
	working context.Context // ends with the loop that reads, at the latest with ctx
	// What follows is the goroutine's while one runs, and the reader's in between.
	waiting []waitingEvent
	handled int64
	close   context.CancelFunc
	reads   chan func(time.Time) []core.Action
	over    bool
	finish  core.Finish
	err     error

	mutex     sync.Mutex
	reports   []func(time.Time) []core.Action
	reported  chan struct{}
	cursor    int64
	reconnect int
}

// waitingEvent is an event for the caller, with the cursor once it was taken.
type waitingEvent struct {
	event  Event
	cursor int64
}

func newStream(ctx context.Context, client *Client, machine *core.Stream, run *Run) *stream {
	return &stream{
		ctx: ctx, client: client, core: machine, run: run,
		reads: make(chan func(time.Time) []core.Action, waitingReads), reported: make(chan struct{}, 1),
		handled: machine.Cursor(), cursor: machine.Cursor(),
	}
}

// Cursor is the newest seq up to which all events were yielded. Pass it to AfterSeq to resume from here.
func (s *stream) Cursor() int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.cursor
}

// Reconnects is the number of reconnects.
func (s *stream) Reconnects() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return max(0, s.reconnect-1)
}

// Events yields each event and each piece of text once. An error is yielded last. The failure of a turn is an event, and
// the error of Result. Only one loop at a time may read.
func (s *stream) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if !s.reading.TryLock() {
			yield(nil, errReading)
			return
		}
		defer s.reading.Unlock()
		events, done := make(chan waitingEvent), make(chan struct{})
		working, leave := context.WithCancel(s.ctx)
		s.working = working
		var failed error
		go func() {
			defer close(done)
			defer close(events)
			failed = s.work(events)
		}()
		defer func() { <-done }()
		defer leave()
		for next := range events {
			s.taken(next.cursor)
			if !yield(next.event, nil) {
				return
			}
		}
		if failed != nil {
			yield(nil, failed)
		}
	}
}

func (s *stream) taken(cursor int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.cursor = cursor
}

// work performs the actions of the core until the stream ends or the reader leaves.
func (s *stream) work(events chan<- waitingEvent) error {
	if !s.over {
		s.do(s.core.Start(time.Now()))
	}
	defer func() { s.do(s.core.Leave()) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !s.over || len(s.waiting) > 0 {
		s.schedule(timer)
		reads, out := s.reads, chan<- waitingEvent(nil)
		var next waitingEvent
		if len(s.waiting) > 0 {
			out, next = events, s.waiting[0]
		}
		if len(s.waiting) >= waitingEvents {
			reads = nil
		}
		select {
		case out <- next:
			s.waiting = s.waiting[1:]
		case report := <-reads:
			s.do(report(time.Now()))
		case <-s.reported:
			s.doReports()
		case <-timer.C:
			s.onTime()
		case <-s.working.Done():
			return s.ctx.Err()
		case <-s.client.ctx.Done():
			return ErrClosed
		}
	}
	return s.err
}

// schedule sets the timer for what is due next.
func (s *stream) schedule(timer *time.Timer) {
	if len(s.waiting) >= waitingEvents {
		s.core.Hold(time.Now()) // the stream is not silent: it is not read
	}
	if deadline := s.core.Deadline(); deadline.IsZero() {
		timer.Stop()
	} else {
		timer.Reset(time.Until(deadline))
	}
}

// onTime does what is due; what came before the time goes first.
func (s *stream) onTime() {
	s.doReports()
	for {
		select {
		case report := <-s.reads:
			s.do(report(time.Now()))
			continue
		default:
		}
		s.do(s.core.OnTime(time.Now()))
		return
	}
}

// report queues a report for the goroutine that works for a reader, or for the next one. Each call has a handful of them.
func (s *stream) report(report func(time.Time) []core.Action) {
	s.mutex.Lock()
	s.reports = append(s.reports, report)
	s.mutex.Unlock()
	select {
	case s.reported <- struct{}{}:
	default:
	}
}

func (s *stream) doReports() {
	s.mutex.Lock()
	reports := s.reports
	s.reports = nil
	s.mutex.Unlock()
	for _, report := range reports {
		s.do(report(time.Now()))
	}
}

func (s *stream) do(actions []core.Action) {
	shown := false
	for _, action := range actions {
		switch action := action.(type) {
		case core.Emit:
			s.waiting = append(s.waiting, waitingEvent{eventOf(action), s.handled})
			shown = true
		case core.Open:
			s.open(action)
		case core.Close:
			s.stopReading()
		case core.Finish:
			s.over, s.finish = true, action
		case core.Fail:
			s.fail(failureOfRun(action))
		default:
			s.run.perform(action)
		}
	}
	s.handled = s.core.Cursor()
	if shown { // an event is handled once all that was made of it was yielded
		s.waiting[len(s.waiting)-1].cursor = s.handled
	}
	if s.run != nil {
		s.run.note()
	}
}

func failureOfRun(fail core.Fail) error {
	if fail.Problem != nil {
		return errorOf(fail.Problem)
	}
	return &InputNotTakenError{fail.QueuedMessageID, fail.Outcome}
}

func (s *stream) fail(err error) {
	s.over, s.err = true, err
	s.stopReading()
}

func (s *stream) stopReading() {
	if s.close != nil {
		s.close()
		s.close = nil
	}
}

// open begins to read a connection's stream.
func (s *stream) open(action core.Open) {
	s.stopReading()
	s.mutex.Lock()
	s.reconnect++
	s.mutex.Unlock()
	ctx, cancel := context.WithCancel(s.ctx)
	s.close = cancel
	go s.read(ctx, action)
}

// read reports what one connection's stream brings.
func (s *stream) read(ctx context.Context, action core.Open) {
	outage := s.client.transport.outage
	err := receive(ctx, s.client.transport.turns, action, func(event *pb.Event) bool {
		outage.answered()
		return s.brought(ctx, func(now time.Time) []core.Action { return s.core.OnEvent(action.Connection, event, now) })
	})
	var problem *core.Problem
	if !errors.Is(err, io.EOF) {
		problem = core.ProblemOf(err)
		if ctx.Err() == nil {
			outage.failed(problem, s.client.settings.reconnectFor)
		}
	}
	s.brought(ctx, func(now time.Time) []core.Action { return s.core.OnEnd(action.Connection, problem, now) })
}

// brought hands a report of a connection over, unless that was given up.
func (s *stream) brought(ctx context.Context, report func(time.Time) []core.Action) bool {
	select {
	case s.reads <- report:
		return true
	case <-ctx.Done():
		return false
	}
}

// receive returns the events of a new stream, and the error with which it ended: io.EOF for a normal end.
func receive(ctx context.Context, turns pb.TurnServiceClient, action core.Open, give func(*pb.Event) bool) error {
	if action.Execute != nil {
		opened, err := turns.ExecuteTurn(ctx, action.Execute)
		return receiveAll(opened, err, give)
	}
	opened, err := turns.WatchEvents(ctx, action.Watch)
	return receiveAll(opened, err, give)
}

func receiveAll[Response any, Pointer interface {
	*Response
	GetEvent() *pb.Event
}](opened grpc.ServerStreamingClient[Response], err error, give func(*pb.Event) bool) error {
	for err == nil {
		var response *Response
		if response, err = opened.Recv(); err == nil && !give(Pointer(response).GetEvent()) {
			return context.Canceled
		}
	}
	return err
}

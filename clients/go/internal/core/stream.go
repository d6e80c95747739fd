// Package core is a stream of events, and a turn, as state machines: one logical stream over as many connections as it
// takes. It has no sockets, no goroutines and no clock. The shell opens streams and reports what they bring; each
// report is answered with actions. Times are given by the shell.
package core

import (
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

const (
	// The server is asked for a heartbeat this often, and a stream that is silent for longer than Silence is given up.
	heartbeat = 5 * time.Second
	// Silence is the time after which a stream is given up.
	Silence = 20 * time.Second
	// Errors in a row that only a broken connection explains, before they are believed.
	oddErrors = 20
)

// Options of a stream.
type Options struct {
	// ReconnectFor is the time without any server after which it is given up.
	ReconnectFor time.Duration
	// Jitter is a random number of 0 to 1.
	Jitter float64
}

// kind is what the kinds of streams decide for themselves.
type kind interface {
	// payload handles an event other than text.
	payload(event *pb.Event, now time.Time)
	// ended handles a stream that ended in good order.
	ended(now time.Time)
	// broke handles what only this kind knows of a problem; false leaves it to the stream.
	broke(problem *Problem, now time.Time) bool
	// lost handles that events that were shown are no more.
	lost(problem *Problem, now time.Time)
	// mayWait says whether a limit of the tenant is waited for, rather than reported.
	mayWait() bool
	// onTime does what is due, and due is the earliest of these times.
	onTime(now time.Time)
	due() time.Time
	// finishing is called before a Finish.
	finishing()
}

// Stream yields the events of a session once each, through lost connections and restarts of the server.
type Stream struct {
	kind         kind
	execute      *pb.ExecuteTurnRequest
	watch        *pb.WatchEventsRequest
	options      Options
	out          []Action
	over         bool
	connection   int
	connected    bool
	openAt       time.Time
	failures     int
	odd          int
	heard        time.Time
	lostAt       time.Time
	text         words
	reasoning    words
	inputs       map[place]int
	seenMessages map[string]bool
	cursor       int64
}

// place is a part of a message.
type place struct {
	messageID string
	index     int32
}

func newStream(execute *pb.ExecuteTurnRequest, watch *pb.WatchEventsRequest, options Options) *Stream {
	stream := &Stream{options: options, inputs: map[place]int{}, seenMessages: map[string]bool{}}
	every := &pb.StreamOptions{HeartbeatInterval: durationpb.New(heartbeat)}
	if execute != nil {
		stream.execute = proto.CloneOf(execute)
		stream.execute.Stream = every
		stream.cursor = execute.GetAfterSeq()
	} else {
		stream.watch = proto.CloneOf(watch)
		stream.watch.Stream = every
		stream.cursor = watch.GetAfterSeq()
	}
	return stream
}

// NewWatch makes a stream of a session's events, whoever runs its turns.
func NewWatch(request *pb.WatchEventsRequest, options Options) *Stream {
	stream := newStream(nil, request, options)
	stream.kind = watching{stream}
	stream.seenMessages = nil // it ends when events are lost, and may go on for months
	return stream
}

// --- What the shell reports ---------------------------------------------------------------------------

// Start begins, or goes on after Leave.
func (s *Stream) Start(now time.Time) []Action {
	if !s.over && !s.connected {
		s.open(now)
	}
	return s.take()
}

// Leave gives the connection back; Start goes on where it was.
func (s *Stream) Leave() []Action {
	if s.connected {
		s.out = append(s.out, Close{s.connection})
	}
	s.connected, s.openAt, s.failures = false, time.Time{}, 0
	s.connection++ // what that stream may still report does not count
	return s.take()
}

// OnEvent reports an event that a stream brought.
func (s *Stream) OnEvent(connection int, event *pb.Event, now time.Time) []Action {
	if connection == s.connection && !s.over {
		s.heard, s.failures, s.odd = now, 0, 0
		if seq := event.GetSeq(); seq == 0 || seq > s.cursor {
			s.handle(event, now)
			s.cursor = max(s.cursor, seq)
		}
	}
	return s.take()
}

// OnEnd reports that a stream ended: in good order, or with a problem.
func (s *Stream) OnEnd(connection int, problem *Problem, now time.Time) []Action {
	if connection == s.connection && !s.over {
		s.connected = false
		switch {
		case problem == nil:
			s.kind.ended(now)
		case !s.kind.broke(problem, now):
			s.broke(problem, now)
		}
	}
	return s.take()
}

// OnTime reports that the time of Deadline has come.
func (s *Stream) OnTime(now time.Time) []Action {
	if !s.over {
		if !s.openAt.IsZero() && !now.Before(s.openAt) {
			s.open(now)
		} else if s.connected && now.Sub(s.heard) >= Silence {
			s.giveUp()
			s.again(unavailable("the stream fell silent"), now)
		}
		s.kind.onTime(now)
	}
	return s.take()
}

// Hold reports that what the stream brings is not read for a while: it is not silent.
func (s *Stream) Hold(now time.Time) { s.heard = now }

// Deadline is when OnTime is to be called, if nothing else happens before; zero for never.
func (s *Stream) Deadline() time.Time {
	if s.over {
		return time.Time{}
	}
	deadline := s.kind.due()
	if !s.openAt.IsZero() {
		deadline = earlier(deadline, s.openAt)
	} else if s.connected {
		deadline = earlier(deadline, s.heard.Add(Silence))
	}
	return deadline
}

// Cursor is the newest seq that was handled.
func (s *Stream) Cursor() int64 { return s.cursor }

// earlier is the earlier one of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// --- Connections --------------------------------------------------------------------------------------

func (s *Stream) open(now time.Time) {
	s.connection++
	s.connected, s.openAt = true, time.Time{}
	s.heard = now // an attempt to connect may be silent for as long as a stream
	action := Open{Connection: s.connection}
	if s.execute != nil {
		action.Execute = proto.CloneOf(s.execute)
		action.Execute.AfterSeq = s.cursor
	} else {
		action.Watch = proto.CloneOf(s.watch)
		action.Watch.AfterSeq = s.cursor
	}
	s.out = append(s.out, action)
}

// giveUp ends a connection: what its stream may still report does not count.
func (s *Stream) giveUp() {
	s.out = append(s.out, Close{s.connection})
	s.connected = false
	s.connection++
}

func (s *Stream) broke(problem *Problem, now time.Time) {
	switch {
	case problem.MayPass():
		s.again(problem, now)
	case problem.IsBrokenTransport() && s.odd < oddErrors:
		s.odd++
		s.again(problem, now)
	case problem.Reason == "EVENTS_EXPIRED":
		oldest, _ := strconv.ParseInt(problem.Metadata["oldest_seq"], 10, 64)
		s.cursor = max(s.cursor, oldest-1)
		s.again(problem, now)
	case problem.Reason == "EVENTS_LOST" || problem.Reason == "CURSOR_AHEAD":
		s.kind.lost(problem, now)
	case problem.Reason == "RATE_LIMITED" && s.kind.mayWait():
		s.again(problem, now)
	default:
		s.finish(Fail{Problem: problem})
	}
}

func (s *Stream) again(problem *Problem, now time.Time) {
	if s.failures == 0 {
		s.lostAt = now
	}
	wait := Delay(s.failures, problem.RetryAfter, s.options.Jitter)
	s.failures++
	if now.Add(wait).Sub(s.lostAt) > s.options.ReconnectFor {
		s.finish(Fail{Problem: problem})
	} else {
		s.openAt = now.Add(wait)
	}
}

// --- Events -------------------------------------------------------------------------------------------

func (s *Stream) handle(event *pb.Event, now time.Time) {
	switch payload := event.GetPayload().(type) {
	case *pb.Event_TextDelta:
		delta := payload.TextDelta
		s.say(event, TextPiece, s.text.delta(delta.GetMessageId(), delta.GetPartIndex(), int(delta.GetByteOffset()), delta.GetText()))
	case *pb.Event_ReasoningDelta:
		delta := payload.ReasoningDelta
		pieces := s.reasoning.delta(delta.GetMessageId(), delta.GetPartIndex(), int(delta.GetByteOffset()), delta.GetText())
		s.say(event, ReasoningPiece, pieces)
	case *pb.Event_ToolInputDelta:
		s.inputDelta(event, payload.ToolInputDelta)
	case *pb.Event_MessageCommitted:
		s.committed(event, payload.MessageCommitted.GetMessage(), now)
	case *pb.Event_Sync:
		if open := payload.Sync.GetOpenMessage(); open != nil {
			s.say(event, TextPiece, s.text.whole(open.GetMessageId(), texts(open)))
			s.say(event, ReasoningPiece, s.reasoning.whole(open.GetMessageId(), reasonings(open)))
		}
		s.kind.payload(event, now)
	default:
		s.kind.payload(event, now)
	}
}

func (s *Stream) committed(event *pb.Event, message *pb.Message, now time.Time) {
	id := message.GetMessageId()
	if s.seenMessages[id] {
		return // after events were lost, the turn is sent again
	}
	if s.seenMessages != nil {
		s.seenMessages[id] = true
	}
	if message.GetRole() == pb.Role_ROLE_ASSISTANT {
		s.say(event, ReasoningPiece, s.reasoning.commit(id, reasonings(message)))
		s.say(event, TextPiece, s.text.commit(id, texts(message)))
		clear(s.inputs)
	}
	s.kind.payload(event, now)
}

func (s *Stream) inputDelta(event *pb.Event, delta *pb.ToolInputDelta) {
	at := place{delta.GetMessageId(), delta.GetPartIndex()}
	held, offset, text := s.inputs[at], int(delta.GetByteOffset()), delta.GetText()
	if offset < 0 || offset > held || held >= offset+len(text) || !utf8.RuneStart(text[held-offset]) {
		return
	}
	s.inputs[at] = offset + len(text)
	s.say(event, InputPiece, []Piece{{MessageID: delta.GetMessageId(), Text: text[held-offset:]}})
}

func (s *Stream) say(event *pb.Event, kind PieceKind, pieces []Piece) {
	for _, piece := range pieces {
		if piece.Reset {
			s.out = append(s.out, Emit{Raw: event, Kind: kind, Piece: &Piece{MessageID: piece.MessageID, Reset: true}})
		}
		if piece.Text != "" {
			s.out = append(s.out, Emit{Raw: event, Kind: kind, Piece: &Piece{MessageID: piece.MessageID, Text: piece.Text}})
		}
	}
}

// show gives an event to the caller, unless it is for this package alone.
func (s *Stream) show(event *pb.Event) {
	switch event.GetPayload().(type) {
	case *pb.Event_Heartbeat, *pb.Event_Sync:
	default:
		s.out = append(s.out, Emit{Raw: event})
	}
}

// --- Actions ------------------------------------------------------------------------------------------

func (s *Stream) finish(last Action) {
	s.over = true
	if _, ended := last.(Finish); ended {
		s.kind.finishing()
	}
	if s.connected {
		s.out = append(s.out, Close{s.connection})
		s.connected = false
	}
	s.out = append(s.out, last)
}

func (s *Stream) take() []Action {
	out := s.out
	s.out = nil
	return out
}

// watching is a stream that is not about one turn.
type watching struct{ *Stream }

func (w watching) payload(event *pb.Event, _ time.Time) { w.show(event) }
func (w watching) ended(time.Time)                      { w.finish(Finish{}) }
func (w watching) broke(*Problem, time.Time) bool       { return false }
func (w watching) lost(problem *Problem, _ time.Time)   { w.finish(Fail{Problem: problem}) }
func (w watching) mayWait() bool                        { return true }
func (w watching) onTime(time.Time)                     {}
func (w watching) due() time.Time                       { return time.Time{} }
func (w watching) finishing()                           {}

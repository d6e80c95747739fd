package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

var gone = &Problem{Code: codes.Unavailable, Message: "gone"}

// machine is a turn, with what it asked for and a clock to turn.
type machine struct {
	*testing.T
	turn  *Turn
	now   time.Time
	asked []Action
	seq   int64
}

func start(t *testing.T, asks bool) *machine {
	request := &pb.ExecuteTurnRequest{SessionId: "s", RequestId: "r"}
	options := TurnOptions{
		Options: Options{ReconnectFor: time.Minute, Jitter: 0.5},
		Tools:   map[string]time.Duration{"work": 5 * time.Second},
		Asks:    asks,
	}
	m := &machine{T: t, turn: NewTurn(request, options), now: time.Unix(100, 0)}
	m.take(m.turn.Start(m.now))
	return m
}

func (m *machine) take(actions []Action) []Action {
	m.asked = append(m.asked, actions...)
	return actions
}

// of are the actions of one kind.
func of[Kind Action](m *machine) []Kind {
	var found []Kind
	for _, action := range m.asked {
		if action, ok := action.(Kind); ok {
			found = append(found, action)
		}
	}
	return found
}

func (m *machine) connection() int {
	opened := of[Open](m)
	return opened[len(opened)-1].Connection
}

// event reports a durable event of turn t; ephemeral one that is not stored.
func (m *machine) event(event *pb.Event) []Action {
	m.seq++
	event.Seq = m.seq
	return m.ephemeral(event)
}

func (m *machine) ephemeral(event *pb.Event) []Action {
	event.SessionId = "s"
	if event.TurnId == "" {
		event.TurnId = "t"
	}
	return m.take(m.turn.OnEvent(m.connection(), event, m.now))
}

func (m *machine) admitted(admission pb.Admission, turn string) {
	payload := &pb.Event_Admitted{Admitted: &pb.Admitted{Admission: admission}}
	m.ephemeral(&pb.Event{TurnId: turn, Payload: payload})
}

func begun(t *testing.T, asks bool) *machine {
	m := start(t, asks)
	m.admitted(pb.Admission_ADMISSION_STARTED, "t")
	return m
}

func (m *machine) lost(problem *Problem) {
	m.take(m.turn.OnEnd(m.connection(), problem, m.now))
	m.wait()
}

func (m *machine) wait() {
	if deadline := m.turn.Deadline(); !deadline.IsZero() {
		if deadline.After(m.now) {
			m.now = deadline
		}
		m.take(m.turn.OnTime(m.now))
	}
}

func pending(id string) *pb.PendingCall {
	call := &pb.ToolCall{CallId: id, ToolName: "work", ArgumentsJson: "{}"}
	return &pb.PendingCall{Call: call, Executor: pb.ToolExecutor_TOOL_EXECUTOR_HOST}
}

func (m *machine) requested(id, turn string, replay bool) {
	m.event(&pb.Event{TurnId: turn, Replay: replay, Payload: &pb.Event_ToolCallRequested{ToolCallRequested: pending(id)}})
}

func (m *machine) sync(turn string, ids ...string) {
	sync := &pb.Sync{}
	for _, id := range ids {
		sync.PendingCalls = append(sync.PendingCalls, pending(id))
	}
	m.ephemeral(&pb.Event{TurnId: turn, Payload: &pb.Event_Sync{Sync: sync}})
}

func step() *pb.Event {
	return &pb.Event{Payload: &pb.Event_StepStarted{StepStarted: &pb.StepStarted{}}}
}

func started(turn, request string) *pb.Event {
	return &pb.Event{TurnId: turn, Payload: &pb.Event_TurnStarted{TurnStarted: &pb.TurnStarted{RequestId: request}}}
}

func completed(turn string) *pb.Event {
	return &pb.Event{TurnId: turn, Payload: &pb.Event_TurnCompleted{TurnCompleted: &pb.TurnCompleted{}}}
}

func done(id string) *pb.ToolResult {
	return &pb.ToolResult{CallId: id, Outcome: pb.ToolOutcome_TOOL_OUTCOME_SUCCESS}
}

func (m *machine) ran() []string {
	var ids []string
	for _, each := range of[RunTool](m) {
		ids = append(ids, each.Pending.GetCall().GetCallId())
	}
	return ids
}

func (m *machine) equal(got, want any) {
	m.Helper()
	if got != want {
		m.Errorf("got %v, not %v", got, want)
	}
}

func TestALostStreamGoesOnAfterTheLastSeq(t *testing.T) {
	m := begun(t, false)
	m.event(step())
	m.lost(gone)
	opened := of[Open](m)
	m.equal(len(opened), 2)
	m.equal(opened[1].Execute.GetAfterSeq(), int64(1))
	m.equal(opened[1].Execute.GetRequestId(), "r")
	m.admitted(pb.Admission_ADMISSION_ATTACHED, "t")
	m.equal(len(of[Emit](m)), 2) // it is reported as admitted once
}

func TestAQueuedInputIsReportedAsAdmittedOnce(t *testing.T) {
	m := start(t, false)
	queued := func() {
		payload := &pb.Event_Admitted{Admitted: &pb.Admitted{Admission: pb.Admission_ADMISSION_QUEUED, QueuedMessageId: "q"}}
		m.take(m.turn.OnEvent(m.connection(), &pb.Event{SessionId: "s", Payload: payload}, m.now)) // without a turn
	}
	queued()
	m.lost(gone)
	queued()
	m.equal(len(of[Emit](m)), 1)
	m.equal(m.turn.Waits(), "q")
}

func TestAnEventThatWasSeenAndAStreamThatWasLeftDoNotCount(t *testing.T) {
	m := begun(t, false)
	m.event(step())
	m.seq = 0
	m.equal(len(m.event(step())), 0)
	m.lost(gone)
	late := step()
	late.Seq = 9
	m.equal(len(m.turn.OnEvent(1, late, m.now)), 0)
	m.equal(len(m.turn.OnEnd(1, gone, m.now)), 0)
}

func TestACallIsBegunLiveOrBySyncAndOnce(t *testing.T) {
	m := begun(t, false)
	m.requested("replayed", "t", true)
	m.equal(len(m.ran()), 0)
	m.requested("live", "t", false)
	m.sync("t", "live", "replayed")
	m.sync("t", "live", "replayed")
	if got := m.ran(); !slices.Equal(got, []string{"live", "replayed"}) {
		t.Errorf("%v were run", got)
	}
}

func TestAResultIsSentUntilItIsTaken(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	m.take(m.turn.OnToolResult(done("c"), m.now))
	sent := of[Submit](m)[0]
	m.take(m.turn.OnSubmitFailed(sent.Number, gone, m.now))
	m.wait()
	m.equal(len(of[Submit](m)), 2)
	m.equal(of[Submit](m)[1].Number, sent.Number)
	m.take(m.turn.OnSubmitted(sent.Number))
	// It was taken, and lost again with the database: the result is sent anew, the tool is not run.
	m.sync("t", "c")
	m.equal(len(of[Submit](m)), 3)
	m.equal(len(m.ran()), 1)
}

func TestAResultThatIsRefusedBecomesAnErrorForTheModel(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	m.take(m.turn.OnToolResult(done("c"), m.now))
	refusal := &Problem{Code: codes.InvalidArgument, Message: "no such media", Reason: "INVALID_REQUEST"}
	m.take(m.turn.OnSubmitFailed(of[Submit](m)[0].Number, refusal, m.now))
	second := of[Submit](m)[1]
	m.equal(second.Request.GetResults()[0].GetOutcome(), pb.ToolOutcome_TOOL_OUTCOME_ERROR)
	m.take(m.turn.OnSubmitFailed(second.Number, refusal, m.now))
	m.equal(of[Fail](m)[0].Problem, refusal)
}

func TestAToolIsGivenUpAtItsTimeAndItsLateResultDropped(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	m.equal(m.turn.Deadline(), m.now.Add(5*time.Second))
	m.wait()
	m.equal(of[DropTool](m)[0].CallID, "c")
	text := of[Submit](m)[0].Request.GetResults()[0].GetParts()[0].GetText()
	if !strings.Contains(text, "work did not finish within 5s") {
		t.Errorf("the model gets %q", text)
	}
	m.equal(len(m.turn.OnToolResult(done("c"), m.now)), 0)
}

func TestACallThatWasClosedIsStopped(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	asked := m.event(&pb.Event{Payload: &pb.Event_ToolCallCancelled{ToolCallCancelled: &pb.ToolCallCancelled{CallId: "c"}}})
	m.equal(asked[0], DropTool{"c"}) // before it is forgotten: what is forgotten cannot be stopped
	m.equal(asked[1], ForgetCall{"c"})
	m.equal(len(m.turn.OnToolResult(done("c"), m.now)), 0)
}

func TestTheResultOfAClosedCallIsForgottenAlsoWhereAnotherRunBeganIt(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	m.take(m.turn.OnToolResult(done("c"), m.now))
	m.equal(len(of[ForgetCall](m)), 0)
	for _, id := range []string{"c", "of an earlier run"} {
		m.event(&pb.Event{Payload: &pb.Event_ToolCallCompleted{ToolCallCompleted: &pb.ToolCallCompleted{Result: done(id)}}})
	}
	m.equal(slices.Equal(of[ForgetCall](m), []ForgetCall{{"c"}, {"of an earlier run"}}), true)
}

func attachedAfter(t *testing.T, seq int64) *machine {
	request := &pb.ExecuteTurnRequest{SessionId: "s", RequestId: "r", AfterSeq: seq}
	tools := map[string]time.Duration{"work": 5 * time.Second}
	m := &machine{T: t, turn: NewTurn(request, TurnOptions{Options: Options{ReconnectFor: time.Minute}, Tools: tools}), now: time.Unix(100, 0), seq: seq}
	m.take(m.turn.Start(m.now))
	m.admitted(pb.Admission_ADMISSION_ATTACHED, "t")
	m.equal(slices.Equal(of[Identify](m), []Identify{{"t"}}), true)
	return m
}

func TestARunThatAttachesPastTheStartOfItsTurnRunsItsCalls(t *testing.T) {
	m := attachedAfter(t, 7)
	m.take(m.turn.OnTurn(&pb.Turn{TurnId: "t", RequestId: "r"}))
	m.sync("t", "waits")
	m.equal(strings.Join(m.ran(), " "), "waits")
	m.equal(m.turn.TurnID(), "t")
}

func TestARunThatAttachesToTheTurnThatTookItsInputRunsNoCalls(t *testing.T) {
	m := attachedAfter(t, 7)
	m.take(m.turn.OnTurn(&pb.Turn{TurnId: "t", RequestId: "of another host"}))
	m.sync("t", "theirs")
	m.equal(len(m.ran()), 0)
}

func TestATurnThatCannotBeReadIsAskedForAgain(t *testing.T) {
	m := attachedAfter(t, 7)
	m.take(m.turn.OnNoTurn(gone, m.now))
	m.wait()
	m.equal(len(of[Open](m)), 2)
	m.admitted(pb.Admission_ADMISSION_ATTACHED, "t")
	m.equal(len(of[Identify](m)), 2)
}

func TestCallsOfAnotherTurnAreLeftToItsHost(t *testing.T) {
	m := start(t, false)
	m.admitted(pb.Admission_ADMISSION_QUEUED, "other")
	m.requested("theirs", "other", false)
	m.sync("other", "theirs")
	m.equal(len(m.ran()), 0)
	m.event(completed("other"))
	m.event(started("ours", "r"))
	m.requested("ours", "ours", false)
	m.equal(m.ran()[0], "ours")
}

func TestAnApprovalIsAskedForOnceAndSentUntilItIsTaken(t *testing.T) {
	m := begun(t, true)
	asked := &pb.PendingApproval{Call: pending("c").GetCall()}
	sync := func() {
		m.ephemeral(&pb.Event{Payload: &pb.Event_Sync{Sync: &pb.Sync{PendingApprovals: []*pb.PendingApproval{asked}}}})
	}
	m.event(&pb.Event{Payload: &pb.Event_ApprovalRequested{ApprovalRequested: asked}})
	sync()
	m.equal(len(of[AskApproval](m)), 1)
	m.take(m.turn.OnApproval(&pb.Approval{CallId: "c"}, m.now))
	m.take(m.turn.OnSubmitted(of[Submit](m)[0].Number))
	sync()
	m.equal(len(of[Submit](m)), 2)
	m.equal(len(of[AskApproval](m)), 1)
}

func TestAStreamThatFallsSilentIsGivenUp(t *testing.T) {
	m := begun(t, false)
	m.equal(m.turn.Deadline(), m.now.Add(Silence))
	m.wait()
	m.equal(len(of[Close](m)), 1)
	m.equal(len(m.turn.OnEnd(1, gone, m.now)), 0)
	m.wait()
	m.equal(len(of[Open](m)), 2)
}

func TestAStreamThatIsNotReadIsNotSilent(t *testing.T) {
	m := begun(t, false)
	m.now = m.now.Add(Silence)
	m.turn.Hold(m.now)
	m.equal(len(m.turn.OnTime(m.now)), 0)
	m.equal(m.turn.Deadline(), m.now.Add(Silence))
}

func TestARunThatWasLeftGoesOnWhereItWas(t *testing.T) {
	m := begun(t, false)
	m.event(step())
	m.take(m.turn.Leave())
	m.equal(len(of[Close](m)), 1)
	m.equal(m.turn.Deadline().IsZero(), true)
	m.take(m.turn.OnEnd(1, gone, m.now))
	m.take(m.turn.Start(m.now))
	opened := of[Open](m)
	m.equal(len(opened), 2)
	m.equal(opened[1].Execute.GetAfterSeq(), int64(1))
}

func TestWithoutAnyServerARunIsGivenUpAfterItsTime(t *testing.T) {
	m := start(t, false)
	began := m.now
	for range 500 {
		if m.lost(gone); len(of[Fail](m)) > 0 {
			break
		}
	}
	m.equal(of[Fail](m)[0].Problem, gone)
	if took := m.now.Sub(began); took < 50*time.Second || took > time.Minute {
		t.Errorf("it was given up after %s", took)
	}
}

func TestContactBeginsTheTimeAnew(t *testing.T) {
	m := start(t, false)
	for range 200 {
		m.lost(gone)
		m.ephemeral(&pb.Event{Payload: &pb.Event_Heartbeat{Heartbeat: &pb.Heartbeat{}}})
	}
	m.equal(len(of[Fail](m)), 0)
}

func TestTheServerSaysHowLongToWait(t *testing.T) {
	m := start(t, false)
	m.turn.OnEnd(1, &Problem{Code: codes.Unavailable, Reason: "OVERLOADED", RetryAfter: 7 * time.Second}, m.now)
	m.equal(m.turn.Deadline(), m.now.Add(7*time.Second))
}

func TestWhatWillNotPassIsReported(t *testing.T) {
	m := start(t, false)
	m.take(m.turn.OnEnd(1, &Problem{Code: codes.ResourceExhausted, Reason: "QUEUE_FULL"}, m.now))
	m.equal(of[Fail](m)[0].Problem.Reason, "QUEUE_FULL")
	m.equal(m.turn.Deadline().IsZero(), true)
}

func TestABrokenTransportIsTriedAgainAndBelievedInTheEnd(t *testing.T) {
	m := start(t, false)
	for range oddErrors {
		m.lost(&Problem{Code: codes.Internal, Message: "stream terminated by RST_STREAM"})
	}
	m.equal(len(of[Open](m)), oddErrors+1)
	m.lost(&Problem{Code: codes.Internal, Message: "stream terminated by RST_STREAM"})
	m.equal(len(of[Fail](m)), 1)
}

func TestEventsThatRetentionRemovedArePassedOver(t *testing.T) {
	m := begun(t, false)
	m.lost(&Problem{Code: codes.OutOfRange, Reason: "EVENTS_EXPIRED", Metadata: map[string]string{"oldest_seq": "41"}})
	m.equal(of[Open](m)[1].Execute.GetAfterSeq(), int64(40))
}

func TestAfterLostEventsTheTurnComesAgainWithoutItsMessagesTwice(t *testing.T) {
	m := begun(t, false)
	message := &pb.Message{
		MessageId: "m", Role: pb.Role_ROLE_ASSISTANT, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: "Hello."}}},
	}
	committed := func() *pb.Event {
		return &pb.Event{Payload: &pb.Event_MessageCommitted{MessageCommitted: &pb.MessageCommitted{Message: message}}}
	}
	m.event(committed())
	m.lost(&Problem{Code: codes.DataLoss, Reason: "EVENTS_LOST"})
	m.equal(of[Open](m)[1].Execute.GetAfterSeq(), int64(0))
	m.seq = 0
	before := len(of[Emit](m))
	m.event(committed())
	m.equal(len(of[Emit](m)), before)
}

func TestTheEndOfAnEarlierTurnIsNotTheEnd(t *testing.T) {
	m := start(t, false)
	m.admitted(pb.Admission_ADMISSION_QUEUED, "other")
	m.event(completed("other"))
	m.equal(len(of[Finish](m)), 0)
	m.event(started("t", "r"))
	m.event(completed("t"))
	m.take(m.turn.OnEnd(m.connection(), nil, m.now))
	m.equal(of[Finish](m)[0].Terminal.GetTurnId(), "t")
}

func TestAStreamThatEndsInOurTurnIsOpenedAgainAlthoughAnEarlierTurnEnded(t *testing.T) {
	m := start(t, false)
	m.admitted(pb.Admission_ADMISSION_QUEUED, "other")
	m.event(completed("other"))
	m.event(started("t", "r"))
	m.take(m.turn.OnEnd(m.connection(), nil, m.now))
	m.wait()
	m.equal(len(of[Finish](m)), 0)
	m.equal(len(of[Open](m)), 2)
}

func TestACallThatIsRequestedAgainAfterLostEventsIsNotRunAgain(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	m.lost(&Problem{Code: codes.DataLoss, Reason: "EVENTS_LOST"})
	m.seq = 0
	m.requested("c", "t", false)
	m.equal(len(m.ran()), 1)
}

func TestAStreamThatEndsBeforeItsTurnIsOpenedAgain(t *testing.T) {
	m := begun(t, false)
	m.take(m.turn.OnEnd(1, nil, m.now))
	m.wait()
	m.equal(len(of[Open](m)), 2)
}

func TestToolsGoOnWhereARunIsGivenUpAndStopWhereItsTurnEnds(t *testing.T) {
	m := begun(t, false)
	m.requested("c", "t", false)
	m.take(m.turn.OnEnd(1, &Problem{Code: codes.PermissionDenied, Reason: "PERMISSION_DENIED"}, m.now))
	m.equal(len(of[DropTool](m)), 0)

	m = begun(t, false)
	m.requested("c", "t", false)
	m.event(completed("t"))
	m.take(m.turn.OnEnd(1, nil, m.now))
	m.equal(of[DropTool](m)[0].CallID, "c")
}

func TestAQueuedInputThatIsWithdrawnFails(t *testing.T) {
	m := start(t, false)
	queued := &pb.Admitted{Admission: pb.Admission_ADMISSION_QUEUED, QueuedMessageId: "q"}
	m.ephemeral(&pb.Event{TurnId: "other", Payload: &pb.Event_Admitted{Admitted: queued}})
	withdrawn := &pb.QueuedMessageCancelled{QueuedMessageId: "q"}
	m.event(&pb.Event{TurnId: "other", Payload: &pb.Event_QueuedMessageCancelled{QueuedMessageCancelled: withdrawn}})
	m.take(m.turn.OnEnd(1, nil, m.now))
	m.equal(of[Fail](m)[0], Fail{QueuedMessageID: "q", Outcome: "CANCELLED"})
}

package contextd_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contextd/contextd/clients/go"
	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

type pathArguments struct {
	Path string `json:"path"`
}

func deleteFile() *contextd.Tool {
	tool := contextd.NewTool("delete_file", "Deletes a file.", func(_ context.Context, in pathArguments) (string, error) {
		return "deleted " + in.Path, nil
	})
	tool.NeedsApproval = true
	return tool
}

func runText(t *testing.T, session *contextd.Session, text string, options ...contextd.RunOption) string {
	t.Helper()
	return must[string](t)(session.RunText(t.Context(), text, options...))
}

// next runs until an event of a type comes, and leaves the run there.
func next[Kind contextd.Event](t *testing.T, run *contextd.Run) Kind {
	t.Helper()
	for event, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if found, ok := event.(Kind); ok {
			return found
		}
	}
	t.Fatal("the run ended before")
	panic("unreachable")
}

// all are the events of a type that are still to come.
func all[Kind contextd.Event](t *testing.T, run *contextd.Run) []Kind {
	t.Helper()
	var found []Kind
	for event, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if event, ok := event.(Kind); ok {
			found = append(found, event)
		}
	}
	return found
}

func TestRunTextGivesTheWordsOfTheAnswer(t *testing.T) {
	equal(t, runText(t, session(t, connect(t), "echo"), "hello"), "You said: hello")
}

func TestTextYieldsTheWordsAlone(t *testing.T) {
	var text strings.Builder
	for words, err := range session(t, connect(t), "echo").Run(t.Context(), "hello").Text() {
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(words)
	}
	equal(t, text.String(), "You said: hello")
}

func TestTheResultSaysWhatTheTurnUsed(t *testing.T) {
	result := must[*contextd.Result](t)(session(t, connect(t), "echo").Run(t.Context(), "hello").Result())
	equal(t, result.State+" "+result.Reason, "COMPLETED STOP")
	equal(t, result.Steps, 1)
	equal(t, result.Usage.Calls, 1)
	equal(t, result.Usage.TotalTokens, result.Usage.InputTokens+result.Usage.OutputTokens)
	equal(t, result.Usage.TotalTokens > 0, true)
}

func TestOpeningASessionAgainAppliesWhatIsGiven(t *testing.T) {
	client := connect(t)
	open := func(options ...contextd.SessionOption) string {
		session, err := client.Session(t.Context(), "opened-twice", options...)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := session.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return raw.GetSystemPrompt() + " " + raw.GetModel()
	}
	equal(t, open(contextd.Instructions("One."), contextd.Model("scripted/echo")), "One. scripted/echo")
	equal(t, open(), "One. scripted/echo")
	equal(t, open(contextd.Instructions("Two.")), "Two. scripted/echo")
}

func TestToolsOfOneStepRunInParallel(t *testing.T) {
	var together sync.WaitGroup
	together.Add(3)
	meet := contextd.NewTool("meet", "", func(ctx context.Context, in struct {
		Who string `json:"who"`
	}) (string, error) {
		together.Done()
		together.Wait()
		return in.Who, nil
	})
	equal(t, runText(t, session(t, connect(t), "parallel", meet), "go"), "All met.")
}

func TestAToolThatTakesTooLongIsCancelledAndTheModelGetsAnError(t *testing.T) {
	cancelled := make(chan struct{})
	sleep := contextd.NewTool("sleep", "", func(ctx context.Context, _ struct {
		Seconds float64 `json:"seconds"`
	}) (string, error) {
		<-ctx.Done()
		close(cancelled)
		return "slept", nil
	})
	sleep.Timeout = 200 * time.Millisecond
	answer := runText(t, session(t, connect(t), "sleep", sleep), "go")
	equal(t, answer, "Result: sleep did not finish within 200ms and was given up")
	within(t, cancelled)
}

func TestAnErrorOfAToolIsForTheModel(t *testing.T) {
	broken := tool("broken", func(context.Context) (string, error) { return "", errors.New("the disk is full") })
	run := session(t, connect(t), "fail-tool", broken).Run(t.Context(), "go")
	equal(t, next[contextd.ToolCallCompleted](t, run).Outcome, "ERROR")
	equal(t, must[*contextd.Result](t)(run.Result()).Text, "Result: the disk is full")
}

func TestAPanicOfAToolIsAnErrorForTheModel(t *testing.T) {
	broken := tool("broken", func(context.Context) (string, error) { panic("nil map") })
	equal(t, runText(t, session(t, connect(t), "fail-tool", broken), "go"), "Result: broken panicked: nil map")
}

func TestArgumentsThatTheSchemaRefusesAreForTheModel(t *testing.T) {
	add := contextd.NewTool("add", "", func(_ context.Context, in struct {
		A int `json:"a"`
	}) (int, error) {
		return in.A, nil
	})
	answer := runText(t, session(t, connect(t), "invalid", add), "go")
	if !strings.Contains(answer, "invalid arguments") {
		t.Errorf("the model gets %q", answer)
	}
}

func TestAToolMayKnowItsCall(t *testing.T) {
	var seen contextd.Call
	broken := tool("broken", func(ctx context.Context) (string, error) {
		seen = contextd.CallOf(ctx)
		return "fine", nil
	})
	session := session(t, connect(t), "fail-tool", broken)
	result := must[*contextd.Result](t)(session.Run(t.Context(), "go").Result())
	equal(t, seen.SessionID+seen.TurnID+seen.ToolName, session.ID()+result.TurnID+"broken")
	equal(t, seen.ID != "" && !seen.Deadline.IsZero(), true)
}

func TestAnApprovalByCallbackLetsTheCallRun(t *testing.T) {
	var asked []contextd.ApprovalRequest
	approve := contextd.OnApproval(func(_ context.Context, request contextd.ApprovalRequest) (contextd.Decision, error) {
		asked = append(asked, request)
		return contextd.Approve(), nil
	})
	equal(t, runText(t, session(t, connect(t), "delete", deleteFile()), "go", approve), "Result: deleted /tmp/x")
	equal(t, len(asked), 1)
	equal(t, asked[0].ToolName+string(asked[0].Arguments), `delete_file{"path":"/tmp/x"}`)
}

func decideBy(decision contextd.Decision, err error) contextd.RunOption {
	return contextd.OnApproval(func(context.Context, contextd.ApprovalRequest) (contextd.Decision, error) { return decision, err })
}

func TestADenialReachesTheModelWithItsReason(t *testing.T) {
	answer := runText(t, session(t, connect(t), "delete", deleteFile()), "go", decideBy(contextd.Deny("not today"), nil))
	equal(t, strings.Contains(answer, "not today"), true)
}

func TestAnApprovalMayChangeTheArguments(t *testing.T) {
	edited := contextd.Decision{Approved: true, Arguments: json.RawMessage(`{"path": "/tmp/y"}`)}
	answer := runText(t, session(t, connect(t), "delete", deleteFile()), "go", decideBy(edited, nil))
	equal(t, strings.Contains(answer, "deleted /tmp/y"), true)
}

func TestAnApprovalMayComeFromElsewhere(t *testing.T) {
	session := session(t, connect(t), "delete", deleteFile())
	run := session.Run(t.Context(), "go")
	asked := next[contextd.ApprovalRequested](t, run)
	if err := session.Approve(t.Context(), asked.CallID, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, must[*contextd.Result](t)(run.Result()).Text, "Result: deleted /tmp/x")
}

func cancel(t *testing.T, session *contextd.Session) {
	t.Helper()
	if _, err := session.Cancel(t.Context(), "", false, ""); err != nil {
		t.Fatal(err)
	}
}

func TestAMessageSentMeanwhileIsTakenByTheTurnThatRuns(t *testing.T) {
	session := session(t, connect(t), "queue")
	work := tool("work", func(ctx context.Context) (string, error) {
		_, err := session.Send(ctx, "and this")
		return "done", err
	})
	run := session.Run(t.Context(), "begin", work)
	equal(t, len(all[contextd.MessagesApplied](t, run)), 1)
	equal(t, must[*contextd.Result](t)(run.Result()).Text, "Then: and this")
}

func TestASecondRunLeavesTheCallsOfTheFirstOneToIt(t *testing.T) {
	one := session(t, connect(t), "queue")
	var ran atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	work := tool("work", func(context.Context) (string, error) {
		close(begun)
		<-goOn
		return "done", nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = one.Run(t.Context(), "begin", work).Result()
	}()
	within(t, begun)
	other, err := connect(t).Session(t.Context(), one.ID())
	if err != nil {
		t.Fatal(err)
	}
	second := other.Run(t.Context(), "more", tool("work", func(context.Context) (string, error) {
		ran.Add(1)
		return "done", nil
	}))
	equal(t, next[contextd.Admitted](t, second).Admission, "QUEUED")
	close(goOn)
	equal(t, must[*contextd.Result](t)(second.Result()).Text, "Then: more")
	within(t, ended)
	equal(t, ran.Load(), 0)
}

func TestAQueuedInputThatIsWithdrawnIsAnError(t *testing.T) {
	session := session(t, connect(t), "slow")
	running := session.Run(t.Context(), "go")
	next[contextd.TurnStarted](t, running)
	run := session.Run(t.Context(), "again")
	admitted := next[contextd.Admitted](t, run)
	if _, err := session.Withdraw(t.Context(), admitted.QueuedMessageID); err != nil {
		t.Fatal(err)
	}
	_, err := run.Result()
	var notTaken *contextd.InputNotTakenError
	if !errors.As(err, &notTaken) {
		t.Fatal(err)
	}
	equal(t, notTaken.Outcome, "CANCELLED")
	cancel(t, session)
	equal(t, must[*contextd.Result](t)(running.Result()).State, "CANCELLED")
}

func TestARunThatWasLeftIsResumedAndItsCallNotRunAgain(t *testing.T) {
	var ran atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	broken := tool("broken", func(context.Context) (string, error) {
		ran.Add(1)
		close(begun)
		<-goOn
		return "late", nil
	})
	session := session(t, connect(t), "fail-tool", broken)
	ctx, leave := context.WithCancel(t.Context())
	next[contextd.ToolCallRequested](t, session.Run(ctx, "go"))
	within(t, begun)
	leave()
	resumed := must[*contextd.Run](t)(session.Resume(t.Context()))
	close(goOn)
	equal(t, must[*contextd.Result](t)(resumed.Result()).Text, "Result: late")
	equal(t, ran.Load(), 1)
}

func TestALoopThatWasLeftGoesOnWhereItWas(t *testing.T) {
	session := session(t, connect(t), "long")
	run := session.Run(t.Context(), "go")
	var text strings.Builder
	var seqs []int64
	for rounds, left := 0, true; left; rounds++ {
		left = false
		for event, err := range run.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if delta, ok := event.(contextd.TextDelta); ok {
				text.WriteString(delta.Text)
			} else if event.Seq() > 0 {
				seqs = append(seqs, event.Seq())
			}
			if left = rounds < 20 && event.Type() == "text_delta"; left {
				break
			}
		}
	}
	equal(t, text.String(), strings.Repeat("word ", 1000))
	for i, seq := range seqs {
		equal(t, seq, seqs[0]+int64(i))
	}
	equal(t, run.Cursor(), seqs[len(seqs)-1])
	equal(t, run.Reconnects() >= 5, true)
}

func TestAnotherProcessResumesATurnAndRunsWhatWaits(t *testing.T) {
	broken := tool("broken", func(context.Context) (string, error) { return "from the second host", nil })
	one := session(t, connect(t), "fail-tool", broken)
	next[contextd.StepStarted](t, one.Run(t.Context(), "go")) // the first host is gone before it runs anything
	other, err := connect(t).Session(t.Context(), one.ID())
	if err != nil {
		t.Fatal(err)
	}
	resumed := must[*contextd.Run](t)(other.Resume(t.Context(), broken))
	var text strings.Builder
	for _, delta := range all[contextd.TextDelta](t, resumed) {
		text.WriteString(delta.Text)
	}
	equal(t, text.String(), "Result: from the second host")
	_, err = other.Resume(t.Context())
	equal(t, errors.Is(err, contextd.ErrNoTurn), true)
}

func TestAResumeAfterTheLastMessageStillHasItsText(t *testing.T) {
	session := session(t, connect(t), "slow")
	first := session.Run(t.Context(), "go")
	next[contextd.TextDelta](t, first)
	resumed := must[*contextd.Run](t)(session.Resume(t.Context(), contextd.AfterSeq(first.Cursor())))
	cancel(t, session)
	result := must[*contextd.Result](t)(first.Result())
	equal(t, strings.HasPrefix(result.Text, "word"), true)
	equal(t, must[*contextd.Result](t)(resumed.Result()).Text, result.Text)
	last, err := session.Turn(t.Context(), result.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	again := session.Run(t.Context(), "go", contextd.RequestID(last.GetRequestId()), contextd.AfterSeq(last.GetLastSeq()-1))
	equal(t, must[*contextd.Result](t)(again.Result()).Text, result.Text)
}

func TestAnotherProcessAttachesAfterASeqAndRunsWhatWaits(t *testing.T) {
	broken := tool("broken", func(context.Context) (string, error) { return "from the second host", nil })
	one := session(t, connect(t), "fail-tool", broken)
	first := one.Run(t.Context(), "go", contextd.RequestID("attached-after"))
	next[contextd.StepStarted](t, first) // the first host is gone before it runs anything
	other, err := connect(t).Session(t.Context(), one.ID(), broken)
	if err != nil {
		t.Fatal(err)
	}
	run := other.Run(t.Context(), "go", contextd.RequestID("attached-after"), contextd.AfterSeq(first.Cursor()))
	equal(t, must[*contextd.Result](t)(run.Result()).Text, "Result: from the second host")
	equal(t, run.TurnID(), first.TurnID())
}

func TestARepeatedRequestIDAttachesAndYieldsTheWholeTurn(t *testing.T) {
	session := session(t, connect(t), "echo")
	first := must[*contextd.Result](t)(session.Run(t.Context(), "hello", contextd.RequestID("req-1")).Result())
	again := must[*contextd.Result](t)(session.Run(t.Context(), "hello", contextd.RequestID("req-1")).Result())
	equal(t, again.TurnID+again.Text, first.TurnID+"You said: hello")
	turns := 0
	for _, err := range session.Turns(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		turns++
	}
	equal(t, turns, 1)
}

func TestATurnThatFailsHasItsReason(t *testing.T) {
	_, err := session(t, connect(t), "refused").Run(t.Context(), "go").Result()
	var failed *contextd.TurnFailedError
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	equal(t, failed.Failure.Reason+" "+failed.Result.State, "PROVIDER_BAD_REQUEST FAILED")
}

func TestAnAnswerThatIsMadeAgainYieldsNoWordTwice(t *testing.T) {
	var text strings.Builder
	retries := 0
	for event, err := range session(t, connect(t), "flaky").Run(t.Context(), "go").Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch event := event.(type) {
		case contextd.TextDelta:
			text.WriteString(event.Text)
		case contextd.TextReset:
			t.Error("a reset")
		case contextd.TurnRetrying:
			retries++
		}
	}
	equal(t, text.String(), "one two three four five")
	equal(t, retries, 1)
}

func TestCancelKeepsThePartialAnswer(t *testing.T) {
	session := session(t, connect(t), "slow")
	run := session.Run(t.Context(), "go")
	next[contextd.TextDelta](t, run)
	answer, err := session.Cancel(t.Context(), run.TurnID(), false, "enough")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, answer.GetTurn().GetTurnId(), run.TurnID())
	result := must[*contextd.Result](t)(run.Result())
	equal(t, result.State+" "+result.Reason, "CANCELLED REQUESTED")
	equal(t, strings.HasPrefix(result.Text, "word"), true)
}

func TestARunThatIsCancelledBeforeItWasAdmittedIsCancelledThen(t *testing.T) {
	run := session(t, connect(t), "slow").Run(t.Context(), "go")
	cancelled := make(chan error, 1)
	go func() { cancelled <- run.Cancel(t.Context(), "enough") }()
	equal(t, must[*contextd.Result](t)(run.Result()).State, "CANCELLED")
	equal(t, <-cancelled, nil)
}

func TestCancellingARunThatWaitsLeavesTheTurnThatRunsAlone(t *testing.T) {
	session := session(t, connect(t), "slow")
	running := session.Run(t.Context(), "go")
	next[contextd.TurnStarted](t, running)
	waiting := session.Run(t.Context(), "again")
	next[contextd.Admitted](t, waiting)
	equal(t, waiting.Cancel(t.Context(), ""), nil)
	_, err := waiting.Result()
	var notTaken *contextd.InputNotTakenError
	equal(t, errors.As(err, &notTaken), true)
	turn, err := session.Turn(t.Context(), running.TurnID())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, turn.GetState(), pb.TurnState_TURN_STATE_RUNNING)
	equal(t, running.Cancel(t.Context(), ""), nil)
	equal(t, must[*contextd.Result](t)(running.Result()).State, "CANCELLED")
}

func TestBusyRejectIsTurnInProgress(t *testing.T) {
	session := session(t, connect(t), "slow")
	next[contextd.TurnStarted](t, session.Run(t.Context(), "go"))
	_, err := session.Run(t.Context(), "again", contextd.WhenBusy(contextd.BusyReject)).Result()
	equal(t, errors.Is(err, contextd.TurnInProgress), true)
	var refused *contextd.Error
	equal(t, errors.As(err, &refused) && refused.Metadata["turn_id"] != "", true)
	cancel(t, session)
}

func TestACallWithoutAFunctionIsAnsweredByHand(t *testing.T) {
	client := connect(t)
	one := session(t, client, "fail-tool", tool("broken", nil))
	same, err := client.Session(t.Context(), one.ID()) // knows the definition alone
	if err != nil {
		t.Fatal(err)
	}
	run := same.Run(t.Context(), "go")
	requested := next[contextd.ToolCallRequested](t, run)
	equal(t, requested.Handled, false)
	if err := same.Submit(t.Context(), requested.CallID, object{"by": "hand"}, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, must[*contextd.Result](t)(run.Result()).Text, `Result: {"by":"hand"}`)
}

func TestWatchYieldsWhatOthersDo(t *testing.T) {
	session := session(t, connect(t), "echo")
	runText(t, session, "hello")
	var kinds []string
	for event, err := range session.Watch(t.Context(), contextd.AfterSeq(0), contextd.NoFollow()) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, event.Type())
	}
	equal(t, kinds[0]+" "+kinds[len(kinds)-1], "turn_started turn_completed")
}

func TestMediaGoesWithTheText(t *testing.T) {
	client := connect(t)
	session := session(t, client, "echo")
	image := contextd.Media{MediaType: "image/png", Data: []byte("\x89PNG not really")}
	runText(t, session, "Look:", contextd.Attach(image.Part()))
	for message, err := range session.Messages(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		equal(t, message.Text, "Look:")
		content := must[[]byte](t)(client.GetBlob(t.Context(), message.Raw.GetParts()[1].GetMedia().GetBlobId()))
		equal(t, string(content), string(image.Data))
		break
	}
}

func TestTheEndOfTheContextEndsTheRunAndNotTheTurn(t *testing.T) {
	session := session(t, connect(t), "slow")
	ctx, leave := context.WithCancel(t.Context())
	run := session.Run(ctx, "go")
	next[contextd.TurnStarted](t, run)
	leave()
	_, err := run.Result()
	equal(t, errors.Is(err, context.Canceled), true)
	must[*contextd.Run](t)(session.Resume(t.Context()))
	cancel(t, session)
}

func TestARunOfAClosedClientIsAnError(t *testing.T) {
	client := connect(t)
	run := session(t, client, "slow").Run(t.Context(), "go")
	next[contextd.TurnStarted](t, run)
	_ = client.Close()
	_, err := run.Result()
	equal(t, errors.Is(err, contextd.ErrClosed), true)
}

func TestASlowReaderGetsEverythingAndResultsAreSubmittedMeanwhile(t *testing.T) {
	submitted := make(chan struct{})
	work := tool("work", func(context.Context) (string, error) { return "done", nil })
	session := session(t, connect(t), "queue")
	go func() {
		defer close(submitted)
		for event := range session.Watch(t.Context(), contextd.AfterSeq(0)) {
			if event != nil && event.Type() == "tool_call_completed" {
				return
			}
		}
	}()
	for event, err := range session.Run(t.Context(), "begin", work).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type() == "tool_call_requested" {
			within(t, submitted) // the loop stands still here
		}
	}
}

func TestAskingForTheResultInsideOfTheLoopIsAnErrorAndNoDeadlock(t *testing.T) {
	run := session(t, connect(t), "echo").Run(t.Context(), "go")
	for _, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
		_, err = run.Result()
		equal(t, err != nil, true)
	}
	equal(t, must[*contextd.Result](t)(run.Result()).Text, "You said: go")
}

func TestTwoToolsOfOneNameAreRefused(t *testing.T) {
	same := tool("same", nil)
	_, err := connect(t).Session(t.Context(), "", same, same)
	equal(t, err != nil && strings.Contains(err.Error(), `two tools are called "same"`), true)
	_, err = session(t, connect(t), "echo").Run(t.Context(), "go", same, same).Result()
	equal(t, err != nil, true)
}

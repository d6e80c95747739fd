package contextd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contextd/contextd/clients/go"
)

// logBuffer keeps what is logged, from any goroutine.
type logBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *logBuffer) Write(data []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(data)
}

func (l *logBuffer) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func TestOnlyAnExplicitYesRunsTheCall(t *testing.T) {
	t.Parallel()
	type answer = func() (contextd.Decision, error)
	failed := errors.New("the password is 1234")
	for name, each := range map[string]struct {
		answer answer
		runs   bool
	}{
		"Approve()": {func() (contextd.Decision, error) { return contextd.Approve(), nil }, true},
		"Approved with arguments": {func() (contextd.Decision, error) {
			return contextd.Decision{Approved: true, Arguments: json.RawMessage(`{}`)}, nil
		}, true},
		"the zero value":          {func() (contextd.Decision, error) { return contextd.Decision{}, nil }, false},
		"Deny":                    {func() (contextd.Decision, error) { return contextd.Deny("no"), nil }, false},
		"Approve() with an error": {func() (contextd.Decision, error) { return contextd.Approve(), failed }, false},
		"a panic":                 {func() (contextd.Decision, error) { panic(failed) }, false},
		"arguments that are not JSON": {func() (contextd.Decision, error) {
			return contextd.Decision{Approved: true, Arguments: json.RawMessage(`{`)}, nil
		}, false},
		"arguments that are a text": {func() (contextd.Decision, error) {
			return contextd.Decision{Approved: true, Arguments: json.RawMessage(`"no"`)}, nil
		}, false},
		"arguments that are null": {func() (contextd.Decision, error) {
			return contextd.Decision{Approved: true, Arguments: json.RawMessage(`null`)}, nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran atomic.Bool
			remove := tool("delete_file", func(context.Context) (string, error) {
				ran.Store(true)
				return "deleted", nil
			})
			remove.NeedsApproval = true
			log := &logBuffer{}
			client := connect(t, contextd.Logger(slog.New(slog.NewTextHandler(log, nil))))
			approve := contextd.OnApproval(func(context.Context, contextd.ApprovalRequest) (contextd.Decision, error) { return each.answer() })
			text := runText(t, session(t, client, "remove", remove), "go", approve)
			equal(t, ran.Load(), each.runs)
			equal(t, strings.Contains(text, "1234"), false)
			explicit := each.runs || name == "Deny" || name == "the zero value"
			equal(t, strings.Contains(log.String(), "call denied: the approval callback failed"), !explicit)
			equal(t, strings.Contains(text, "its approval callback failed"), !explicit)
		})
	}
}

func TestAPanicOfAToolIsLoggedWithItsStack(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	client := connect(t, contextd.Logger(slog.New(slog.NewTextHandler(log, nil))))
	broken := tool("broken", func(context.Context) (string, error) { panic("no such luck") })
	runText(t, session(t, client, "fail-tool", broken), "go")
	for _, part := range []string{"tool panicked", "no such luck", "approval_test.go"} {
		equal(t, strings.Contains(log.String(), part), true)
	}
}

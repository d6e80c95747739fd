package contextd_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/contextd/contextd/clients/go"
	"github.com/contextd/contextd/clients/go/internal/testserver"
)

type object = map[string]any

func say(pieces ...any) object { return object{"say": pieces} }

func text(text string) object { return object{"text": text} }

func callOf(name string, arguments object) object {
	return object{"tool_call": object{"name": name, "arguments": arguments}}
}

func first(what object, step object) object {
	step["when"] = what
	return step
}

// oneTool is a model that calls a tool and repeats its result.
func oneTool(name string, arguments object) object {
	return object{"steps": []any{
		first(object{"call": 0}, say(callOf(name, arguments))),
		say(text("Result: {{result:" + name + "}}")),
	}}
}

// scripts are the models of the shared server.
var scripts = map[string]any{
	"steps":     faultScript,
	"delete":    oneTool("delete_file", object{"path": "/tmp/x"}),
	"remove":    oneTool("delete_file", object{}),
	"sleep":     oneTool("sleep", object{"seconds": 30}),
	"fail-tool": oneTool("broken", object{}),
	"invalid":   oneTool("add", object{"a": "two"}),
	"parallel": object{"steps": []any{
		first(object{"call": 0}, say(callOf("meet", object{"who": "a"}), callOf("meet", object{"who": "b"}), callOf("meet", object{"who": "c"}))),
		say(text("All met.")),
	}},
	"echo": object{"steps": []any{say(text("You said: {{user}}"))}},
	"slow": object{"steps": []any{say(object{"repeat": object{"text": "word ", "times": 100}, "delay_ms": 100})}},
	"long": object{"steps": []any{say(object{"repeat": object{"text": "word ", "times": 1000}, "delay_ms": 1})}},
	"queue": object{"steps": []any{
		first(object{"call": 0, "user_contains": "begin"}, say(callOf("work", object{}))),
		say(text("Then: {{user}}")),
	}},
	"refused": object{"steps": []any{say(object{"error": object{"kind": "bad_request", "message": "no such thing"}})}},
	"flaky": object{"steps": []any{say(
		text("one two three "),
		object{"error": object{"kind": "overloaded", "message": "busy", "times": 1}},
		text("four five"),
	)}},
	"small": object{"context_window": 3000, "max_output": 500, "steps": []any{
		first(object{"system_contains": "summar"}, say(text("A short summary."))),
		say(text("Noted. "), object{"repeat": object{"text": "blah ", "times": 40}}),
	}},
}

// shared is a server that nothing happens to, started by the first test that needs it.
var shared = sync.OnceValues(func() (*testserver.Server, error) {
	server, err := testserver.New(scripts, nil)
	if err != nil {
		return nil, err
	}
	return server, server.Start()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if server, _ := shared(); server != nil {
		if err := server.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// connect is a client of the shared server.
func connect(t *testing.T, options ...contextd.Option) *contextd.Client {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return connectTo(t, server.URL(), options...)
}

func connectTo(t *testing.T, url string, options ...contextd.Option) *contextd.Client {
	t.Helper()
	client, err := contextd.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// session is a new session with a model of the scripts.
func session(t *testing.T, client *contextd.Client, model string, options ...contextd.SessionOption) *contextd.Session {
	t.Helper()
	made, err := client.Session(t.Context(), "", append(options, contextd.Model("scripted/"+model))...)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, not %v", got, want)
	}
}

// within waits for something that another goroutine does.
func within(t *testing.T, done <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("it does not happen")
	}
}

// tool is a tool without arguments that gives a text.
func tool(name string, run func(context.Context) (string, error)) *contextd.Tool {
	return contextd.NewTool(name, "", func(ctx context.Context, _ struct{}) (string, error) { return run(ctx) })
}

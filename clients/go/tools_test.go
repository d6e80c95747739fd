package contextd

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

type booking struct {
	Hotel  string `json:"hotel" jsonschema:"its name"`
	Room   string `json:"room" enum:"single,double"`
	Nights int    `json:"nights,omitempty"`
	Guests []struct {
		Kind string `json:"kind" enum:"adult,child"`
	} `json:"guests,omitempty"`
}

func book(_ context.Context, in booking) (booking, error) { return in, nil }

func TestTheSchemaComesFromTheStruct(t *testing.T) {
	const want = `{"type":"object","properties":{` +
		`"hotel":{"type":"string","description":"its name"},` +
		`"room":{"type":"string","enum":["single","double"]},` +
		`"nights":{"type":"integer"},` +
		`"guests":{"type":["null","array"],"items":{"type":"object","properties":{"kind":{"type":"string","enum":["adult","child"]}},` +
		`"required":["kind"],"additionalProperties":false}}},` +
		`"required":["hotel","room"],"additionalProperties":false}`
	if got := string(NewTool("book", "", book).Schema); got != want {
		t.Errorf("the schema is %s", got)
	}
}

func TestArgumentsAreHeldToTheSchema(t *testing.T) {
	tool := NewTool("book", "", book)
	for arguments, part := range map[string]string{
		`{"hotel": "Ritz"}`:                               "room",
		`{"hotel": "Ritz", "room": "triple"}`:             "enum",
		`{"hotel": "Ritz", "room": "single", "extra": 1}`: "extra",
		`{"hotel": 7, "room": "single"}`:                  "string",
		`[]`:                                              "object",
		`{`:                                               "JSON",
	} {
		if _, err := tool.Call(t.Context(), json.RawMessage(arguments)); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	got, err := tool.Call(t.Context(), json.RawMessage(`{"hotel": "Ritz", "room": "single"}`))
	if err != nil || got.(booking).Hotel != "Ritz" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAToolWhoseArgumentsHaveNoSchemaPanics(t *testing.T) {
	for name, make := range map[string]func(){
		"a channel": func() {
			NewTool("x", "", func(context.Context, struct{ C chan int }) (int, error) { return 0, nil })
		},
		"no object": func() { NewTool("x", "", func(context.Context, string) (int, error) { return 0, nil }) },
		"an enum of numbers": func() {
			NewTool("x", "", func(context.Context, struct {
				N int `enum:"1,2"`
			}) (int, error) {
				return 0, nil
			})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", name)
				}
			}()
			make()
		}()
	}
}

func TestContextdWaitsLongerThanTheToolAndThanAPerson(t *testing.T) {
	for _, each := range []struct {
		timeout  time.Duration
		approval bool
		want     time.Duration
	}{
		{0, false, 0},
		{10 * time.Second, false, 70 * time.Second},
		{24 * time.Hour, false, 24 * time.Hour},
		{10 * time.Second, true, 0}, // the usual ten minutes
		{time.Hour, true, time.Hour + time.Minute},
	} {
		tool := &Tool{Timeout: each.timeout, NeedsApproval: each.approval}
		if got := tool.definition().GetTimeout().AsDuration(); got != each.want {
			t.Errorf("%+v: %s", each, got)
		}
	}
}

func TestWhatAToolReturnsBecomesParts(t *testing.T) {
	for name, each := range map[string]struct {
		output any
		err    error
		want   string
	}{
		"nothing":       {nil, nil, ""},
		"text":          {"fine", nil, "fine"},
		"JSON":          {map[string]int{"a": 1}, nil, `{"a":1}`},
		"an error":      {nil, errors.New("no"), "no"},
		"not JSON":      {func() {}, nil, "what the tool returned cannot be written as JSON: json: unsupported type: func()"},
		"invalid UTF-8": {"a\xff", nil, "a\uFFFD"},
		"an output":     {Output{Parts: []*pb.Part{Text("a"), Text("b")}}, nil, "a\nb"},
	} {
		made := result("c", each.output, each.err)
		if got := resultText(made.GetParts()); got != each.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := result("c", Media{MediaType: "image/png", Data: []byte("x")}, nil); got.GetParts()[0].GetMedia() == nil {
		t.Error("media is lost")
	}
	if got := result("c", Output{IsError: true}, nil); got.GetOutcome() != pb.ToolOutcome_TOOL_OUTCOME_ERROR {
		t.Error("an error is a success")
	}
}

func TestALongResultIsCut(t *testing.T) {
	made := result("c", strings.Repeat("é", maxResultBytes), nil)
	text := made.GetParts()[0].GetText()
	if len(text) > maxResultBytes+100 || !strings.HasSuffix(text, "[cut here: 4194304 bytes in all]") {
		t.Errorf("%d bytes are left, which end in %q", len(text), text[len(text)-40:])
	}
}

func TestTheOldestCallsAreForgottenOnceTheyEnded(t *testing.T) {
	host := newHost(t.Context(), 1, slog.Default())
	tool := NewTool("x", "", func(context.Context, struct{}) (string, error) { return "", nil })
	var first *hostCall
	for number := range rememberedCalls + 5 {
		call := host.run(t.Context(), tool, Call{SessionID: "s", ID: string(rune(number))}, "{}")
		<-call.done
		if number == 0 {
			first = call
		}
	}
	if len(host.calls) != rememberedCalls || host.order.Len() != rememberedCalls {
		t.Errorf("%d calls are remembered", len(host.calls))
	}
	if host.run(t.Context(), tool, Call{SessionID: "s", ID: string(rune(0))}, "{}") == first {
		t.Error("the oldest call is remembered")
	}
}

func TestACallThatIsClosedLeavesOnlyItsKey(t *testing.T) {
	host := newHost(t.Context(), 1, slog.Default())
	ran := 0
	tool := NewTool("work", "", func(context.Context, struct{}) (string, error) {
		ran++
		return "done", nil
	})
	call := Call{SessionID: "s", ID: "c"}
	<-host.run(t.Context(), tool, call, "{}").done
	host.forget("s", "c")
	host.forget("s", "of another host")
	if kept := host.calls[callName{"s", "c"}]; kept != nil || len(host.calls) != 1 {
		t.Errorf("%v is kept, of %d", kept, len(host.calls))
	}
	again := host.run(t.Context(), tool, call, "{}")
	<-again.done
	if ran != 1 || again.result.GetOutcome() != pb.ToolOutcome_TOOL_OUTCOME_ERROR {
		t.Errorf("it ran %d times: %v", ran, again.result)
	}
}

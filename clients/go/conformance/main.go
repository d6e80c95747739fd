// A driver for `contextd conformance`: a host that runs one turn, and reports what its users see. docs/conformance.md
// has the protocol.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contextd/contextd/clients/go"
)

type line = map[string]any

var output struct {
	sync.Mutex
	*json.Encoder
}

// say writes a line at once.
func say(line line) {
	output.Lock()
	defer output.Unlock()
	_ = output.Encode(line)
}

// tool reports that its function starts, and runs it.
func tool[In any](name string, run func(context.Context, In) (string, error)) *contextd.Tool {
	return contextd.NewTool(name, "", func(ctx context.Context, in In) (string, error) {
		say(line{"tool": name, "call": contextd.CallOf(ctx).ID, "args": in})
		return run(ctx, in)
	})
}

type terms struct {
	A int `json:"a"`
	B int `json:"b"`
}

type wait struct {
	MS int `json:"ms"`
}

type size struct {
	Chars int `json:"chars"`
}

type victim struct {
	Name string `json:"name"`
}

func tools() []contextd.RunOption {
	add := tool("add", func(_ context.Context, in terms) (string, error) { return strconv.Itoa(in.A + in.B), nil })
	slow := tool("slow", func(ctx context.Context, in wait) (string, error) {
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	large := tool("large", func(_ context.Context, in size) (string, error) { return strings.Repeat("x", in.Chars), nil })
	remove := tool("delete", func(_ context.Context, in victim) (string, error) { return "deleted " + in.Name, nil })
	remove.NeedsApproval = true
	return []contextd.RunOption{contextd.Tools(add, slow, large, remove), contextd.OnApproval(decide)}
}

func decide(_ context.Context, request contextd.ApprovalRequest) (contextd.Decision, error) {
	var named victim
	if err := json.Unmarshal(request.Arguments, &named); err != nil {
		return contextd.Decision{}, err
	}
	if strings.HasPrefix(named.Name, "keep") {
		return contextd.Deny("it is to be kept"), nil
	}
	return contextd.Approve(), nil
}

func run(ctx context.Context) error {
	client, err := contextd.Connect("")
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := client.Session(ctx, os.Getenv("CONTEXTD_CONFORMANCE_SESSION"))
	if err != nil {
		return err
	}
	run := session.Run(ctx, os.Getenv("CONTEXTD_CONFORMANCE_INPUT"), tools()...)
	for event, err := range run.Events() {
		if err != nil {
			return err
		}
		switch event := event.(type) {
		case contextd.TextDelta:
			say(line{"text": event.Text})
		case contextd.TextReset:
			say(line{"reset": true})
		}
	}
	result, err := run.Result()
	if err != nil {
		return err
	}
	say(line{"end": line{"state": result.State, "reason": result.Reason, "text": result.Text, "turn": result.TurnID}})
	return nil
}

func main() {
	output.Encoder = json.NewEncoder(os.Stdout)
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		say(line{"error": err.Error()})
	}
}

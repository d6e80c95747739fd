package contextd

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

// Number of calls that are remembered. The oldest ended calls are forgotten first.
const rememberedCalls = 10_000

// host is shared by all runs of a client: the running tools, and the calls that were started. No call is started twice
// in this process, also not if a run is abandoned and its turn is resumed.
type host struct {
	ctx  context.Context // ends with the client
	room chan struct{}
	log  *slog.Logger

	mutex sync.Mutex
	calls map[callName]*hostCall // nil for those that are closed
	order *list.List             // of callName, the oldest first
}

type callName struct{ session, call string }

// hostCall is a call that runs or ran.
type hostCall struct {
	cancel context.CancelFunc
	done   chan struct{}
	result *pb.ToolResult // once done is closed
}

func newHost(ctx context.Context, maxParallel int, log *slog.Logger) *host {
	return &host{ctx: ctx, room: make(chan struct{}, maxParallel), log: log, calls: map[callName]*hostCall{}, order: list.New()}
}

// run starts a call, or returns the call that was started before. The tool gets the values of ctx, but is not cancelled
// with it: if a run is abandoned, its tools continue, and their results are kept for a run that resumes the turn.
func (h *host) run(ctx context.Context, tool *Tool, call Call, arguments string) *hostCall {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	name := callName{call.SessionID, call.ID}
	if found, known := h.calls[name]; found != nil {
		return found
	} else if known {
		return forgottenCall(call.ID)
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), callKey{}, call))
	stop := context.AfterFunc(h.ctx, cancel)
	begun := &hostCall{cancel: cancel, done: make(chan struct{})}
	h.calls[name] = begun
	h.order.PushBack(name)
	h.dropOldest()
	go func() {
		defer close(begun.done)
		defer cancel()
		defer stop()
		begun.result = h.carryOut(ctx, tool, call.ID, arguments)
	}()
	return begun
}

// forget releases the result of a closed call. That the call was started is remembered.
func (h *host) forget(session, call string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if name := (callName{session, call}); h.calls[name] != nil {
		h.calls[name] = nil
	}
}

// forgottenCall is the result for a closed call that the server requests again.
func forgottenCall(id string) *hostCall {
	done := make(chan struct{})
	close(done)
	result := core.Failure(id, "this call was answered before, and its result is not kept")
	return &hostCall{cancel: func() {}, done: done, result: result}
}

// dropOldest forgets the oldest calls altogether, as far as they have ended.
func (h *host) dropOldest() {
	for len(h.calls) > rememberedCalls {
		oldest := h.order.Front()
		name := oldest.Value.(callName)
		if call := h.calls[name]; call != nil && !call.hasEnded() {
			return
		}
		delete(h.calls, name)
		h.order.Remove(oldest)
	}
}

func (c *hostCall) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (h *host) carryOut(ctx context.Context, tool *Tool, callID, arguments string) (made *pb.ToolResult) {
	select {
	case h.room <- struct{}{}:
		defer func() { <-h.room }()
	case <-ctx.Done():
		return result(callID, nil, context.Cause(ctx))
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			h.log.Error("contextd: tool panicked", "tool", tool.Name, "call.id", callID, "panic", panicked, "stack", string(debug.Stack()))
			made = result(callID, nil, fmt.Errorf("%s panicked: %v", tool.Name, panicked))
		}
	}()
	if arguments == "" {
		arguments = "{}"
	}
	output, err := tool.Call(ctx, json.RawMessage(arguments))
	return result(callID, output, err)
}

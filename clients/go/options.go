package contextd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

// SessionOption is an option of Client.Session and Session.Update.
type SessionOption interface{ session(*sessionOptions) }

// RunOption is an option of Session.Run and Session.Resume.
type RunOption interface{ run(*runOptions) }

// SendOption is an option of Session.Send.
type SendOption interface{ send(*sendOptions) }

// WatchOption is an option of Session.Watch.
type WatchOption interface{ watch(*watchOptions) }

type sessionOptions struct {
	config *pb.Session
	tools  tools
	err    error
}

type runOptions struct {
	request    *pb.ExecuteTurnRequest
	attached   []*pb.Part
	metadata   map[string]string
	tools      tools
	onApproval func(context.Context, ApprovalRequest) (Decision, error)
	after      *int64
	err        error
}

type sendOptions struct {
	request  *pb.EnqueueMessageRequest
	attached []*pb.Part
	metadata map[string]string
}

type watchOptions struct {
	after  *int64
	follow bool
}

// option is one option for all that take it; what is nil does not.
type option struct {
	forSession func(*sessionOptions)
	forRun     func(*runOptions)
	forSend    func(*sendOptions)
	forWatch   func(*watchOptions)
}

type (
	forSession    struct{ option }
	forRun        struct{ option }
	forSend       struct{ option }
	forWatch      struct{ option }
	forSessionRun struct{ option }
	forRunSend    struct{ option }
	forRunWatch   struct{ option }
	forAll        struct{ option }
)

func (o forSession) session(to *sessionOptions)    { o.forSession(to) }
func (o forRun) run(to *runOptions)                { o.forRun(to) }
func (o forSend) send(to *sendOptions)             { o.forSend(to) }
func (o forWatch) watch(to *watchOptions)          { o.forWatch(to) }
func (o forSessionRun) session(to *sessionOptions) { o.forSession(to) }
func (o forSessionRun) run(to *runOptions)         { o.forRun(to) }
func (o forRunSend) run(to *runOptions)            { o.forRun(to) }
func (o forRunSend) send(to *sendOptions)          { o.forSend(to) }
func (o forRunWatch) run(to *runOptions)           { o.forRun(to) }
func (o forRunWatch) watch(to *watchOptions)       { o.forWatch(to) }
func (o forAll) session(to *sessionOptions)        { o.forSession(to) }
func (o forAll) run(to *runOptions)                { o.forRun(to) }
func (o forAll) send(to *sendOptions)              { o.forSend(to) }

// SessionRunOption is an option of sessions and of runs.
type SessionRunOption interface {
	SessionOption
	RunOption
}

// RunSendOption is an option of runs and of Send.
type RunSendOption interface {
	RunOption
	SendOption
}

// --- Sessions and runs --------------------------------------------------------------------------------

func (t *Tool) session(to *sessionOptions) { to.tools.add(t) }
func (t *Tool) run(to *runOptions)         { to.tools.add(t) }

// Tools sets the tools. In a run, they replace the session's. Without arguments, there are no tools.
func Tools(list ...*Tool) SessionRunOption {
	return forSessionRun{option{
		forSession: func(to *sessionOptions) { to.tools.add(list...) },
		forRun:     func(to *runOptions) { to.tools.add(list...) },
	}}
}

// Model sets the model, "PROVIDER/MODEL". Default: the server's; in a run, the session's.
func Model(model string) SessionRunOption {
	return forSessionRun{option{
		forSession: func(to *sessionOptions) { to.config.Model = model },
		forRun:     func(to *runOptions) { to.request.Model = model },
	}}
}

// Limits are the limits of a turn: TurnLimits in turn.proto. 0 means not set. It is an option of sessions and runs.
type Limits struct {
	MaxSteps, MaxOutputTokens             int
	MaxTotalTokens                        int64
	TurnTimeout, ToolTimeout, GracePeriod time.Duration
}

func (l Limits) session(to *sessionOptions) { to.config.Limits = l.proto() }
func (l Limits) run(to *runOptions)         { to.request.Limits = l.proto() }

func (l Limits) proto() *pb.TurnLimits {
	return &pb.TurnLimits{
		MaxSteps:        int32(l.MaxSteps),
		MaxOutputTokens: int32(l.MaxOutputTokens),
		MaxTotalTokens:  l.MaxTotalTokens,
		TurnTimeout:     duration(l.TurnTimeout),
		ToolTimeout:     duration(l.ToolTimeout),
		GracePeriod:     duration(l.GracePeriod),
	}
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Generation has the settings for the model's responses: Generation in generation.proto. nil or empty means not set. It
// is an option of sessions and runs.
type Generation struct {
	Temperature, TopP     *float64
	TopK, Seed            *int32
	StopSequences         []string
	ReasoningEffort       string // "none", "minimal", "low", "medium", "high", "xhigh" or "max"
	ReasoningBudgetTokens *int32
	ToolChoice            string // "auto", "none", "required", or the name of a tool
	ParallelToolCalls     *bool
	ResponseSchema        json.RawMessage // asks for JSON of this schema; {} for any object
	ProviderOptions       json.RawMessage // what has no field here, by kind of provider
}

func (g Generation) session(to *sessionOptions) {
	made, err := g.proto()
	to.config.Generation, to.err = made, first(to.err, err)
}

func (g Generation) run(to *runOptions) {
	made, err := g.proto()
	to.request.Generation, to.err = made, first(to.err, err)
}

func first(one, other error) error {
	if one != nil {
		return one
	}
	return other
}

func (g Generation) proto() (*pb.Generation, error) {
	made := &pb.Generation{
		Temperature:           g.Temperature,
		TopP:                  g.TopP,
		TopK:                  g.TopK,
		Seed:                  g.Seed,
		StopSequences:         g.StopSequences,
		ReasoningBudgetTokens: g.ReasoningBudgetTokens,
		ParallelToolCalls:     g.ParallelToolCalls,
		ProviderOptionsJson:   string(g.ProviderOptions),
	}
	if g.ReasoningEffort != "" {
		effort, ok := pb.ReasoningEffort_value["REASONING_EFFORT_"+strings.ToUpper(g.ReasoningEffort)]
		if !ok {
			return nil, fmt.Errorf("contextd: no reasoning effort is called %q", g.ReasoningEffort)
		}
		made.ReasoningEffort = pb.ReasoningEffort(effort)
	}
	if mode, ok := toolChoices[g.ToolChoice]; ok {
		made.ToolChoice = &pb.ToolChoice{Choice: &pb.ToolChoice_Mode{Mode: mode}}
	} else if g.ToolChoice != "" {
		made.ToolChoice = &pb.ToolChoice{Choice: &pb.ToolChoice_ToolName{ToolName: g.ToolChoice}}
	}
	if g.ResponseSchema != nil {
		made.ResponseFormat = &pb.ResponseFormat{}
		if text := strings.TrimSpace(string(g.ResponseSchema)); text != "{}" {
			made.ResponseFormat.JsonSchema = &pb.JsonSchema{Schema: &pb.JsonSchema_Json{Json: text}}
		}
	}
	return made, nil
}

var toolChoices = map[string]pb.ToolChoiceMode{
	"auto":     pb.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO,
	"none":     pb.ToolChoiceMode_TOOL_CHOICE_MODE_NONE,
	"required": pb.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED,
}

// Metadata are labels: of the session, or of the message.
func Metadata(labels map[string]string) interface {
	SessionOption
	RunOption
	SendOption
} {
	return forAll{option{
		forSession: func(to *sessionOptions) { to.config.Metadata = labels },
		forRun:     func(to *runOptions) { to.metadata = labels },
		forSend:    func(to *sendOptions) { to.metadata = labels },
	}}
}

// --- Sessions -----------------------------------------------------------------------------------------

func sessionOption(set func(*pb.Session)) SessionOption {
	return forSession{option{forSession: func(to *sessionOptions) { set(to.config) }}}
}

// Instructions sets the system prompt, at the beginning of every prompt.
func Instructions(text string) SessionOption {
	return sessionOption(func(config *pb.Session) { config.SystemPrompt = text })
}

// Pinned adds a text that follows the instructions and is not changed by compactions.
func Pinned(name, text string) SessionOption {
	return sessionOption(func(config *pb.Session) {
		config.PinnedBlocks = append(config.PinnedBlocks, &pb.PinnedBlock{Name: name, Text: text})
	})
}

// Policy selects the context policy, with changes for this session. overrides may be nil.
func Policy(name string, overrides *pb.Policy) SessionOption {
	return sessionOption(func(config *pb.Session) { config.Policy, config.PolicyOverrides = name, overrides })
}

// TTL sets the time without use after which the session is deleted.
func TTL(unused time.Duration) SessionOption {
	return sessionOption(func(config *pb.Session) { config.Ttl = durationpb.New(unused) })
}

func sessionOf(options []SessionOption) (*pb.Session, *tools, error) {
	made := &sessionOptions{config: &pb.Session{}}
	for _, each := range options {
		each.session(made)
	}
	made.config.Tools = made.tools.set()
	return made.config, &made.tools, first(made.err, made.tools.index())
}

// --- Runs ---------------------------------------------------------------------------------------------

func runOption(set func(*runOptions)) RunOption { return forRun{option{forRun: set}} }

// OnApproval decides about calls of tools with NeedsApproval. It is called once for each call, in a separate goroutine,
// and may block. Its error or panic denies the call and is logged. Without it, use Session.Approve and Session.Deny.
func OnApproval(decide func(context.Context, ApprovalRequest) (Decision, error)) RunOption {
	return runOption(func(to *runOptions) { to.onApproval = decide })
}

// Continue calls the model with the current transcript, without input: after a failed turn or an import.
func Continue() RunOption {
	return runOption(func(to *runOptions) { to.request.ContinueTranscript = true })
}

// Busy is what a run does if another turn is running.
type Busy = pb.BusyPolicy

// What a run does if another turn is running.
const (
	// BusyEnqueue queues the input: the running turn takes it at its next step, or it starts a separate turn.
	BusyEnqueue Busy = pb.BusyPolicy_BUSY_POLICY_ENQUEUE
	// BusyReject fails with TurnInProgress.
	BusyReject Busy = pb.BusyPolicy_BUSY_POLICY_REJECT
	// BusyInterrupt cancels the running turn, keeps its partial text, and starts.
	BusyInterrupt Busy = pb.BusyPolicy_BUSY_POLICY_INTERRUPT
)

// WhenBusy sets what to do if another turn is running. Default: BusyEnqueue.
func WhenBusy(busy Busy) RunOption {
	return runOption(func(to *runOptions) { to.request.BusyPolicy = busy })
}

// CancelAfterDisconnect cancels the turn if no client has read its events for this time.
func CancelAfterDisconnect(wait time.Duration) RunOption {
	return runOption(func(to *runOptions) { to.request.CancelAfterDisconnect = durationpb.New(wait) })
}

// RequestID sets the idempotency key. A repeated request, also from another process, has no second effect: a run attaches
// to the turn of the first one. Default: a new key.
func RequestID(id string) RunSendOption {
	return forRunSend{option{
		forRun:  func(to *runOptions) { to.request.RequestId = id },
		forSend: func(to *sendOptions) { to.request.RequestId = id },
	}}
}

// Attach adds media and other parts to the text.
func Attach(parts ...*pb.Part) RunSendOption {
	return forRunSend{option{
		forRun:  func(to *runOptions) { to.attached = append(to.attached, parts...) },
		forSend: func(to *sendOptions) { to.attached = append(to.attached, parts...) },
	}}
}

// AfterSeq continues after the last event that was handled (Event.Seq, Run.Cursor). 0: begin with the first event. In Run,
// use it with the RequestID of the run that handled the event, also in another process.
func AfterSeq(seq int64) interface {
	RunOption
	WatchOption
} {
	return forRunWatch{option{
		forRun:   func(to *runOptions) { to.after = &seq },
		forWatch: func(to *watchOptions) { to.after = &seq },
	}}
}

// runOf applies the options of a run. Without tools, the run has the session's.
func runOf(sessionTools *tools, options []RunOption) (*runOptions, error) {
	made := &runOptions{request: &pb.ExecuteTurnRequest{}}
	for _, each := range options {
		each.run(made)
	}
	made.request.Tools = made.tools.set()
	if made.tools.list == nil {
		made.tools.list = sessionTools.list
		made.request.Tools = sessionTools.set()
	}
	return made, first(made.err, made.tools.index())
}

// --- The queue and watches ----------------------------------------------------------------------------

func sendOption(set func(*pb.EnqueueMessageRequest)) SendOption {
	return forSend{option{forSend: func(to *sendOptions) { set(to.request) }}}
}

// WhenIdle delivers the message after the running turn has ended. By default, the turn takes it at its next step.
func WhenIdle() SendOption {
	return sendOption(func(request *pb.EnqueueMessageRequest) { request.Delivery = pb.Delivery_DELIVERY_WHEN_IDLE })
}

// Interrupt cancels the running turn, keeps its partial text, and starts a turn with the message.
func Interrupt() SendOption {
	return sendOption(func(request *pb.EnqueueMessageRequest) { request.Delivery = pb.Delivery_DELIVERY_INTERRUPT })
}

// StartTurn starts a turn with the session's tools if none is running. By default, the message waits for the next one.
func StartTurn() SendOption {
	return sendOption(func(request *pb.EnqueueMessageRequest) { request.OnIdle = pb.IdleAction_IDLE_ACTION_START_TURN })
}

// ExpireAfter sets the time after which the message expires if it was not taken.
func ExpireAfter(wait time.Duration) SendOption {
	return sendOption(func(request *pb.EnqueueMessageRequest) { request.Ttl = durationpb.New(wait) })
}

// NoFollow ends a watch after the stored events.
func NoFollow() WatchOption {
	return forWatch{option{forWatch: func(to *watchOptions) { to.follow = false }}}
}

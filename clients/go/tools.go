package contextd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

const (
	// Texts of one result; contextd keeps far less of it (120,000 characters by default) and refuses more than 3 MiB.
	maxResultBytes = 2 << 20
	// Additional time that contextd waits for a result, for lost connections, restarts and latency.
	timeoutMargin = time.Minute
	// The default time that contextd waits for a result (TurnLimits.tool_timeout).
	usualTimeout = 10 * time.Minute
	maxTimeout   = 24 * time.Hour
)

// Tool is a function that the model may call. NewTool creates one; its fields may be changed before it is used. It is an
// option of Session and Run.
type Tool struct {
	// Name is the name for the model: 1 to 64 characters of [A-Za-z0-9_-].
	Name string
	// Description tells the model what the tool does and when to use it.
	Description string
	// Schema is the JSON schema of the arguments.
	Schema json.RawMessage
	// Timeout is the time after which a call is cancelled: its context ends, and the model gets an error. 0: none.
	Timeout time.Duration
	// NeedsApproval requires a person's approval: see OnApproval.
	NeedsApproval bool
	// Strict requests that the provider enforces the schema of the arguments. nil: the provider's default.
	Strict *bool
	// Category is the category of the definition in the context statistics. Default: tools.
	Category pb.ContextCategory
	// Deferred tools are known to the host but not sent to the model.
	Deferred bool
	// MaxOutputChars is how much of the output the model gets to see. 0: by the session's policy.
	MaxOutputChars int

	function func(ctx context.Context, arguments json.RawMessage) (any, error)
}

// NewTool makes a tool of a function. In is a struct: its fields are the arguments, named by `json` tags, described by
// `jsonschema` tags, limited to the values of `enum` tags, and optional with omitempty or omitzero. What the function
// returns is text, anything that can be JSON, Media, or an Output. The model reads its error, and may try something
// else. CallOf(ctx) has the id of the call.
//
// It panics where In has no JSON schema.
func NewTool[In, Out any](name, description string, run func(context.Context, In) (Out, error)) *Tool {
	schema, err := schemaOf[In]()
	if err != nil {
		panic(fmt.Sprintf("contextd: tool %s: %v", name, err))
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("contextd: tool %s: %v", name, err))
	}
	text, err := json.Marshal(schema)
	if err != nil {
		panic(fmt.Sprintf("contextd: tool %s: %v", name, err))
	}
	return NewRawTool(name, description, text, func(ctx context.Context, arguments json.RawMessage) (any, error) {
		var in In
		if err := read(resolved, arguments, &in); err != nil {
			return nil, fmt.Errorf("invalid arguments: %w", err)
		}
		return run(ctx, in)
	})
}

// NewRawTool makes a tool of a JSON schema and a function that reads its arguments, a JSON object, by itself.
func NewRawTool(name, description string, schema json.RawMessage, run func(context.Context, json.RawMessage) (any, error)) *Tool {
	return &Tool{Name: name, Description: description, Schema: schema, function: run}
}

// Output is what a tool gives beyond text: several parts, media, or an error with parts.
type Output struct {
	Parts   []*pb.Part
	IsError bool
}

// Call is what a tool may know of its call.
type Call struct {
	SessionID, TurnID string
	// ID is a good idempotency key: a call that was begun by a process that died is run again by the next one.
	ID       string
	ToolName string
	// Deadline is when contextd gives the call up.
	Deadline time.Time
	// ArgumentsEdited reports that a person changed the arguments when approving.
	ArgumentsEdited bool
}

type callKey struct{}

// CallOf is the call that a tool is run for, by the context that it was given; the zero Call elsewhere.
func CallOf(ctx context.Context) Call {
	call, _ := ctx.Value(callKey{}).(Call)
	return call
}

// Call runs the tool by itself, as for a test.
func (t *Tool) Call(ctx context.Context, arguments json.RawMessage) (any, error) {
	return t.function(ctx, arguments)
}

// --- Schemas and arguments ----------------------------------------------------------------------------

func schemaOf[In any]() (*jsonschema.Schema, error) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, err
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf("the arguments are of type %s; a struct or a map is needed", reflect.TypeFor[In]())
	}
	return schema, addEnums(reflect.TypeFor[In](), schema)
}

// addEnums adds the values of `enum` tags.
func addEnums(of reflect.Type, schema *jsonschema.Schema) error {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Slice || of.Kind() == reflect.Array {
		if schema.Items == nil {
			return nil
		}
		return addEnums(of.Elem(), schema.Items)
	}
	if of.Kind() != reflect.Struct {
		return nil
	}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			name = field.Name
		}
		property := schema.Properties[name]
		if property == nil || field.Anonymous {
			continue
		}
		if values, ok := field.Tag.Lookup("enum"); ok {
			if property.Type != "string" {
				return fmt.Errorf("field %s has an enum tag and is no string", field.Name)
			}
			for value := range strings.SplitSeq(values, ",") {
				property.Enum = append(property.Enum, value)
			}
		}
		if err := addEnums(field.Type, property); err != nil {
			return err
		}
	}
	return nil
}

func read(schema *jsonschema.Resolved, arguments json.RawMessage, into any) error {
	var plain any
	if err := json.Unmarshal(arguments, &plain); err != nil {
		return err
	}
	if err := schema.Validate(plain); err != nil {
		return err
	}
	return json.Unmarshal(arguments, into)
}

// --- The definition -----------------------------------------------------------------------------------

func (t *Tool) definition() *pb.Tool {
	made := &pb.Tool{
		Name:             t.Name,
		Description:      t.Description,
		InputSchema:      &pb.JsonSchema{Schema: &pb.JsonSchema_Json{Json: string(t.Schema)}},
		RequiresApproval: t.NeedsApproval,
		Category:         t.Category,
		Deferred:         t.Deferred,
		Strict:           t.Strict,
	}
	if t.MaxOutputChars > 0 {
		made.OutputLimits = &pb.ToolOutputLimits{MaxOutputChars: int32(t.MaxOutputChars)}
	}
	if patience := t.serverTimeout(); patience > 0 {
		made.Timeout = durationpb.New(patience)
	}
	return made
}

// serverTimeout is how long contextd waits. This process gives the call up sooner; a person, whom the same time
// limits, is given the usual one.
func (t *Tool) serverTimeout() time.Duration {
	if t.Timeout <= 0 {
		return 0
	}
	patience := min(t.Timeout+timeoutMargin, maxTimeout)
	if t.NeedsApproval && patience < usualTimeout {
		return 0
	}
	return patience
}

// tools are tools by their names; nil where none were named.
type tools struct {
	list   []*Tool
	byName map[string]*Tool
}

func (t *tools) add(more ...*Tool) {
	t.list = append(t.list, more...)
	if t.list == nil {
		t.list = []*Tool{} // none, in place of those of the session
	}
}

// index makes them findable; two of one name are an error.
func (t *tools) index() error {
	t.byName = make(map[string]*Tool, len(t.list))
	for _, tool := range t.list {
		if t.byName[tool.Name] != nil {
			return fmt.Errorf("contextd: two tools are called %q", tool.Name)
		}
		t.byName[tool.Name] = tool
	}
	return nil
}

// set is the tools as contextd takes them; nil where none were named.
func (t *tools) set() *pb.ToolSet {
	if t.list == nil {
		return nil
	}
	set := &pb.ToolSet{}
	for _, tool := range t.list {
		set.HostTools = append(set.HostTools, tool.definition())
	}
	return set
}

// timeouts are the names and times that a turn has to know.
func (t *tools) timeouts() map[string]time.Duration {
	known := make(map[string]time.Duration, len(t.list))
	for _, tool := range t.list {
		known[tool.Name] = tool.Timeout
	}
	return known
}

// --- Results ------------------------------------------------------------------------------------------

// result is what a tool returned, for contextd.
func result(callID string, output any, err error) *pb.ToolResult {
	if err != nil {
		return cut(core.Failure(callID, err.Error()))
	}
	made := &pb.ToolResult{CallId: callID, Outcome: pb.ToolOutcome_TOOL_OUTCOME_SUCCESS}
	switch output := output.(type) {
	case nil:
	case string:
		if output != "" {
			made.Parts = []*pb.Part{Text(output)}
		}
	case Media:
		made.Parts = []*pb.Part{output.Part()}
	case *pb.Part:
		made.Parts = []*pb.Part{output}
	case []*pb.Part:
		made.Parts = output
	case Output:
		made.Parts = output.Parts
		if output.IsError {
			made.Outcome = pb.ToolOutcome_TOOL_OUTCOME_ERROR
		}
	default:
		text, err := json.Marshal(output)
		if err != nil {
			return core.Failure(callID, fmt.Sprintf("what the tool returned cannot be written as JSON: %v", err))
		}
		made.Parts = []*pb.Part{Text(string(text))}
	}
	return cut(made)
}

// cut leaves at most maxResultBytes of texts, which are valid UTF-8.
func cut(result *pb.ToolResult) *pb.ToolResult {
	room := maxResultBytes
	for i, part := range result.GetParts() {
		if _, ok := part.GetContent().(*pb.Part_Text); !ok {
			continue
		}
		text := strings.ToValidUTF8(part.GetText(), "\uFFFD")
		size := len(text)
		if size > room {
			end := room
			for end > 0 && !utf8.RuneStart(text[end]) {
				end--
			}
			text = fmt.Sprintf("%s\n[cut here: %d bytes in all]", text[:end], size)
		}
		room = max(0, room-size)
		result.Parts[i] = Text(text)
	}
	return result
}

// --- Approvals ----------------------------------------------------------------------------------------

// ApprovalRequest is a call that waits for a person.
type ApprovalRequest struct {
	Call
	// Arguments are those that the model wrote, a JSON object.
	Arguments json.RawMessage
}

// Decision is a person's decision about a call. The zero value denies it.
type Decision struct {
	Approved bool
	// Arguments, where they are set, replace those of the model.
	Arguments json.RawMessage
	// Reason of a denial is for the model.
	Reason string
}

// Approve lets a call run.
func Approve() Decision { return Decision{Approved: true} }

// Deny refuses a call. The model reads the reason.
func Deny(reason string) Decision { return Decision{Reason: reason} }

func (d Decision) approval(callID string) (*pb.Approval, error) {
	approval := &pb.Approval{CallId: callID, Reason: d.Reason, Decision: pb.ApprovalDecision_APPROVAL_DECISION_DENY}
	if d.Approved {
		approval.Decision = pb.ApprovalDecision_APPROVAL_DECISION_APPROVE
	}
	if d.Arguments != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(d.Arguments, &object); err != nil || object == nil {
			return nil, errors.New("contextd: the arguments of a decision are not a JSON object")
		}
		approval.EditedArgumentsJson = string(d.Arguments)
	}
	return approval, nil
}

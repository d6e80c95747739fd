package contextd_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contextd/contextd/clients/go"
	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

func TestEveryReasonHasAConstant(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, _ := strconv.Unquote(literal.Value)
			known[value] = true
		}
		return true
	})
	for number, name := range pb.ErrorReason_name {
		if reason := strings.TrimPrefix(name, "ERROR_REASON_"); number != 0 && !known[reason] {
			t.Errorf("%s has no constant", reason)
		}
	}
}

func TestFieldsThatAreWrongAreListed(t *testing.T) {
	_, err := connect(t).Session(t.Context(), "not valid", contextd.Limits{MaxSteps: 5000})
	var refused *contextd.Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	equal(t, refused.Code, codes.InvalidArgument)
	equal(t, status.Code(err), codes.InvalidArgument)
	equal(t, errors.Is(err, contextd.InvalidRequest), true)
	var fields []string
	for _, field := range refused.Fields {
		fields = append(fields, field.Field+" "+field.Reason)
	}
	equal(t, strings.Contains(strings.Join(fields, "|"), "session.limits.max_steps OUT_OF_RANGE"), true)
	equal(t, strings.Contains(err.Error(), "session.limits.max_steps"), true)
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	client := connect(t)
	_, err := session(t, client, "echo").Turn(t.Context(), "01a209ad-e498-7015-8757-37cccabbf574")
	var refused *contextd.Error
	equal(t, errors.Is(err, contextd.TurnNotFound) && errors.As(err, &refused) && refused.ResourceName != "", true)
	_, err = client.Session(t.Context(), "", contextd.Model("none/such"))
	equal(t, errors.Is(err, contextd.ModelNotFound), true)
	equal(t, errors.Is(err, contextd.TurnNotFound), false)
}

func TestAFullQueueSaysWhenToComeBack(t *testing.T) {
	one := int32(1)
	overrides := &pb.Policy{Queue: &pb.QueuePolicy{MaxPending: &one}}
	session := session(t, connect(t), "echo", contextd.Policy("", overrides))
	if _, err := session.Send(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	_, err := session.Send(t.Context(), "two")
	var refused *contextd.Error
	if !errors.As(err, &refused) || refused.Reason != contextd.QueueFull {
		t.Fatal(err)
	}
	equal(t, refused.Metadata["limit"], "1")
	equal(t, refused.RetryAfter > 0 && len(refused.Quotas) > 0, true)
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	client := connectTo(t, "http://127.0.0.1:1", contextd.Timeout(time.Second), contextd.ReconnectFor(500*time.Millisecond))
	_, err := client.Session(t.Context(), "")
	equal(t, status.Code(err), codes.Unavailable)
}

func TestARunIsGivenUpAfterItsTime(t *testing.T) {
	t.Parallel()
	server := startOwn(t)
	client := connectTo(t, server.URL(), contextd.ReconnectFor(500*time.Millisecond))
	session, err := client.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = session.Run(t.Context(), "hello").Result()
	equal(t, status.Code(err), codes.Unavailable)
}

func TestACallEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := connectTo(t, "http://127.0.0.1:1").Session(ctx, "")
	equal(t, errors.Is(err, context.DeadlineExceeded), true)
}

package mcp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/contextd/contextd/clients/go"
	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/testserver"
	"github.com/contextd/contextd/clients/go/mcp"
)

// asServer makes the test program an MCP server over stdio.
const asServer = "CONTEXTD_TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		if err := newServer().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type nothing struct{}

type terms struct {
	A int `json:"a"`
	B int `json:"b"`
}

func says(content ...sdk.Content) (*sdk.CallToolResult, any, error) {
	return &sdk.CallToolResult{Content: content}, nil, nil
}

func newServer() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "tests", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "add", Description: "Adds two numbers."},
		func(_ context.Context, _ *sdk.CallToolRequest, in terms) (*sdk.CallToolResult, struct {
			Sum int `json:"sum"`
		}, error) {
			return nil, struct {
				Sum int `json:"sum"`
			}{in.A + in.B}, nil
		})
	sdk.AddTool(server, &sdk.Tool{Name: "fail"}, func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
		return nil, nil, errors.New("on purpose")
	})
	sdk.AddTool(server, &sdk.Tool{Name: "picture"}, func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
		return says(&sdk.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG\r\n")})
	})
	sdk.AddTool(server, &sdk.Tool{Name: "long"}, func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
		return says(&sdk.TextContent{Text: strings.Repeat("word ", 100_000)})
	})
	sdk.AddTool(server, &sdk.Tool{Name: "die"}, func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
		os.Exit(7)
		return nil, nil, nil
	})
	return server
}

// stdio is a server over stdio: this program, again.
func stdio(t *testing.T, options ...mcp.Option) *mcp.Server {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, program, append(options, mcp.Env(asServer+"=1"))...)
}

func connect(t *testing.T, target string, options ...mcp.Option) *mcp.Server {
	t.Helper()
	server, err := mcp.Connect(t.Context(), target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func named(t *testing.T, server *mcp.Server, name string) *contextd.Tool {
	t.Helper()
	for _, tool := range server.Tools() {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil
}

func oneTool(name string, arguments map[string]any) any {
	call := map[string]any{"tool_call": map[string]any{"name": name, "arguments": arguments}}
	return map[string]any{"steps": []any{
		map[string]any{"when": map[string]any{"call": 0}, "say": []any{call}},
		map[string]any{"say": []any{map[string]any{"text": "Result: {{result:" + name + "}}"}}},
	}}
}

func TestTurnsCallToolsOfMCPServers(t *testing.T) {
	sum := map[string]any{"a": 2, "b": 3}
	server := testserver.Start(t, map[string]any{
		"add":      oneTool("add", sum),
		"prefixed": oneTool("it_add", sum),
		"fail":     oneTool("fail", nil),
		"long":     oneTool("long", nil),
	}, nil)
	client, err := contextd.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	run := func(t *testing.T, model string, tools contextd.SessionOption) (string, *contextd.Session) {
		t.Helper()
		session, err := client.Session(t.Context(), "", contextd.Model("scripted/"+model), tools)
		if err != nil {
			t.Fatal(err)
		}
		text, err := session.RunText(t.Context(), "go")
		if err != nil {
			t.Fatal(err)
		}
		return text, session
	}

	t.Run("over stdio", func(t *testing.T) {
		if text, _ := run(t, "add", stdio(t)); text != `Result: {"sum":5}` {
			t.Errorf("got %s", text)
		}
	})
	t.Run("over HTTP, with headers", func(t *testing.T) {
		var header string
		handler := sdk.NewStreamableHTTPHandler(func(request *http.Request) *sdk.Server {
			header = request.Header.Get("X-Test")
			return newServer()
		}, nil)
		web := httptest.NewServer(handler)
		defer web.Close()
		tools := connect(t, web.URL, mcp.Prefix("it_"), mcp.Header("X-Test", "1"))
		defer tools.Close()
		if text, _ := run(t, "prefixed", tools); text != `Result: {"sum":5}` || header != "1" {
			t.Errorf("got %s and header %q", text, header)
		}
	})
	t.Run("whose errors reach the model", func(t *testing.T) {
		if text, _ := run(t, "fail", stdio(t)); text != "Result: on purpose" {
			t.Errorf("got %s", text)
		}
	})
	t.Run("whose long results are cut by contextd", func(t *testing.T) {
		_, session := run(t, "long", stdio(t))
		var chars int32
		for message, err := range session.Messages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range message.ToolResults() {
				chars = result.GetTruncation().GetOriginalChars()
			}
		}
		if chars != 500_000 {
			t.Errorf("%d characters were cut", chars)
		}
	})
}

func TestToolsHaveTheDefinitionsOfTheServer(t *testing.T) {
	server := stdio(t, mcp.Only("add"), mcp.Each(func(tool *contextd.Tool) { tool.NeedsApproval = true }))
	if len(server.Tools()) != 1 {
		t.Fatalf("%d tools are offered", len(server.Tools()))
	}
	add := server.Tools()[0]
	if add.Description != "Adds two numbers." || !strings.Contains(string(add.Schema), `"required":["a","b"]`) ||
		add.Category != pb.ContextCategory_CONTEXT_CATEGORY_MCP_TOOLS || !add.NeedsApproval {
		t.Errorf("%+v", add)
	}
}

func TestPicturesBecomeMedia(t *testing.T) {
	got, err := named(t, stdio(t), "picture").Call(t.Context(), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	media := got.(contextd.Output).Parts[0].GetMedia()
	if media.GetMediaType() != "image/png" || string(media.GetData()) != "\x89PNG\r\n" {
		t.Errorf("%v", media)
	}
}

func TestAServerThatDiedIsStartedAgain(t *testing.T) {
	server := stdio(t)
	if _, err := named(t, server, "die").Call(t.Context(), []byte("{}")); err == nil {
		t.Fatal("it did not die")
	}
	got, err := named(t, server, "add").Call(t.Context(), []byte(`{"a": 2, "b": 3}`))
	if err != nil || got.(contextd.Output).Parts[0].GetText() != `{"sum":5}` {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAServerThatDoesNotStartIsAnError(t *testing.T) {
	for _, target := range []string{"no-such-program-at-all", "http://127.0.0.1:1/mcp", ""} {
		if _, err := mcp.Connect(t.Context(), target); err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

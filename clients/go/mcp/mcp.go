// Package mcp offers the tools of MCP servers as tools of a host.
//
//	fetch, err := mcp.Connect(ctx, "uvx mcp-server-fetch")
//	run := session.Run(ctx, "What is on example.com?", fetch)
//
// contextd treats their results like those of other tools: they are cut to the tool's limits and pruned when they are
// old.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/contextd/contextd/clients/go"
	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

const (
	connectTimeout = time.Minute
	// Content that contextd takes inline.
	maxMediaBytes = 3 << 20
	maxNameLength = 64
)

// Server is a connection to an MCP server, and an option of Session and Run that offers its tools. The connection is
// made anew with the next call when it was lost.
type Server struct {
	contextd.SessionRunOption
	settings settings
	tools    []*contextd.Tool

	mutex   sync.Mutex
	session *sdk.ClientSession
}

type settings struct {
	target  string
	command []string
	headers http.Header
	env     []string
	dir     string
	prefix  string
	only    []string
	each    func(*contextd.Tool)
}

// Option is an option of Connect.
type Option func(*settings)

// Header adds a header to the requests over HTTP, such as Authorization.
func Header(name, value string) Option {
	return func(s *settings) { s.headers.Add(name, value) }
}

// Env adds variables ("NAME=value") to those of the command.
func Env(variables ...string) Option {
	return func(s *settings) { s.env = append(s.env, variables...) }
}

// Dir is the folder that the command runs in.
func Dir(path string) Option { return func(s *settings) { s.dir = path } }

// Args are arguments of the command, where they have spaces.
func Args(arguments ...string) Option {
	return func(s *settings) { s.command = append(s.command, arguments...) }
}

// Prefix is put before the tools' names, where two servers use the same.
func Prefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// Only offers the tools of these names alone.
func Only(names ...string) Option { return func(s *settings) { s.only = names } }

// Each may change each tool before it is offered: its timeout, whether it needs approval, and so on.
func Each(change func(*contextd.Tool)) Option { return func(s *settings) { s.each = change } }

// Connect connects to an MCP server, and reads its tools: to its http:// or https:// address, for servers that speak
// streamable HTTP, or to the command that starts a server which speaks over stdio, with arguments separated by spaces.
func Connect(ctx context.Context, target string, options ...Option) (*Server, error) {
	server := &Server{settings: settings{target: target, headers: http.Header{}}}
	if !isAddress(target) {
		server.settings.command = strings.Fields(target)
	}
	for _, each := range options {
		each(&server.settings)
	}
	if !isAddress(target) && len(server.settings.command) == 0 {
		return nil, errors.New("mcp: neither an address nor a command is given")
	}
	if err := server.readTools(ctx); err != nil {
		_ = server.Close()
		return nil, fmt.Errorf("mcp: %s: %w", target, err)
	}
	server.SessionRunOption = contextd.Tools(server.tools...)
	return server, nil
}

func isAddress(target string) bool {
	return strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://")
}

// Tools are the tools that are offered.
func (s *Server) Tools() []*contextd.Tool { return slices.Clone(s.tools) }

// Close ends the connection, and the process of a server over stdio.
func (s *Server) Close() error {
	s.mutex.Lock()
	session := s.session
	s.session = nil
	s.mutex.Unlock()
	if session == nil {
		return nil
	}
	return session.Close()
}

// --- The connection -----------------------------------------------------------------------------------

// connected is the session, made anew where there is none.
func (s *Server) connected(ctx context.Context) (*sdk.ClientSession, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.session != nil {
		return s.session, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "contextd-go", Version: contextd.Version}, nil)
	session, err := client.Connect(ctx, s.transport(), nil)
	if err != nil {
		return nil, err
	}
	s.session = session
	go func() {
		_ = session.Wait()
		s.forget(session)
	}()
	return session, nil
}

// forget makes the next call connect anew.
func (s *Server) forget(session *sdk.ClientSession) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.session == session {
		s.session = nil
	}
}

func (s *Server) transport() sdk.Transport {
	if isAddress(s.settings.target) {
		client := &http.Client{Transport: withHeaders{s.settings.headers}}
		return &sdk.StreamableClientTransport{Endpoint: s.settings.target, HTTPClient: client, DisableStandaloneSSE: true}
	}
	command := exec.Command(s.settings.command[0], s.settings.command[1:]...)
	command.Env = append(os.Environ(), s.settings.env...)
	command.Dir = s.settings.dir
	command.Stderr = os.Stderr
	return &sdk.CommandTransport{Command: command}
}

type withHeaders struct{ headers http.Header }

// RoundTrip adds the headers.
func (w withHeaders) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, values := range w.headers {
		request.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(request)
}

// --- Tools --------------------------------------------------------------------------------------------

func (s *Server) readTools(ctx context.Context) error {
	session, err := s.connected(ctx)
	if err != nil {
		return err
	}
	for found, err := range session.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		if s.settings.only != nil && !slices.Contains(s.settings.only, found.Name) {
			continue
		}
		tool, err := s.tool(found)
		if err != nil {
			return fmt.Errorf("tool %s: %w", found.Name, err)
		}
		s.tools = append(s.tools, tool)
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

func (s *Server) tool(found *sdk.Tool) (*contextd.Tool, error) {
	schema, err := json.Marshal(found.InputSchema)
	if err != nil {
		return nil, err
	}
	name := notInNames.ReplaceAllString(s.settings.prefix+found.Name, "_")
	description := found.Description
	if description == "" {
		description = found.Title
	}
	tool := contextd.NewRawTool(name[:min(len(name), maxNameLength)], description, schema, s.caller(found.Name))
	tool.Category = pb.ContextCategory_CONTEXT_CATEGORY_MCP_TOOLS
	if s.settings.each != nil {
		s.settings.each(tool)
	}
	return tool, nil
}

// caller calls a tool of the server. Where it is not known whether the tool ran, the call is not made again: the model
// decides.
func (s *Server) caller(name string) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, arguments json.RawMessage) (any, error) {
		session, err := s.connected(ctx)
		if err != nil {
			return nil, err
		}
		result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: arguments})
		var answered *jsonrpc.Error
		if err != nil && !errors.As(err, &answered) && ctx.Err() == nil {
			s.forget(session)
			_ = session.Close()
		}
		if err != nil {
			return nil, err
		}
		return output(result)
	}
}

// output is a result of MCP as the output of a tool.
func output(result *sdk.CallToolResult) (contextd.Output, error) {
	made := contextd.Output{IsError: result.IsError}
	for _, content := range result.Content {
		made.Parts = append(made.Parts, partOf(content))
	}
	if len(made.Parts) == 0 && result.StructuredContent != nil {
		text, err := json.Marshal(result.StructuredContent)
		if err != nil {
			return made, err
		}
		made.Parts = []*pb.Part{contextd.Text(string(text))}
	}
	return made, nil
}

func partOf(content sdk.Content) *pb.Part {
	switch content := content.(type) {
	case *sdk.TextContent:
		return contextd.Text(content.Text)
	case *sdk.ImageContent:
		return media(content.Data, content.MIMEType)
	case *sdk.AudioContent:
		return media(content.Data, content.MIMEType)
	case *sdk.ResourceLink:
		return contextd.Text(content.Name + ": " + content.URI)
	case *sdk.EmbeddedResource:
		if content.Resource != nil && len(content.Resource.Blob) > 0 {
			return media(content.Resource.Blob, content.Resource.MIMEType)
		}
		if content.Resource != nil {
			return contextd.Text(content.Resource.Text)
		}
	}
	return contextd.Text(fmt.Sprintf("[content of type %T]", content))
}

func media(data []byte, mediaType string) *pb.Part {
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	if len(data) > maxMediaBytes {
		return contextd.Text(fmt.Sprintf("[%s of %d bytes left out: too large]", mediaType, len(data)))
	}
	return contextd.Media{MediaType: mediaType, Data: data}.Part()
}

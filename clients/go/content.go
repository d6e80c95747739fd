package contextd

import (
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"strings"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

// Media is an image, document, audio or video. One of Data, BlobID and URL is set.
type Media struct {
	// MediaType is the MIME type, e.g. "image/png".
	MediaType string
	// Data is the content, at most 3 MiB. Store larger content with Client.PutBlob.
	Data []byte
	// BlobID is the id of stored content.
	BlobID string
	// URL is fetched by the provider.
	URL string
	// Filename is the file name. May be empty.
	Filename string
}

// MediaFromFile reads a file of at most 3 MiB. The name determines the media type.
func MediaFromFile(path string) (Media, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Media{}, err
	}
	kind, _, _ := strings.Cut(mime.TypeByExtension(filepath.Ext(path)), ";")
	if kind == "" {
		kind = "application/octet-stream"
	}
	return Media{MediaType: kind, Data: data, Filename: filepath.Base(path)}, nil
}

// Part returns the media as a part of a message.
func (m Media) Part() *pb.Part {
	media := &pb.Media{MediaType: m.MediaType, Filename: m.Filename}
	switch {
	case m.BlobID != "":
		media.Source = &pb.Media_BlobId{BlobId: m.BlobID}
	case m.URL != "":
		media.Source = &pb.Media_Url{Url: m.URL}
	default:
		media.Source = &pb.Media_Data{Data: m.Data}
	}
	return &pb.Part{Content: &pb.Part_Media{Media: media}}
}

// String omits the content.
func (m Media) String() string { return fmt.Sprintf("%s of %d bytes", m.MediaType, len(m.Data)) }

// Text returns a text as a part of a message.
func Text(text string) *pb.Part { return &pb.Part{Content: &pb.Part_Text{Text: text}} }

// input is a user message.
func input(text string, attached []*pb.Part, metadata map[string]string) *pb.InputMessage {
	message := &pb.InputMessage{Metadata: metadata}
	if text != "" {
		message.Parts = append(message.Parts, Text(text))
	}
	message.Parts = append(message.Parts, attached...)
	return message
}

// Message is a message of the transcript.
type Message struct {
	ID string
	// Role is "SYSTEM", "USER", "ASSISTANT" or "TOOL".
	Role string
	// Text is the text for users.
	Text string
	// Raw is the whole message of the API.
	Raw *pb.Message
}

// ToolCalls returns the tool calls in the message.
func (m *Message) ToolCalls() []*pb.ToolCall {
	var calls []*pb.ToolCall
	for _, part := range m.Raw.GetParts() {
		if call := part.GetToolCall(); call != nil {
			calls = append(calls, call)
		}
	}
	return calls
}

// ToolResults returns the tool results in the message.
func (m *Message) ToolResults() []*pb.ToolResult {
	var results []*pb.ToolResult
	for _, part := range m.Raw.GetParts() {
		if result := part.GetToolResult(); result != nil {
			results = append(results, result)
		}
	}
	return results
}

func messageOf(raw *pb.Message) *Message {
	return &Message{raw.GetMessageId(), enumName(raw.GetRole(), "ROLE"), core.TextOf(raw.GetParts()), raw}
}

// resultText is the text of a tool's result.
func resultText(parts []*pb.Part) string {
	var texts []string
	for _, part := range parts {
		if text := part.GetText(); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

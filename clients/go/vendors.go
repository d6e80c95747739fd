package contextd

import (
	"encoding/json"
	"fmt"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

// Format is the shape of a prompt and of messages: that of a vendor's API.
type Format = pb.PromptFormat

// The formats.
const (
	OpenAI          Format = pb.PromptFormat_PROMPT_FORMAT_OPENAI_CHAT // Chat Completions
	OpenAIResponses Format = pb.PromptFormat_PROMPT_FORMAT_OPENAI_RESPONSES
	Anthropic       Format = pb.PromptFormat_PROMPT_FORMAT_ANTHROPIC
	Gemini          Format = pb.PromptFormat_PROMPT_FORMAT_GEMINI
	AISDK           Format = pb.PromptFormat_PROMPT_FORMAT_AI_SDK
	AISDK7          Format = pb.PromptFormat_PROMPT_FORMAT_AI_SDK_7
	Neutral         Format = pb.PromptFormat_PROMPT_FORMAT_NEUTRAL
)

// Prompt is the next prompt, made to fit.
type Prompt struct {
	Format Format
	Model  string
	// Request is the body of the vendor's request; empty for Neutral, whose messages are in Raw.
	Request json.RawMessage
	// Version of the context that it was made from; Record passes it on.
	Version int64
	Tokens  int
	// Report is what was done to make it fit.
	Report *pb.PrepareReport
	Raw    *pb.Prompt
}

func promptOf(format Format, answer *pb.PrepareContextResponse, body json.RawMessage, stream bool) (*Prompt, error) {
	raw := answer.GetPrompt()
	if !stream && len(body) > 0 {
		var request map[string]json.RawMessage
		if err := json.Unmarshal(body, &request); err != nil {
			return nil, fmt.Errorf("contextd: the prompt: %w", err)
		}
		delete(request, "stream")
		delete(request, "stream_options")
		var err error
		if body, err = json.Marshal(request); err != nil {
			return nil, fmt.Errorf("contextd: the prompt: %w", err)
		}
	}
	return &Prompt{format, raw.GetModel(), body, raw.GetContextVersion(), int(raw.GetTokens().GetTokens()), answer.GetReport(), raw}, nil
}

// answer is what a model said, in its vendor's shape, and what it used.
type answer struct {
	messages json.RawMessage
	usage    *pb.Usage
}

// jsonOf is a value of a vendor's SDK as JSON: as it came, where the SDK keeps that.
func jsonOf(value any) (json.RawMessage, error) {
	switch value := value.(type) {
	case json.RawMessage:
		return value, nil
	case []byte:
		return value, nil
	case string:
		return json.RawMessage(value), nil
	case interface{ RawJSON() string }: // openai-go, anthropic-sdk-go
		if text := value.RawJSON(); text != "" {
			return json.RawMessage(text), nil
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("contextd: %T cannot be written as JSON: %w", value, err)
	}
	return text, nil
}

// answerOf reads the response of a vendor's API.
func answerOf(format Format, response any) (*answer, error) {
	readers := map[Format]func(json.RawMessage) (*answer, error){
		OpenAI: openAIAnswer, OpenAIResponses: responsesAnswer, Anthropic: anthropicAnswer, Gemini: geminiAnswer,
	}
	read := readers[format]
	if read == nil {
		return nil, fmt.Errorf("contextd: no responses of format %s are known: append messages and record usage by themselves", format)
	}
	text, err := jsonOf(response)
	if err != nil {
		return nil, err
	}
	found, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("contextd: the response is not of format %s: %w", format, err)
	}
	return found, nil
}

func arrayOf(messages ...any) (json.RawMessage, error) { return json.Marshal(messages) }

// usageIn reads what a provider reports into its own struct; false when it reported nothing.
func usageIn(raw json.RawMessage, into any) (bool, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return false, nil
	}
	return true, json.Unmarshal(raw, into)
}

func openAIAnswer(response json.RawMessage) (*answer, error) {
	var found struct {
		Choices []struct{ Message map[string]any }
		Usage   json.RawMessage
	}
	if err := json.Unmarshal(response, &found); err != nil {
		return nil, err
	}
	if len(found.Choices) == 0 || found.Choices[0].Message == nil {
		return nil, fmt.Errorf("it has no choices[0].message")
	}
	message := found.Choices[0].Message
	for key, value := range message {
		if value == nil {
			delete(message, key)
		}
	}
	messages, err := arrayOf(message)
	if err != nil {
		return nil, err
	}
	var used struct {
		Prompt     int32 `json:"prompt_tokens"`
		Completion int32 `json:"completion_tokens"`
		In         struct {
			Cached  int32 `json:"cached_tokens"`
			Written int32 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		Out struct {
			Reasoning int32 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	reported, err := usageIn(found.Usage, &used)
	if err != nil || !reported {
		return &answer{messages, nil}, err
	}
	return &answer{messages, &pb.Usage{
		InputTokens: used.Prompt, OutputTokens: used.Completion, ReasoningTokens: used.Out.Reasoning,
		CacheReadTokens: used.In.Cached, CacheWriteTokens: used.In.Written, ProviderUsageJson: string(found.Usage),
	}}, nil
}

func responsesAnswer(response json.RawMessage) (*answer, error) {
	var found struct{ Output, Usage json.RawMessage }
	if err := json.Unmarshal(response, &found); err != nil {
		return nil, err
	}
	if len(found.Output) == 0 {
		return nil, fmt.Errorf("it has no output")
	}
	var used struct {
		Input  int32 `json:"input_tokens"`
		Output int32 `json:"output_tokens"`
		In     struct {
			Cached  int32 `json:"cached_tokens"`
			Written int32 `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		Out struct {
			Reasoning int32 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
	reported, err := usageIn(found.Usage, &used)
	if err != nil || !reported {
		return &answer{found.Output, nil}, err
	}
	return &answer{found.Output, &pb.Usage{
		InputTokens: used.Input, OutputTokens: used.Output, ReasoningTokens: used.Out.Reasoning,
		CacheReadTokens: used.In.Cached, CacheWriteTokens: used.In.Written, ProviderUsageJson: string(found.Usage),
	}}, nil
}

func anthropicAnswer(response json.RawMessage) (*answer, error) {
	var found struct{ Content, Usage json.RawMessage }
	if err := json.Unmarshal(response, &found); err != nil {
		return nil, err
	}
	if len(found.Content) == 0 {
		return nil, fmt.Errorf("it has no content")
	}
	messages, err := arrayOf(map[string]any{"role": "assistant", "content": found.Content})
	if err != nil {
		return nil, err
	}
	var used struct {
		Input   int32 `json:"input_tokens"`
		Output  int32 `json:"output_tokens"`
		Read    int32 `json:"cache_read_input_tokens"`
		Written int32 `json:"cache_creation_input_tokens"`
	}
	reported, err := usageIn(found.Usage, &used)
	if err != nil || !reported {
		return &answer{messages, nil}, err
	}
	return &answer{messages, &pb.Usage{
		InputTokens: used.Input + used.Read + used.Written, OutputTokens: used.Output,
		CacheReadTokens: used.Read, CacheWriteTokens: used.Written, ProviderUsageJson: string(found.Usage),
	}}, nil
}

func geminiAnswer(response json.RawMessage) (*answer, error) {
	var found struct {
		Candidates []struct{ Content json.RawMessage }
		Usage      json.RawMessage `json:"usageMetadata"`
	}
	if err := json.Unmarshal(response, &found); err != nil {
		return nil, err
	}
	if len(found.Candidates) == 0 || len(found.Candidates[0].Content) == 0 {
		return nil, fmt.Errorf("it has no candidates[0].content")
	}
	messages, err := arrayOf(found.Candidates[0].Content)
	if err != nil {
		return nil, err
	}
	var used struct {
		PromptTokenCount, CandidatesTokenCount, ThoughtsTokenCount, CachedContentTokenCount int32
	}
	reported, err := usageIn(found.Usage, &used)
	if err != nil || !reported {
		return &answer{messages, nil}, err
	}
	return &answer{messages, &pb.Usage{
		InputTokens: used.PromptTokenCount, OutputTokens: used.CandidatesTokenCount + used.ThoughtsTokenCount,
		ReasoningTokens: used.ThoughtsTokenCount, CacheReadTokens: used.CachedContentTokenCount,
		ProviderUsageJson: string(found.Usage),
	}}, nil
}

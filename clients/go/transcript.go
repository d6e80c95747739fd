package contextd

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

// A compaction may take as long as a model that writes a summary.
const compactTimeout = 15 * time.Minute

// MessagesOption is an option of Session.Messages.
type MessagesOption func(*pb.ListMessagesRequest)

// Live lists what the model sees: the summary and what follows it.
func Live() MessagesOption {
	return func(request *pb.ListMessagesRequest) { request.View = pb.MessageView_MESSAGE_VIEW_LIVE }
}

// NewestFirst lists from the end.
func NewestFirst() MessagesOption {
	return func(request *pb.ListMessagesRequest) { request.NewestFirst = true }
}

// AtSeq lists them as they were at a seq.
func AtSeq(seq int64) MessagesOption {
	return func(request *pb.ListMessagesRequest) { request.AtSeq = seq }
}

// Messages are the messages of the transcript, oldest first.
func (s *Session) Messages(ctx context.Context, options ...MessagesOption) iter.Seq2[*Message, error] {
	return pages(func(token string) ([]*Message, string, error) {
		request := &pb.ListMessagesRequest{SessionId: s.id, PageSize: pageSize, PageToken: token}
		for _, each := range options {
			each(request)
		}
		page, err := call(ctx, s.client.transport, s.client.transport.sessions.ListMessages, request)
		var messages []*Message
		for _, raw := range page.GetMessages() {
			messages = append(messages, messageOf(raw))
		}
		return messages, page.GetNextPageToken(), err
	})
}

// Append appends what users say, without running a turn.
func (s *Session) Append(ctx context.Context, texts ...string) (*pb.AppendMessagesResponse, error) {
	request := &pb.AppendMessagesRequest{}
	for _, text := range texts {
		request.Messages = append(request.Messages, input(text, nil, nil))
	}
	return s.AppendRequest(ctx, request)
}

// AppendAs appends messages in the shape of an API: a JSON array, or what encodes to one.
func (s *Session) AppendAs(ctx context.Context, format Format, messages any) (*pb.AppendMessagesResponse, error) {
	text, err := jsonOf(messages)
	if err != nil {
		return nil, err
	}
	return s.AppendRequest(ctx, &pb.AppendMessagesRequest{MessagesJson: string(text), MessagesFormat: format})
}

// AppendRequest appends whatever AppendMessages takes. The session and a request id are filled in.
func (s *Session) AppendRequest(ctx context.Context, request *pb.AppendMessagesRequest) (*pb.AppendMessagesResponse, error) {
	request.SessionId = s.id
	request.RequestId = or(request.GetRequestId(), requestID())
	return call(ctx, s.client.transport, s.client.transport.sessions.AppendMessages, request)
}

// --- The context --------------------------------------------------------------------------------------

// Stats is what fills the context window, and how long it will last.
func (s *Session) Stats(ctx context.Context) (*pb.ContextStats, error) {
	stats, err := s.stats(ctx, pb.StatsFormat_STATS_FORMAT_UNSPECIFIED)
	return stats.GetStats(), err
}

// StatsText is the same as a text of some 25 lines.
func (s *Session) StatsText(ctx context.Context) (string, error) {
	stats, err := s.stats(ctx, pb.StatsFormat_STATS_FORMAT_TEXT)
	return stats.GetText(), err
}

func (s *Session) stats(ctx context.Context, format pb.StatsFormat) (*pb.GetContextStatsResponse, error) {
	request := &pb.GetContextStatsRequest{SessionId: s.id, Format: format}
	return call(ctx, s.client.transport, s.client.transport.contexts.GetContextStats, request)
}

// CompactOption is an option of Session.Compact.
type CompactOption func(*pb.CompactRequest)

// Strategy chooses how to compact, if not as the policy says.
func Strategy(strategy pb.CompactionStrategy) CompactOption {
	return func(request *pb.CompactRequest) { request.Strategy = strategy }
}

// TargetTokens makes the prompt at most this large.
func TargetTokens(tokens int) CompactOption {
	return func(request *pb.CompactRequest) { request.TargetTokens = int32(tokens) }
}

// SummaryInstructions are added to those of the summary; the model may be empty.
func SummaryInstructions(text, model string) CompactOption {
	return func(request *pb.CompactRequest) { request.Instructions, request.SummaryModel = text, model }
}

// DryRun only reports what would be done.
func DryRun() CompactOption {
	return func(request *pb.CompactRequest) { request.ValidateOnly = true }
}

// Compact makes the context smaller now, and waits for it. Turns do so by themselves.
func (s *Session) Compact(ctx context.Context, options ...CompactOption) (*pb.Compaction, error) {
	request := &pb.CompactRequest{SessionId: s.id, RequestId: requestID(), Wait: true}
	for _, each := range options {
		each(request)
	}
	compacted, err := again(ctx, s.client.transport, compactTimeout, func(ctx context.Context) (*pb.CompactResponse, error) {
		return s.client.transport.contexts.Compact(ctx, request)
	})
	return compacted.GetCompaction(), err
}

// Compactions are the compactions, newest first.
func (s *Session) Compactions(ctx context.Context) iter.Seq2[*pb.Compaction, error] {
	return pages(func(token string) ([]*pb.Compaction, string, error) {
		request := &pb.ListCompactionsRequest{SessionId: s.id, PageSize: pageSize, PageToken: token}
		page, err := call(ctx, s.client.transport, s.client.transport.contexts.ListCompactions, request)
		return page.GetCompactions(), page.GetNextPageToken(), err
	})
}

// RevertCompaction takes the newest compaction back.
func (s *Session) RevertCompaction(ctx context.Context, id string) (*pb.Compaction, error) {
	request := &pb.RevertCompactionRequest{SessionId: s.id, CompactionId: id, RequestId: requestID()}
	reverted, err := call(ctx, s.client.transport, s.client.transport.contexts.RevertCompaction, request)
	return reverted.GetCompaction(), err
}

// CountTokens counts the next prompt, with a text added to it.
func (s *Session) CountTokens(ctx context.Context, text string) (int, error) {
	request := &pb.CountTokensRequest{SessionId: s.id}
	if text != "" {
		request.Messages = []*pb.InputMessage{input(text, nil, nil)}
	}
	counted, err := call(ctx, s.client.transport, s.client.transport.contexts.CountTokens, request)
	return int(counted.GetTotal().GetTokens()), err
}

// --- A loop of your own -------------------------------------------------------------------------------

// PrepareOption is an option of Session.Prepare.
type PrepareOption func(*prepareOptions)

type prepareOptions struct {
	request *pb.PrepareContextRequest
	stream  bool
}

// PrepareFor prepares for another model than the session's.
func PrepareFor(model string) PrepareOption {
	return func(to *prepareOptions) { to.request.Model = model }
}

// LeaveQueue leaves waiting messages in the queue. By default they are taken first.
func LeaveQueue() PrepareOption {
	return func(to *prepareOptions) { to.request.ApplyQueuedMessages = false }
}

// Streaming makes a request that asks for a stream.
func Streaming() PrepareOption { return func(to *prepareOptions) { to.stream = true } }

// Prepare gives the next prompt to a program that calls the model by itself, made to fit, in the shape of a vendor's
// API.
func (s *Session) Prepare(ctx context.Context, format Format, options ...PrepareOption) (*Prompt, error) {
	made := &prepareOptions{request: &pb.PrepareContextRequest{
		SessionId: s.id, RequestId: requestID(), Format: format, ApplyQueuedMessages: true,
	}}
	for _, each := range options {
		each(made)
	}
	answer, err := call(ctx, s.client.transport, s.client.transport.contexts.PrepareContext, made.request)
	if err != nil {
		return nil, err
	}
	body := json.RawMessage(answer.GetPrompt().GetRequestJson())
	if blob := answer.GetPrompt().GetRequestBlob().GetBlobId(); blob != "" {
		if body, err = s.client.GetBlob(ctx, blob); err != nil {
			return nil, err
		}
	}
	return promptOf(format, answer, body, made.stream)
}

// Record appends what the model answered to a prompt, and records what it used; it gives the ids of the messages. The
// answer is the response of the vendor's SDK, or its JSON.
func (s *Session) Record(ctx context.Context, prompt *Prompt, response any) ([]string, error) {
	answer, err := answerOf(prompt.Format, response)
	if err != nil {
		return nil, err
	}
	appended, err := s.AppendRequest(ctx, &pb.AppendMessagesRequest{
		MessagesJson:   string(answer.messages),
		MessagesFormat: prompt.Format,
		ContextVersion: prompt.Version,
		MessagesModel:  prompt.Model,
	})
	if err != nil || answer.usage == nil {
		return appended.GetMessageIds(), err
	}
	report := &pb.RecordUsageRequest{Model: prompt.Model, Usage: answer.usage, ContextVersion: prompt.Version}
	if ids := appended.GetMessageIds(); len(ids) > 0 {
		report.MessageId = ids[0]
	}
	_, err = s.RecordUsage(ctx, report)
	return appended.GetMessageIds(), err
}

// RecordUsage records what a call of the model used. The session and a request id are filled in.
func (s *Session) RecordUsage(ctx context.Context, request *pb.RecordUsageRequest) (*pb.RecordUsageResponse, error) {
	request.SessionId = s.id
	request.RequestId = or(request.GetRequestId(), requestID())
	return call(ctx, s.client.transport, s.client.transport.contexts.RecordUsage, request)
}

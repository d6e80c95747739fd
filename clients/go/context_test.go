package contextd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/contextd/contextd/clients/go"
	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

func collect[Item any](t *testing.T, items iter.Seq2[Item, error]) []Item {
	t.Helper()
	var found []Item
	for item, err := range items {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, item)
	}
	return found
}

func said(t *testing.T, session *contextd.Session, role string) string {
	t.Helper()
	var texts []string
	for _, message := range collect(t, session.Messages(t.Context())) {
		if role == "" || message.Role == role {
			texts = append(texts, message.Text)
		}
	}
	return strings.Join(texts, "|")
}

func used(t *testing.T, session *contextd.Session) int {
	t.Helper()
	return int(must[*pb.ContextStats](t)(session.Stats(t.Context())).GetUsed().GetTokens())
}

func TestASessionThatIsFullIsCompactedByItself(t *testing.T) {
	session := session(t, connect(t), "small")
	compactions := 0
	for number := range 25 {
		question := fmt.Sprintf("Question %d: %s", number, strings.Repeat("please remember this ", 15))
		compactions += len(all[contextd.CompactionCompleted](t, session.Run(t.Context(), question)))
	}
	equal(t, compactions > 0, true)
	equal(t, used(t, session) < 3000, true)
	live := collect(t, session.Messages(t.Context(), contextd.Live()))
	equal(t, len(collect(t, session.Messages(t.Context()))) > len(live), true)
	equal(t, collect(t, session.Compactions(t.Context()))[0].GetState(), pb.CompactionState_COMPACTION_STATE_APPLIED)
}

func TestCompactMakesTheContextSmallerNow(t *testing.T) {
	session := session(t, connect(t), "small")
	for number := range 4 {
		runText(t, session, fmt.Sprintf("Question %d", number))
	}
	before := used(t, session)
	truncation := contextd.Strategy(pb.CompactionStrategy_COMPACTION_STRATEGY_TRUNCATION)
	target := contextd.TargetTokens(before - 50)
	planned := must[*pb.Compaction](t)(session.Compact(t.Context(), truncation, target, contextd.DryRun()))
	equal(t, planned.GetState(), pb.CompactionState_COMPACTION_STATE_PLANNED)
	compaction := must[*pb.Compaction](t)(session.Compact(t.Context(), truncation, target))
	equal(t, compaction.GetState(), pb.CompactionState_COMPACTION_STATE_APPLIED)
	equal(t, used(t, session) < before, true)
	if _, err := session.RevertCompaction(t.Context(), compaction.GetCompactionId()); err != nil {
		t.Fatal(err)
	}
	equal(t, used(t, session) > before-10, true) // not measured any more
	equal(t, strings.Contains(must[string](t)(session.StatsText(t.Context())), "Context of scripted/small"), true)
}

func TestAForkGoesItsOwnWay(t *testing.T) {
	session := session(t, connect(t), "echo")
	runText(t, session, "one")
	fork := must[*contextd.Session](t)(session.Fork(t.Context(), "", 0))
	runText(t, fork, "two")
	equal(t, said(t, fork, "USER"), "one|two")
	equal(t, said(t, session, "USER"), "one")
}

func TestListsAreReadPageByPage(t *testing.T) {
	session := session(t, connect(t), "echo")
	var texts []string
	for number := range 250 {
		texts = append(texts, fmt.Sprintf("message %d", number))
	}
	if _, err := session.Append(t.Context(), texts...); err != nil {
		t.Fatal(err)
	}
	equal(t, said(t, session, ""), strings.Join(texts, "|"))
	for message, err := range session.Messages(t.Context(), contextd.NewestFirst()) {
		if err != nil {
			t.Fatal(err)
		}
		equal(t, message.Text, "message 249")
		break
	}
}

func TestTheQueueCanBeReadAndCleared(t *testing.T) {
	session := session(t, connect(t), "echo")
	for _, text := range []string{"one", "two"} {
		if _, err := session.Send(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	queued := collect(t, session.Queued(t.Context()))
	equal(t, queued[0].GetMessage().GetParts()[0].GetText()+queued[1].GetMessage().GetParts()[0].GetText(), "onetwo")
	withdrawn := must[*pb.QueuedMessage](t)(session.Withdraw(t.Context(), queued[0].GetQueuedMessageId()))
	equal(t, withdrawn.GetState(), pb.QueuedMessageState_QUEUED_MESSAGE_STATE_CANCELLED)
	equal(t, len(must[[]string](t)(session.ClearQueue(t.Context()))), 1)
	equal(t, len(collect(t, session.Queued(t.Context()))), 0)
}

func TestASendThatIsRepeatedUnderItsRequestIDIsQueuedOnce(t *testing.T) {
	session := session(t, connect(t), "echo")
	for range 2 {
		if _, err := session.Send(t.Context(), "one", contextd.RequestID("send-1"), contextd.WhenIdle()); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, len(collect(t, session.Queued(t.Context()))), 1)
}

func TestASessionCanBeUpdatedListedAndDeleted(t *testing.T) {
	client := connect(t)
	session := session(t, client, "echo", contextd.Instructions("One."), contextd.Metadata(map[string]string{"owner": "me"}))
	updated, err := session.Update(t.Context(), contextd.Instructions("Two."), tool("look", nil))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, updated.GetSystemPrompt()+updated.GetMetadata()["owner"]+updated.GetTools().GetHostTools()[0].GetName(), "Two.melook")
	mine := collect(t, client.Sessions(t.Context(), &pb.SessionFilter{Metadata: map[string]string{"owner": "me"}}))
	equal(t, slices.ContainsFunc(mine, func(each *pb.Session) bool { return each.GetSessionId() == session.ID() }), true)
	if err := session.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = session.Get(t.Context())
	equal(t, errors.Is(err, contextd.SessionNotFound), true)
}

func TestTokensAreCountedAndModelsListed(t *testing.T) {
	client := connect(t)
	equal(t, must[int](t)(client.CountTokens(t.Context(), "scripted/echo", "hello")) > 0, true)
	session := session(t, client, "echo")
	empty := must[int](t)(session.CountTokens(t.Context(), ""))
	equal(t, must[int](t)(session.CountTokens(t.Context(), strings.Repeat("hello ", 100))) > empty, true)
	models := collect(t, client.Models(t.Context(), ""))
	equal(t, slices.ContainsFunc(models, func(each *pb.Model) bool { return each.GetModel() == "scripted/echo" }), true)
}

func TestLargeContentGoesThroughABlob(t *testing.T) {
	client := connect(t)
	content := []byte(strings.Repeat("0123456789abcdef", 1<<17))
	media := must[contextd.Media](t)(client.PutBlob(t.Context(), content, "application/octet-stream"))
	equal(t, string(must[[]byte](t)(client.GetBlob(t.Context(), media.BlobID))) == string(content), true)
}

// --- A loop of your own -------------------------------------------------------------------------------

func weather() *contextd.Tool {
	return contextd.NewTool("get_weather", "The weather of a town.", func(_ context.Context, in struct {
		Town string `json:"town"`
	}) (string, error) {
		return "Sunny in " + in.Town + ".", nil
	})
}

func completion(message object, prompt, answer int) object {
	message["role"] = "assistant"
	usage := object{"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
	return object{"choices": []any{object{"index": 0, "message": message}}, "usage": usage}
}

// roles are those of the messages of a request.
func roles(t *testing.T, prompt *contextd.Prompt) string {
	t.Helper()
	var request struct {
		Messages []struct{ Role string }
	}
	if err := json.Unmarshal(prompt.Request, &request); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, message := range request.Messages {
		found = append(found, message.Role)
	}
	return strings.Join(found, " ")
}

func ask(t *testing.T, session *contextd.Session, question string) {
	t.Helper()
	if _, err := session.Append(t.Context(), question); err != nil {
		t.Fatal(err)
	}
}

func TestALoopOfOnesOwnOnChatCompletions(t *testing.T) {
	session := session(t, connect(t), "echo", contextd.Instructions("Be brief."), weather())
	ask(t, session, "What is the weather in Jena?")
	prompt := must[*contextd.Prompt](t)(session.Prepare(t.Context(), contextd.OpenAI))
	equal(t, roles(t, prompt), "system user")
	equal(t, strings.Contains(string(prompt.Request), `"stream"`), false)
	call := object{"id": "call_1", "type": "function", "function": object{"name": "get_weather", "arguments": `{"town":"Jena"}`}}
	must[[]string](t)(session.Record(t.Context(), prompt, completion(object{"content": nil, "tool_calls": []any{call}}, 58, 15)))

	answer := []any{object{"role": "tool", "tool_call_id": "call_1", "content": "Sunny in Jena."}}
	if _, err := session.AppendAs(t.Context(), contextd.OpenAI, answer); err != nil {
		t.Fatal(err)
	}
	prompt = must[*contextd.Prompt](t)(session.Prepare(t.Context(), contextd.OpenAI))
	equal(t, roles(t, prompt), "system user assistant tool")
	must[[]string](t)(session.Record(t.Context(), prompt, completion(object{"content": "It is sunny in Jena."}, 94, 13)))
	equal(t, strings.HasSuffix(said(t, session, ""), "It is sunny in Jena."), true)
	stats := must[*pb.ContextStats](t)(session.Stats(t.Context()))
	equal(t, stats.GetUsed().GetTokens(), 107)
	equal(t, stats.GetSizeBasis().GetLastInputTokens(), 94)
}

func TestALoopOfOnesOwnOnAnthropicMessages(t *testing.T) {
	session := session(t, connect(t), "echo", contextd.Instructions("Be brief."), weather())
	ask(t, session, "What is the weather in Jena?")
	prompt := must[*contextd.Prompt](t)(session.Prepare(t.Context(), contextd.Anthropic, contextd.Streaming()))
	equal(t, strings.Contains(string(prompt.Request), `"stream":true`), true)
	call := object{"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": object{"town": "Jena"}}
	usage := object{"input_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 8, "output_tokens": 15}
	must[[]string](t)(session.Record(t.Context(), prompt, object{"role": "assistant", "content": []any{call}, "usage": usage}))
	answer := object{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny."}
	if _, err := session.AppendAs(t.Context(), contextd.Anthropic, []any{object{"role": "user", "content": []any{answer}}}); err != nil {
		t.Fatal(err)
	}
	stats := must[*pb.ContextStats](t)(session.Stats(t.Context()))
	equal(t, stats.GetSizeBasis().GetLastInputTokens(), 58)
}

func TestAnswersOfOtherVendorsAreRecorded(t *testing.T) {
	for format, response := range map[contextd.Format]string{
		contextd.OpenAIResponses: `{"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}],
			"usage": {"input_tokens": 12, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}}`,
		contextd.Gemini: `{"candidates": [{"content": {"role": "model", "parts": [{"text": "Sunny."}]}}],
			"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3}}`,
	} {
		session := session(t, connect(t), "echo")
		ask(t, session, "Weather?")
		prompt := must[*contextd.Prompt](t)(session.Prepare(t.Context(), format))
		must[[]string](t)(session.Record(t.Context(), prompt, response))
		equal(t, said(t, session, ""), "Weather?|Sunny.")
		stats := must[*pb.ContextStats](t)(session.Stats(t.Context()))
		equal(t, stats.GetSizeBasis().GetLastInputTokens(), 12)
	}
}

func TestAnAnswerToAnOldPromptIsRefused(t *testing.T) {
	session := session(t, connect(t), "echo")
	ask(t, session, "One?")
	prompt := must[*contextd.Prompt](t)(session.Prepare(t.Context(), contextd.OpenAI))
	ask(t, session, "Another one?")
	_, err := session.Record(t.Context(), prompt, completion(object{"content": "Late."}, 1, 1))
	equal(t, errors.Is(err, contextd.ContextChanged), true)
}

func TestAResponseOfAnotherShapeIsRefusedHere(t *testing.T) {
	session := session(t, connect(t), "echo")
	ask(t, session, "One?")
	for _, format := range []contextd.Format{contextd.OpenAI, contextd.OpenAIResponses, contextd.Anthropic, contextd.Gemini, contextd.AISDK, contextd.AISDK7} {
		prompt := must[*contextd.Prompt](t)(session.Prepare(t.Context(), format))
		_, err := session.Record(t.Context(), prompt, object{"nothing": "of it"})
		equal(t, err != nil, true)
	}
	equal(t, said(t, session, ""), "One?")
}

//! Turns with a service that uses Gemini's generateContent and refuses what the real service refuses.

use std::collections::BTreeMap;

use contextd::{
    pb::{self, CompletionReason, FailureReason},
    provider::gemini::Gemini,
};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{completed, content, failed, message_text, messages},
    requests::{result, tools, turn},
    transcripts::{calls, results, says},
    upstream::{
        KEY, Reply, Upstream, calling,
        gemini::{self, Answer},
    },
    validate::Api,
};

/// The path of calls of a model.
fn path(model: &str) -> String {
    format!("/v1beta/models/{model}:streamGenerateContent?alt=sse")
}

fn options(upstream: &Upstream) -> Options {
    let settings = upstream.settings_for(Api::Gemini);
    calling(Gemini::new("main", settings, BTreeMap::new()).unwrap())
}

fn asks(model: &str, words: &str) -> pb::ExecuteTurnRequest {
    let system = pb::Session { system_prompt: "Be brief.".to_owned(), ..pb::Session::default() };
    pb::ExecuteTurnRequest {
        tools: tools(&["look", "list"]),
        session: Some(system),
        ..turn("s", &format!("main/{model}"), words)
    }
}

fn seen(call: &pb::ToolCall) -> pb::ToolResult {
    result(&call.call_id, &format!("{} is crimson", call.tool_name))
}

/// The parts of a content of the last request.
fn sent(upstream: &Upstream, content: usize) -> Value {
    let requests = upstream.requests();
    requests.last().unwrap().json["contents"][content]["parts"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_parallel_calls_returns_what_gemini_signed() {
    let upstream = Upstream::start().await;
    let two = Answer::default()
        .thinking("Both, then.")
        .said(&["One ", "moment."])
        .call("look", &json!({"where": "up"}))
        .signed()
        .call("list", &json!({}));
    upstream.answer(two.reply());
    let third = Answer::default().call("look", &json!({})).signed();
    upstream.answer(third.reply());
    let last = Answer::default().said(&["All ", "done."]).part(json!({"text": ""})).signed();
    upstream.answer(last.reply());
    upstream.answer(gemini::said(&["Bye."]));
    let host = Host::with(options(&upstream)).await;
    let model = "gemini-3-pro-preview";
    let events = host.run_with(asks(model, "Look both up."), seen).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    assert_eq!(message_text(messages(&events).last().unwrap()), "All done.");
    host.run(asks(model, "Goodbye.")).await;

    let requests = upstream.requests();
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| request.path == path(model)));
    let key = |(name, value): &(String, String)| name == "x-goog-api-key" && value == KEY;
    assert!(requests[0].headers.iter().any(key));
    let instructions = json!({"parts": [{"text": "Be brief."}]});
    assert_eq!(requests[0].json["systemInstruction"], instructions);
    let answer = sent(&upstream, 1);
    let kinds: Vec<Vec<&String>> =
        answer.as_array().unwrap().iter().map(|part| part.as_object().unwrap().keys().collect()).collect();
    // Reasoning without a signature does not have to be returned.
    assert_eq!(kinds, [vec!["text"], vec!["functionCall", "thoughtSignature"], vec!["functionCall"],]);
    assert_eq!(
        sent(&upstream, 2),
        json!([
            {"functionResponse": {"name": "look", "response": {"output": "look is crimson"}}},
            {"functionResponse": {"name": "list", "response": {"output": "list is crimson"}}},
        ])
    );
    let last = sent(&upstream, 5);
    assert_eq!(last[0], json!({"text": "All done."}));
    assert!(last[1]["text"] == "" && last[1]["thoughtSignature"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_another_model_is_taken_by_gemini_3() {
    let upstream = Upstream::start().await;
    let host = Host::with(options(&upstream)).await;
    let session = pb::Session {
        session_id: "s".to_owned(),
        model: "main/gemini-3-pro-preview".to_owned(),
        ..pb::Session::default()
    };
    host.create(session).await;
    let history = vec![
        says(pb::Role::Assistant, "Welcome."),
        says(pb::Role::User, "Look twice."),
        calls(&["a", "b"]),
        results(&["b"]),
        results(&["a"]),
        says(pb::Role::System, "Now in French."),
    ];
    host.append("s", history).await;
    upstream.answer(gemini::said(&["Bleu."]));
    let events = host.run(turn("s", "", "Et alors?")).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    let call = json!({"functionCall": {"name": "look", "args": {}}});
    let mut first = call.clone();
    first["thoughtSignature"] = json!("skip_thought_signature_validator");
    assert_eq!(sent(&upstream, 3), json!([first, call]));
    let response = |words: &str| json!({"functionResponse": {"name": "look", "response": {"output": words}}});
    assert_eq!(
        sent(&upstream, 4),
        json!([
            response("seen a"),
            response("seen b"),
            {"text": "[Instructions]\nNow in French."},
            {"text": "Et alors?"},
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_gemini_could_not_write_is_asked_for_again() {
    let upstream = Upstream::start().await;
    let malformed = Answer::default().said(&["I look"]).finished("MALFORMED_FUNCTION_CALL");
    upstream.answer(malformed.reply());
    upstream.answer(gemini::said(&["Blue."]));
    let twice = Options { call_attempts: 2, ..options(&upstream) };
    let host = Host::with(twice).await;
    let events = host.run(asks("gemini-2.5-flash", "Which colour?")).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    assert_eq!(message_text(messages(&events).last().unwrap()), "Blue.");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_gemini_blocks_ends_the_turn_as_filtered() {
    let upstream = Upstream::start().await;
    upstream.answer(gemini::blocked("PROHIBITED_CONTENT"));
    let host = Host::with(options(&upstream)).await;
    let events = host.run(asks("gemini-2.5-flash", "?")).await;
    assert_eq!(completed(&events).reason(), CompletionReason::ContentFilter);
    let result = completed(&events).result.clone().unwrap();
    let usage = result.total_usage.unwrap();
    assert_eq!(usage.input_tokens, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_gemini_are_told_apart() {
    let long = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).";
    let array = json!([{"error": {"code": 400, "message": "Bad.", "status": "INVALID_ARGUMENT"}}]);
    let key = json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}});
    let table = [
        (gemini::refused(503, "UNAVAILABLE", "Overloaded."), FailureReason::ProviderOverloaded),
        (gemini::refused(429, "RESOURCE_EXHAUSTED", "Slow down."), FailureReason::ProviderRateLimited),
        (gemini::refused(400, "INVALID_ARGUMENT", long), FailureReason::ContextOverflow),
        (Reply::json(400, &key), FailureReason::ProviderAuth),
        (Reply::json(400, &array), FailureReason::ProviderBadRequest),
        (
            Answer::default().said(&["Wel"]).begun().then(gemini::error(503, "UNAVAILABLE", "Overloaded.")),
            FailureReason::ProviderOverloaded,
        ),
        (Answer::default().said(&["Wel"]).begun(), FailureReason::ProviderBroken),
    ];
    for (reply, reason) in table {
        let upstream = Upstream::start().await;
        let shown = format!("{reply:?}");
        upstream.answer(reply);
        let host = Host::with(options(&upstream)).await;
        let events = host.run(asks("gemini-2.5-flash", "?")).await;
        let failure = failed(&events).failure.clone().unwrap();
        assert_eq!(failure.reason(), reason, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_gemini_runs_itself_goes_back_to_it() {
    let upstream = Upstream::start().await;
    let code = json!({"executableCode": {"language": "PYTHON", "code": "print(1)"}});
    let output = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}});
    let answer = Answer::default().part(code.clone()).part(output.clone()).said(&["It is 1."]);
    upstream.answer(answer.reply());
    upstream.answer(gemini::said(&["Bye."]));
    let host = Host::with(options(&upstream)).await;
    let model = "gemini-2.5-flash";
    let events = host.run(asks(model, "Compute.")).await;
    let answer = messages(&events).last().copied().cloned().unwrap();
    assert_eq!(content(&answer.parts[2]), "It is 1.");
    host.run(asks(model, "Goodbye.")).await;
    assert_eq!(sent(&upstream, 1), json!([code, output, {"text": "It is 1."}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_counts_prompts_itself() {
    let upstream = Upstream::start().await;
    upstream.answer(Reply::json(200, &json!({"totalTokens": 31})));
    let host = Host::with(options(&upstream)).await;
    let request = pb::CountTokensRequest {
        model: "main/gemini-2.5-flash".to_owned(),
        messages: vec![says(pb::Role::User, "Hello.")],
        system_prompt: "Be brief.".to_owned(),
        exact: true,
        ..pb::CountTokensRequest::default()
    };
    let counted = host.contexts().count_tokens(request).await.unwrap();
    let total = counted.into_inner().total.unwrap();
    assert_eq!((total.tokens, total.basis()), (31, pb::TokenBasis::Actual));
    let asked = &upstream.requests()[0];
    assert_eq!(asked.path, "/v1beta/models/gemini-2.5-flash:countTokens");
    assert_eq!(
        asked.json["generateContentRequest"],
        json!({
            "model": "models/gemini-2.5-flash",
            "contents": [{"role": "user", "parts": [{"text": "Hello."}]}],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
        })
    );
}

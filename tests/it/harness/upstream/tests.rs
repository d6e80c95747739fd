//! Tests of the test upstream with requests that no other test should send.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use super::*;

/// Sends a request. Returns the status and the body of the response.
async fn ask(upstream: &Upstream, path: &str, body: &Value) -> (u16, String) {
    let answer = reqwest::Client::new()
        .post(format!("http://{}/{path}", upstream.address))
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The payloads of a stream of events.
fn payloads(body: &str) -> Vec<Value> {
    body.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

#[tokio::test]
async fn every_path_refuses_an_invalid_request_in_its_own_words() {
    let upstream = Upstream::start().await;
    upstream.expect_refusals();
    upstream.answer(Reply::events(said(&["Hello."])));
    for (path, at, words) in [
        ("v1/chat/completions", "/error/message", "messages"),
        ("v1/messages", "/error/type", "invalid_request_error"),
        ("v1/responses", "/error/message", "One of \"input\" or \"previous_response_id\""),
        ("v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "/error/status", "INVALID_ARGUMENT"),
    ] {
        let (status, body) = ask(&upstream, path, &json!({"model": "m"})).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        let said = body.pointer(at).and_then(Value::as_str).unwrap();
        assert!(status == 400 && said.contains(words), "{path}: {body}");
    }
    assert_eq!(upstream.refused().len(), 4);
    // A planned response is used only for a request that is accepted.
    let good = json!({"model": "m", "messages": [{"role": "user", "content": "?"}]});
    assert_eq!(ask(&upstream, "v1/chat/completions", &good).await.0, 200);
}

#[tokio::test]
async fn a_refusal_that_no_test_expects_fails_it() {
    let upstream = Upstream::start().await;
    assert_eq!(ask(&upstream, "v1/messages", &json!({})).await.0, 400);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(upstream)));
    let said = dropped.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("model: Field required"), "{said}");
}

#[tokio::test]
async fn thinking_of_anthropic_is_signed_for_the_request_that_it_answers() {
    let upstream = Upstream::start().await;
    upstream.expect_refusals();
    let answer = anthropic::Answer::default().thinking("Hm.").call("toolu_1", "look", &json!({"at": "sky"}));
    upstream.answer(answer.reply());
    upstream.answer(anthropic::said(&["Blue."]));
    let question = json!({"role": "user", "content": "?"});
    let mut request = json!({
        "model": "claude-opus-5-5", "max_tokens": 100, "system": "Be brief.", "messages": [question],
    });
    let (_, body) = ask(&upstream, "v1/messages", &request).await;
    let signature =
        payloads(&body).into_iter().find_map(|event| event["delta"]["signature"].as_str().map(str::to_owned)).unwrap();
    let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": signature});
    let call = json!({
        "type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"},
    });
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "blue"});
    request["messages"] = json!([
        question,
        {"role": "assistant", "content": [thinking, call]},
        {"role": "user", "content": [result]},
    ]);
    assert_eq!(ask(&upstream, "v1/messages", &request).await.0, 200);
    request["system"] = json!("Be long.");
    let (status, body) = ask(&upstream, "v1/messages", &request).await;
    assert!(status == 400 && body.contains("bound to a different conversation"), "{body}");
}

#[tokio::test]
async fn what_gemini_and_responses_signed_is_taken_back() {
    let upstream = Upstream::start().await;
    let path = "v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
    let answer = gemini::Answer::default().call("look", &json!({})).signed();
    upstream.answer(answer.reply());
    upstream.answer(gemini::said(&["Blue."]));
    let question = json!({"role": "user", "parts": [{"text": "?"}]});
    let (_, body) = ask(&upstream, path, &json!({"contents": [question]})).await;
    let content = payloads(&body)[0]["candidates"][0]["content"].clone();
    let response = json!({"functionResponse": {"name": "look", "response": {"output": "blue"}}});
    let result = json!({"role": "user", "parts": [response]});
    let request = json!({"contents": [question, content, result]});
    assert_eq!(ask(&upstream, path, &request).await.0, 200);

    let answer = responses::Answer::default().reasoning("Hm.").said(&["Blue."]);
    upstream.answer(answer.reply());
    upstream.answer(responses::said(&["Green."]));
    let question = json!({"role": "user", "content": "?"});
    let mut request = json!({"model": "gpt-5.5", "store": false, "input": [question]});
    let (_, body) = ask(&upstream, "v1/responses", &request).await;
    let ended = payloads(&body).pop().unwrap();
    let mut input = vec![question.clone()];
    input.extend(ended["response"]["output"].as_array().unwrap().clone());
    input.push(question);
    request["input"] = json!(input);
    assert_eq!(ask(&upstream, "v1/responses", &request).await.0, 200);
}

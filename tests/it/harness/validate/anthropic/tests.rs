//! Requests that the API refuses, and those that it takes.

use super::{super::check, *};

fn says(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "red"})
}

fn marked(mut block: Value, ttl: &str) -> Value {
    block["cache_control"] = json!({"type": "ephemeral", "ttl": ttl});
    block
}

fn thought(signature: &str) -> Value {
    json!({"type": "thinking", "thinking": "Hm.", "signature": signature})
}

fn base() -> Value {
    json!({
        "model": "claude-opus-4-5",
        "max_tokens": 4096,
        "messages": [says("user", json!("Hello."))],
    })
}

fn given(messages: Vec<Value>) -> Vec<(&'static str, Value)> {
    vec![("/messages", json!(messages))]
}

#[test]
fn conversations_that_anthropic_refuses_are_refused_in_its_words() {
    let question = || says("user", json!("?"));
    let calls = |ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        vec![question(), says("assistant", json!(calls))]
    };
    let answered =
        |ids: &[&str], results: Value| given([calls(ids), vec![says("user", results)]].concat());
    let for_model = |model: &str, mut changes: Vec<(&'static str, Value)>| {
        changes.push(("/model", json!(model)));
        changes
    };
    let prefilled = |words: &str| given(vec![question(), says("assistant", json!(words))]);
    let instructed = || given(vec![question(), says("system", json!("Be brief."))]);
    let paused = json!([{"type": "server_tool_use", "id": "s"}]);
    let cases = [
        ("a question", vec![], ""),
        ("nothing", given(vec![]), "at least one message"),
        (
            "a first assistant",
            given(vec![says("assistant", json!("Hi.")), question()]),
            "first message must use the \"user\" role",
        ),
        (
            "answered calls",
            answered(
                &["a", "b"],
                json!([result("b"), result("a"), text("Go on.")]),
            ),
            "",
        ),
        (
            "a call without its result",
            answered(&["a", "b"], json!([result("b")])),
            "ids were found without `tool_result` blocks immediately after: a",
        ),
        (
            "a call at the end",
            given(calls(&["a"])),
            "immediately after: a",
        ),
        (
            "a result after words",
            answered(&["a"], json!([text("Here."), result("a")])),
            "immediately after: a",
        ),
        (
            "results in two messages",
            given(
                [
                    calls(&["a", "b"]),
                    vec![says("user", json!([result("a")]))],
                    vec![says("user", json!([result("b")]))],
                ]
                .concat(),
            ),
            "immediately after: b",
        ),
        (
            "a result without its call",
            given(vec![says("user", json!([result("a")]))]),
            "unexpected `tool_use_id` found in `tool_result` blocks: a",
        ),
        (
            "two results of a call",
            answered(&["a"], json!([result("a"), result("a")])),
            "each tool_use must have a single result",
        ),
        (
            "an id twice",
            given(calls(&["a", "a"])),
            "`tool_use` ids must be unique",
        ),
        (
            "an empty text",
            given(vec![says("user", json!([text("")]))]),
            "text content blocks must be non-empty",
        ),
        (
            "a blank text",
            given(vec![says("user", json!(" \n"))]),
            "must contain non-whitespace text",
        ),
        (
            "blank instructions",
            vec![("/system", json!([text(" ")]))],
            "system: text content blocks must contain",
        ),
        (
            "no content",
            given(vec![says("user", json!([])), question()]),
            "all messages must have non-empty content",
        ),
        (
            "instructions in between",
            instructed(),
            "Input should be 'user' or 'assistant'",
        ),
        (
            "instructions in between for a newer model",
            for_model("claude-opus-4-8", instructed()),
            "",
        ),
        (
            "instructions before an answer",
            for_model(
                "claude-opus-4-8",
                given(vec![
                    question(),
                    says("system", json!("Be brief.")),
                    says("assistant", json!("Yes.")),
                    question(),
                ]),
            ),
            "",
        ),
        (
            "instructions after an answer",
            for_model(
                "claude-opus-4-8",
                given(vec![
                    question(),
                    says("assistant", json!("Yes.")),
                    says("system", json!("Be brief.")),
                ]),
            ),
            "messages.2: role 'system' must follow a 'user' message",
        ),
        (
            "instructions before the user",
            for_model(
                "claude-opus-4-8",
                given(vec![
                    question(),
                    says("system", json!("Be brief.")),
                    question(),
                ]),
            ),
            "messages.1: role 'system' must be the last message",
        ),
        ("a prefill", prefilled("Well"), ""),
        (
            "a prefill with a space at its end",
            prefilled("Well "),
            "trailing whitespace",
        ),
        (
            "a prefill for a newer model",
            for_model("claude-sonnet-4-6", prefilled("Well")),
            "does not support assistant message prefill",
        ),
        (
            "a paused turn",
            for_model(
                "claude-sonnet-4-6",
                given(vec![question(), says("assistant", paused)]),
            ),
            "",
        ),
    ];
    check(|body| refusal(body, ""), &base(), &cases);
}

#[test]
fn thinking_and_calls_of_its_own_tools_that_anthropic_refuses_are_refused() {
    let question = || says("user", json!("?"));
    let answer = |content: Value| says("assistant", content);
    let search = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search"});
    let found =
        |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
    let fetched = json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": null});
    let called_by = |id: &str| {
        let mut call = call("a");
        call["caller"] = json!({"type": "code_execution_20250825", "tool_id": id});
        call
    };
    let results = || says("user", json!([result("a")]));
    let late = |after: Vec<Value>| {
        let calls = answer(json!([search("s"), call("a")]));
        given([vec![question(), calls, results()], after].concat())
    };
    let budget = |content: Value| {
        let mut changes = given(vec![question(), answer(content), results()]);
        changes.push((
            "/thinking",
            json!({"type": "enabled", "budget_tokens": 1024}),
        ));
        changes
    };
    let cases = [
        (
            "thinking at the end of an answer",
            given(vec![
                question(),
                answer(json!([text("Hm."), thought("s")])),
                question(),
            ]),
            "The final block in an assistant message cannot be `thinking`",
        ),
        (
            "a call without thinking",
            budget(json!([text("I look."), call("a")])),
            "Expected `thinking` or `redacted_thinking`, but found `text`",
        ),
        (
            "a call after thinking",
            budget(json!([thought("s"), call("a")])),
            "",
        ),
        ("a search that is going on beside a call", late(vec![]), ""),
        (
            "its result after that of the call",
            late(vec![answer(json!([found("s"), text("So.")])), question()]),
            "",
        ),
        (
            "a search without a result",
            late(vec![question()]),
            "`server_tool_use` with id `s` was found without a corresponding result",
        ),
        (
            "a result without its search",
            given(vec![
                question(),
                answer(json!([found("s"), text("So.")])),
                question(),
            ]),
            "unexpected `tool_use_id` found in `web_search_tool_result` blocks: s",
        ),
        (
            "a result without content",
            given(vec![
                question(),
                answer(json!([search("s"), fetched])),
                question(),
            ]),
            "web_fetch_tool_result.content: Field required",
        ),
        (
            "a call by the service's code",
            given(vec![
                question(),
                answer(json!([search("s"), called_by("s")])),
                results(),
            ]),
            "",
        ),
        (
            "a call by code that is not there",
            given(vec![question(), answer(json!([called_by("s")])), results()]),
            "caller.tool_id: no such tool use",
        ),
    ];
    check(|body| refusal(body, "s"), &base(), &cases);
}

#[test]
fn settings_and_tools_that_anthropic_refuses_are_refused_in_its_words() {
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let tools = |tools: Value| vec![("/tools", tools)];
    let enabled = |budget: u32| {
        (
            "/thinking",
            json!({"type": "enabled", "budget_tokens": budget}),
        )
    };
    let model = |model: &str| ("/model", json!(model));
    let temperature = || ("/temperature", json!(0.5));
    let any = || ("/tool_choice", json!({"type": "any"}));
    let cases = [
        (
            "no max_tokens",
            vec![("/max_tokens", Value::Null)],
            "max_tokens: Field required",
        ),
        (
            "none at all",
            vec![("/max_tokens", json!(0))],
            "greater than or equal to 1",
        ),
        ("a temperature", vec![temperature()], ""),
        (
            "a temperature for a newer model",
            vec![temperature(), model("claude-opus-4-7")],
            "`temperature` is deprecated for this model.",
        ),
        (
            "both ways of sampling",
            vec![temperature(), ("/top_p", json!(0.5))],
            "cannot both be specified",
        ),
        ("thinking", vec![enabled(1024)], ""),
        (
            "no thinking for a model that always thinks",
            vec![
                model("claude-opus-5-5"),
                ("/thinking", json!({"type": "disabled"})),
            ],
            "\"thinking.type.disabled\" is not supported",
        ),
        (
            "little thinking",
            vec![enabled(1023)],
            "greater than or equal to 1024",
        ),
        (
            "much thinking",
            vec![enabled(4096)],
            "must be greater than `thinking.budget_tokens`",
        ),
        (
            "a budget for a newer model",
            vec![enabled(1024), model("claude-opus-4-7")],
            "Use \"thinking.type.adaptive\"",
        ),
        (
            "adaptive thinking for an older model",
            vec![("/thinking", json!({"type": "adaptive"}))],
            "adaptive thinking is not supported",
        ),
        (
            "thinking with a temperature",
            vec![enabled(1024), temperature()],
            "may only be set to 1 when thinking is enabled",
        ),
        (
            "thinking with a forced tool",
            vec![enabled(1024), ("/tools", json!([tool("look")])), any()],
            "Thinking may not be enabled when tool_choice forces tool use",
        ),
        (
            "an effort that the model does not have",
            vec![
                model("claude-opus-4-6"),
                ("/output_config", json!({"effort": "xhigh"})),
            ],
            "does not support effort level 'xhigh'",
        ),
        ("a tool", tools(json!([tool("look_up-1")])), ""),
        (
            "a tool that the service runs",
            tools(json!([{"type": "web_search_20250305", "name": "web_search"}])),
            "",
        ),
        (
            "a name with a dot",
            tools(json!([tool("look.up")])),
            "tools.0.custom.name: String should match pattern",
        ),
        (
            "a name twice",
            tools(json!([tool("look"), tool("look")])),
            "Tool names must be unique",
        ),
        (
            "a schema that is no object",
            tools(json!([{"name": "look", "input_schema": {"type": "string"}}])),
            "tools.0.custom.input_schema.type: Input should be 'object'",
        ),
        (
            "a choice without tools",
            vec![any()],
            "may only be specified while providing `tools`",
        ),
        (
            "the choice of an unknown tool",
            vec![
                ("/tools", json!([tool("look")])),
                ("/tool_choice", json!({"type": "tool", "name": "see"})),
            ],
            "Tool 'see' not found",
        ),
        (
            "a forced tool for a model that cannot be forced",
            vec![
                model("claude-opus-5-5"),
                ("/tools", json!([tool("look")])),
                any(),
            ],
            "does not support forced tool use",
        ),
    ];
    check(|body| refusal(body, ""), &base(), &cases);
}

#[test]
fn cache_marks_that_anthropic_refuses_are_refused_in_its_words() {
    let marks = |number: usize, ttl: &str| {
        let marks: Vec<Value> = (0..number).map(|_| marked(text("a"), ttl)).collect();
        json!(marks)
    };
    let both = |number: usize, ttl: &str| {
        vec![
            ("/system", marks(number, "5m")),
            ("/messages", json!([says("user", marks(1, ttl))])),
        ]
    };
    let cases = [
        ("four marks", vec![("/system", marks(4, "5m"))], ""),
        (
            "five marks",
            both(4, "5m"),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        (
            "a longer one after a shorter one",
            both(1, "1h"),
            "must not come after a ttl='5m'",
        ),
        (
            "a mark on an empty text",
            vec![("/system", json!([marked(text(""), "5m")]))],
            "cache_control cannot be set for empty text blocks",
        ),
        (
            "a mark on thinking",
            given(vec![
                says("user", json!("?")),
                says("assistant", json!([marked(thought("s"), "5m")])),
            ]),
            "thinking.cache_control: Extra inputs are not permitted",
        ),
    ];
    check(|body| refusal(body, ""), &base(), &cases);
}

#[test]
fn a_signature_holds_only_for_what_stood_before_its_thinking() {
    let request = json!({
        "model": "claude-opus-5-5",
        "max_tokens": 1,
        "system": "Be brief.",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [says("user", json!("?"))],
    });
    let first = thought(&signature(&request, &[], "Hm."));
    let again = thought(&signature(&request, &[first.clone(), text("So.")], "Hm."));
    let answer = says("assistant", json!([first, text("So."), again, call("a")]));
    let mut base = request;
    base["messages"] = json!([
        says("user", json!("?")),
        answer,
        says("user", json!([result("a")]))
    ]);
    let block = |pointer: &'static str, with: Value| vec![(pointer, with)];
    let bound = "bound to a different conversation";
    let cases = [
        ("the same prefix", vec![], ""),
        (
            "marks for the cache",
            vec![
                ("/system", json!([marked(text("Be brief."), "5m")])),
                ("/messages/0/content", json!([marked(text("?"), "5m")])),
            ],
            "",
        ),
        (
            "other instructions",
            vec![("/system", json!("Be long."))],
            bound,
        ),
        ("other tools", vec![("/tools", json!([]))], bound),
        (
            "another question",
            vec![("/messages/0/content", json!("!"))],
            bound,
        ),
        (
            "another word before",
            block("/messages/1/content/1", text("Thus.")),
            "messages.1.content.2: Invalid",
        ),
        (
            "other thinking",
            block(
                "/messages/1/content/0",
                json!({"type": "thinking", "thinking": "Ah.", "signature": "bound-1"}),
            ),
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound",
        ),
        (
            "no signature",
            block(
                "/messages/1/content/2",
                json!({"type": "thinking", "thinking": "Hm."}),
            ),
            "messages.1.content.2.thinking.signature: Field required",
        ),
        (
            "the signature of another service",
            block("/messages/1/content/2", thought("theirs")),
            "Invalid `signature`",
        ),
        (
            "a signature that was given out",
            block("/messages/1/content/2", thought("ours")),
            "",
        ),
    ];
    check(|body| refusal(body, "ours"), &base, &cases);
}

//! Requests that the API refuses, and requests that it accepts.

use super::{
    super::rows::{check, covers},
    *,
};

fn says(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": {}})
}

fn with_call(field: &str, value: Value) -> Value {
    let mut call = call("a");
    call[field] = value;
    call
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
    of_conversations();
}

#[test]
fn thinking_and_calls_of_its_own_tools_that_anthropic_refuses_are_refused() {
    of_thinking();
}

#[test]
fn settings_and_tools_that_anthropic_refuses_are_refused_in_its_words() {
    of_settings();
}

#[test]
fn cache_marks_that_anthropic_refuses_are_refused_in_its_words() {
    of_cache_marks();
}

#[test]
fn a_signature_holds_only_for_what_stood_before_its_thinking() {
    of_signatures();
}

#[test]
fn each_refusal_of_anthropic_has_a_row_and_each_row_a_case() {
    let refused = [of_conversations(), of_thinking(), of_settings(), of_cache_marks(), of_signatures()];
    covers(&ANTHROPIC, &refused);
}

fn of_conversations() -> BTreeSet<&'static str> {
    let question = || says("user", json!("?"));
    let calls = |ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        vec![question(), says("assistant", json!(calls))]
    };
    let answered = |ids: &[&str], results: Value| given([calls(ids), vec![says("user", results)]].concat());
    let for_model = |model: &str, mut changes: Vec<(&'static str, Value)>| {
        changes.push(("/model", json!(model)));
        changes
    };
    let prefilled = |words: &str| given(vec![question(), says("assistant", json!(words))]);
    let instructed = || given(vec![question(), says("system", json!("Be brief."))]);
    let paused = json!([{"type": "server_tool_use", "id": "s"}]);
    let cases = [
        ("a question", vec![], ""),
        ("nothing", given(vec![]), "messages"),
        ("a first assistant", given(vec![says("assistant", json!("Hi.")), question()]), "first-role"),
        ("answered calls", answered(&["a", "b"], json!([result("b"), result("a"), text("Go on.")])), ""),
        ("a call without its result", answered(&["a", "b"], json!([result("b")])), "call-unanswered: after: a"),
        ("a call at the end", given(calls(&["a"])), "call-unanswered: after: a"),
        ("a result after words", answered(&["a"], json!([text("Here."), result("a")])), "call-unanswered: after: a"),
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
            "call-unanswered: after: b",
        ),
        ("a result without its call", given(vec![says("user", json!([result("a")]))]), "result-alone: blocks: a"),
        ("two results of a call", answered(&["a"], json!([result("a"), result("a")])), "result-twice"),
        (
            "a result in an answer",
            given(vec![question(), says("assistant", json!([result("a")]))]),
            "result-role: messages.1.content.0",
        ),
        (
            "an id with a dot",
            given(vec![question(), says("assistant", json!([call("a.b")]))]),
            "call-id: messages.1.content.0",
        ),
        (
            "a name of a call with a dot",
            given(vec![question(), says("assistant", json!([with_call("name", json!("look.up"))]))]),
            "call-name: messages.1.content.0",
        ),
        (
            "a name of a call that is too long",
            given(vec![question(), says("assistant", json!([with_call("name", json!("a".repeat(201)))]))]),
            "call-name-length: messages.1.content.0",
        ),
        (
            "an input that is no object",
            given(vec![question(), says("assistant", json!([with_call("input", json!("{}"))]))]),
            "call-input: messages.1.content.0",
        ),
        ("an id twice", given(calls(&["a", "a"])), "call-twice"),
        ("an empty text", given(vec![says("user", json!([text("")]))]), "text-empty"),
        ("a blank text", given(vec![says("user", json!(" \n"))]), "text-blank"),
        ("blank instructions", vec![("/system", json!([text(" ")]))], "text-blank: system"),
        ("no content", given(vec![says("user", json!([])), question()]), "content"),
        ("instructions in between", instructed(), "role-system"),
        ("an unknown role", given(vec![question(), says("tool", json!("red"))]), "role: messages.1"),
        ("instructions in between for a newer model", for_model("claude-opus-4-8", instructed()), ""),
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
                given(vec![question(), says("assistant", json!("Yes.")), says("system", json!("Be brief."))]),
            ),
            "system-after: messages.2",
        ),
        (
            "instructions before the user",
            for_model("claude-opus-4-8", given(vec![question(), says("system", json!("Be brief.")), question()])),
            "system-before: messages.1",
        ),
        ("a prefill", prefilled("Well"), ""),
        ("a prefill with a space at its end", prefilled("Well "), "prefill-blank"),
        ("a prefill for a newer model", for_model("claude-sonnet-4-6", prefilled("Well")), "prefill"),
        ("a paused turn", for_model("claude-sonnet-4-6", given(vec![question(), says("assistant", paused)])), ""),
    ];
    check(|body| refusal(body, ""), &base(), &cases)
}

fn of_thinking() -> BTreeSet<&'static str> {
    let question = || says("user", json!("?"));
    let answer = |content: Value| says("assistant", content);
    let search = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search"});
    let found = |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
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
        changes.push(("/thinking", json!({"type": "enabled", "budget_tokens": 1024})));
        changes
    };
    let cases = [
        (
            "thinking at the end of an answer",
            given(vec![question(), answer(json!([text("Hm."), thought("s")])), question()]),
            "thinking-last",
        ),
        ("a call without thinking", budget(json!([text("I look."), call("a")])), "thinking-first: `text`"),
        ("a call after thinking", budget(json!([thought("s"), call("a")])), ""),
        ("a search that is going on beside a call", late(vec![]), ""),
        ("its result after that of the call", late(vec![answer(json!([found("s"), text("So.")])), question()]), ""),
        ("a search without a result", late(vec![question()]), "hosted-unanswered: `s`"),
        (
            "a result without its search",
            given(vec![question(), answer(json!([found("s"), text("So.")])), question()]),
            "hosted-result-alone: blocks: s",
        ),
        (
            "a result without content",
            given(vec![question(), answer(json!([search("s"), fetched])), question()]),
            "hosted-content: web_fetch_tool_result",
        ),
        (
            "a call by the service's code",
            given(vec![question(), answer(json!([search("s"), called_by("s")])), results()]),
            "",
        ),
        (
            "a call by code that is not there",
            given(vec![question(), answer(json!([called_by("s")])), results()]),
            "caller",
        ),
    ];
    check(|body| refusal(body, "s"), &base(), &cases)
}

fn of_settings() -> BTreeSet<&'static str> {
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let tools = |tools: Value| vec![("/tools", tools)];
    let enabled = |budget: u32| ("/thinking", json!({"type": "enabled", "budget_tokens": budget}));
    let model = |model: &str| ("/model", json!(model));
    let temperature = || ("/temperature", json!(0.5));
    let any = || ("/tool_choice", json!({"type": "any"}));
    let cases = [
        ("no max_tokens", vec![("/max_tokens", Value::Null)], "max-tokens"),
        ("none at all", vec![("/max_tokens", json!(0))], "max-tokens-low"),
        ("a temperature", vec![temperature()], ""),
        ("a temperature for a newer model", vec![temperature(), model("claude-opus-4-7")], "sampling: `temperature`"),
        ("both ways of sampling", vec![temperature(), ("/top_p", json!(0.5))], "temperature-and-top-p"),
        ("thinking", vec![enabled(1024)], ""),
        (
            "no thinking for a model that always thinks",
            vec![model("claude-opus-5-5"), ("/thinking", json!({"type": "disabled"}))],
            "thinking-disabled",
        ),
        ("little thinking", vec![enabled(1023)], "budget-low"),
        ("much thinking", vec![enabled(4096)], "budget-high"),
        ("a budget for a newer model", vec![enabled(1024), model("claude-opus-4-7")], "thinking-enabled"),
        ("adaptive thinking for an older model", vec![("/thinking", json!({"type": "adaptive"}))], "thinking-adaptive"),
        ("thinking with a temperature", vec![enabled(1024), temperature()], "thinking-and-temperature"),
        (
            "thinking with a forced tool",
            vec![enabled(1024), ("/tools", json!([tool("look")])), any()],
            "thinking-and-forced",
        ),
        (
            "much effort without thinking",
            vec![
                model("claude-opus-5"),
                ("/thinking", json!({"type": "disabled"})),
                ("/output_config", json!({"effort": "xhigh"})),
            ],
            "effort-and-disabled: 'xhigh'",
        ),
        (
            "less effort without thinking",
            vec![
                model("claude-opus-5"),
                ("/thinking", json!({"type": "disabled"})),
                ("/output_config", json!({"effort": "high"})),
            ],
            "",
        ),
        (
            "an effort that the model does not have",
            vec![model("claude-opus-4-6"), ("/output_config", json!({"effort": "xhigh"}))],
            "effort-xhigh",
        ),
        ("no model", vec![model("")], "model"),
        ("a high temperature", vec![("/temperature", json!(1.5))], "temperature"),
        ("an unknown kind of thinking", vec![("/thinking", json!({"type": "much"}))], "thinking-type: 'much'"),
        (
            "an effort for a model that has none",
            vec![model("claude-haiku-4-5"), ("/output_config", json!({"effort": "low"}))],
            "effort",
        ),
        ("an effort", vec![("/output_config", json!({"effort": "low"}))], ""),
        ("a tool", tools(json!([tool("look_up-1")])), ""),
        ("a tool without a schema", tools(json!([{"name": "look"}])), "tool-schema: tools.0.custom"),
        (
            "a schema of alternatives",
            tools(json!([{"name": "look", "input_schema": {"type": "object", "anyOf": []}}])),
            "tool-schema-combined: tools.0.custom",
        ),
        ("a tool that the service runs", tools(json!([{"type": "web_search_20250305", "name": "web_search"}])), ""),
        ("a name with a dot", tools(json!([tool("look.up")])), "tool-name: tools.0.custom"),
        ("a name twice", tools(json!([tool("look"), tool("look")])), "tool-twice"),
        (
            "a schema that is no object",
            tools(json!([{"name": "look", "input_schema": {"type": "string"}}])),
            "tool-schema-type: tools.0.custom",
        ),
        ("no choice without tools", vec![("/tool_choice", json!({"type": "none"}))], ""),
        ("a choice without tools", vec![any()], "choice-without-tools"),
        (
            "the choice of an unknown tool",
            vec![("/tools", json!([tool("look")])), ("/tool_choice", json!({"type": "tool", "name": "see"}))],
            "choice-unknown: 'see'",
        ),
        (
            "a forced tool for a model that cannot be forced",
            vec![model("claude-opus-5-5"), ("/tools", json!([tool("look")])), any()],
            "forced",
        ),
    ];
    check(|body| refusal(body, ""), &base(), &cases)
}

fn of_cache_marks() -> BTreeSet<&'static str> {
    let marks = |number: usize, ttl: &str| {
        let marks: Vec<Value> = (0..number).map(|_| marked(text("a"), ttl)).collect();
        json!(marks)
    };
    let both = |number: usize, ttl: &str| {
        vec![("/system", marks(number, "5m")), ("/messages", json!([says("user", marks(1, ttl))]))]
    };
    let cases = [
        ("four marks", vec![("/system", marks(4, "5m"))], ""),
        ("five marks", both(4, "5m"), "cache-marks: Found 5."),
        ("a longer one after a shorter one", both(1, "1h"), "cache-order"),
        ("a mark on an empty text", vec![("/system", json!([marked(text(""), "5m")]))], "cache-empty"),
        (
            "a mark on thinking",
            given(vec![says("user", json!("?")), says("assistant", json!([marked(thought("s"), "5m")]))]),
            "cache-thinking: thinking",
        ),
    ];
    check(|body| refusal(body, ""), &base(), &cases)
}

fn of_signatures() -> BTreeSet<&'static str> {
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
    base["messages"] = json!([says("user", json!("?")), answer, says("user", json!([result("a")]))]);
    let block = |pointer: &'static str, with: Value| vec![(pointer, with)];
    let bound = "signature-prefix";
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
        ("other instructions", vec![("/system", json!("Be long."))], bound),
        ("other tools", vec![("/tools", json!([]))], bound),
        ("another question", vec![("/messages/0/content", json!("!"))], bound),
        (
            "another question for a model that looks at no prefix",
            vec![("/model", json!("claude-opus-4-8")), ("/messages/0/content", json!("!"))],
            "",
        ),
        (
            "another word before",
            block("/messages/1/content/1", text("Thus.")),
            "signature-prefix: messages.1.content.2",
        ),
        (
            "other thinking",
            block("/messages/1/content/0", json!({"type": "thinking", "thinking": "Ah.", "signature": "bound-1"})),
            "signature-prefix: messages.1.content.0",
        ),
        (
            "no signature",
            block("/messages/1/content/2", json!({"type": "thinking", "thinking": "Hm."})),
            "signature-missing: messages.1.content.2.thinking.signature",
        ),
        ("the signature of another service", block("/messages/1/content/2", thought("theirs")), "signature"),
        ("a signature that was given out", block("/messages/1/content/2", thought("ours")), ""),
    ];
    check(|body| refusal(body, "ours"), &base, &cases)
}

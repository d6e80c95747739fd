//! Validates requests as Gemini's generateContent does.

use serde_json::Value;

use super::{
    Checked, ensure, is_name, items, repeated,
    rows::{GEMINI, Refusal},
    word,
};

/// The placeholder for a missing signature, which the service does not verify.
const UNCHECKED: &str = "skip_thought_signature_validator";

/// Keywords that `parameters`, a subset of OpenAPI, does not have.
const NOT_OPENAPI: &[&str] = &["$ref", "$defs", "$schema", "additionalProperties", "oneOf", "allOf", "const"];

/// The model in a path.
pub fn model_of(path: &str) -> &str {
    let name = path.rsplit_once("/models/").map_or("", |(_, name)| name);
    name.split([':', '?']).next().unwrap_or_default()
}

/// Why Gemini refuses the request for that model. Returns `None` if it accepts it. A signature must be in `issued`.
pub fn refusal(model: &str, body: &Value, issued: &str) -> Option<Refusal> {
    tools(body)
        .and_then(|()| settings(model, body))
        .and_then(|()| instructions(body))
        .and_then(|()| contents(model, items(&body["contents"])))
        .and_then(|()| signatures(model, items(&body["contents"]), issued))
        .err()
}

/// The generation of a model by its name; a name without a number counts as the latest.
fn generation(model: &str) -> f32 {
    let number = |word: &str| word.parse().ok();
    model.split('-').find_map(number).unwrap_or(f32::MAX)
}

fn declared(body: &Value) -> Vec<&Value> {
    items(&body["tools"]).iter().flat_map(|tool| items(&tool["functionDeclarations"])).collect()
}

fn tools(body: &Value) -> Checked {
    let declared = declared(body);
    for (at, function) in declared.iter().enumerate() {
        let place = format!("GenerateContentRequest.tools[0].function_declarations[{at}]");
        let name = word(&function["name"]);
        let first = name.chars().next().unwrap_or('0');
        ensure(is_name(name, 128, &['_', '-', '.', ':']) && (first.is_ascii_alphabetic() || first == '_'), || {
            GEMINI.refuse("tool-name", &[("place", &place)])
        })?;
        let openapi = &function["parameters"];
        let schema = &function["parametersJsonSchema"];
        ensure(openapi.is_null() || schema.is_null(), || GEMINI.refuse("two-schemas", &[("place", &place)]))?;
        let given = if schema.is_null() { openapi } else { schema };
        let is_object = word(&given["type"]).eq_ignore_ascii_case("object");
        ensure(given.is_null() || is_object, || GEMINI.refuse("tool-schema", &[("place", &place)]))?;
        openapi_only(openapi)?;
    }
    let names = declared.iter().map(|function| word(&function["name"]));
    ensure(repeated(names.clone()).is_none(), || {
        GEMINI.refuse("tool-twice", &[("name", &repeated(names.clone()).unwrap_or_default())])
    })?;
    choice(body, &names.collect::<Vec<_>>())
}

fn openapi_only(schema: &Value) -> Checked {
    match schema {
        Value::Object(fields) => {
            let strange = fields.keys().find(|key| NOT_OPENAPI.contains(&key.as_str()));
            ensure(strange.is_none(), || {
                GEMINI.refuse("openapi", &[("keyword", &strange.map_or("", String::as_str))])
            })?;
            fields.values().try_for_each(openapi_only)
        }
        Value::Array(values) => values.iter().try_for_each(openapi_only),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn choice(body: &Value, names: &[&str]) -> Checked {
    let choice = &body["toolConfig"]["functionCallingConfig"];
    let mode = word(&choice["mode"]);
    ensure(choice.is_null() || !names.is_empty(), || GEMINI.refuse("choice-without-tools", &[]))?;
    ensure(matches!(mode, "" | "AUTO" | "ANY" | "NONE" | "VALIDATED"), || {
        GEMINI.refuse("choice-mode", &[("mode", &mode)])
    })?;
    let allowed = items(&choice["allowedFunctionNames"]);
    ensure(allowed.is_empty() || matches!(mode, "ANY" | "VALIDATED"), || GEMINI.refuse("choice-names", &[]))?;
    let unknown = allowed.iter().find(|name| !names.contains(&word(name)));
    ensure(unknown.is_none(), || GEMINI.refuse("choice-unknown", &[("name", &unknown.map_or("", word))]))
}

fn settings(model: &str, body: &Value) -> Checked {
    let config = &body["generationConfig"];
    let thinking = &config["thinkingConfig"];
    let level = &thinking["thinkingLevel"];
    ensure(level.is_null() || thinking["thinkingBudget"].is_null(), || GEMINI.refuse("level-and-budget", &[]))?;
    ensure(level.is_null() || generation(model) >= 3.0, || GEMINI.refuse("level", &[]))?;
    ensure(thinking.is_null() || generation(model) >= 2.5, || GEMINI.refuse("thinking", &[]))?;
    ensure(!without_level(model, word(level)), || GEMINI.refuse("level-lacking", &[("level", &word(level))]))?;
    let never_off = model.starts_with("gemini-2.5-pro");
    ensure(!never_off || thinking["thinkingBudget"] != 0, || GEMINI.refuse("budget-zero", &[]))?;
    ensure(items(&config["stopSequences"]).len() <= 5, || GEMINI.refuse("stops", &[]))?;
    let json = config["responseMimeType"] == "application/json";
    let schema = !config["responseJsonSchema"].is_null() || !config["responseSchema"].is_null();
    ensure(json || !schema, || GEMINI.refuse("schema-without-json", &[]))?;
    ensure(!json || generation(model) >= 3.0 || declared(body).is_empty(), || GEMINI.refuse("json-and-tools", &[]))
}

/// Whether the model lacks a level that others of its generation have.
fn without_level(model: &str, level: &str) -> bool {
    let minimal = ["gemini-3-pro", "gemini-3.1-pro", "gemini-3.7-flash"];
    level == "MINIMAL" && minimal.iter().any(|start| model.starts_with(start))
}

fn instructions(body: &Value) -> Checked {
    let given = &body["systemInstruction"];
    let parts = items(&given["parts"]);
    let worded = parts.iter().all(|part| !word(&part["text"]).is_empty());
    ensure(given.is_null() || !parts.is_empty() && worded, || GEMINI.refuse("instructions", &[]))
}

fn contents(model: &str, contents: &[Value]) -> Checked {
    ensure(!contents.is_empty(), || GEMINI.refuse("contents", &[]))?;
    for (at, content) in contents.iter().enumerate() {
        ensure(matches!(word(&content["role"]), "user" | "model"), || GEMINI.refuse("role", &[]))?;
        let place = format!("GenerateContentRequest.contents[{at}].parts");
        let parts = items(&content["parts"]);
        ensure(!parts.is_empty(), || GEMINI.refuse("parts", &[("place", &place)]))?;
        for (number, part) in parts.iter().enumerate() {
            one(&format!("{place}[{number}]"), model, part)?;
        }
    }
    calls_are_answered(contents)
}

fn one(place: &str, model: &str, part: &Value) -> Checked {
    let wordless = part["text"] == "" && part["thoughtSignature"].is_null();
    let data = part.as_object().into_iter().flat_map(|part| part.keys());
    let mut data = data.filter(|key| !matches!(key.as_str(), "thought" | "thoughtSignature"));
    ensure(data.next().is_some() && !wordless, || GEMINI.refuse("part-data", &[("place", &place)]))?;
    let (call, response) = (&part["functionCall"], &part["functionResponse"]);
    for (kind, called) in [("function_call", call), ("function_response", response)] {
        ensure(called.is_null() || !word(&called["name"]).is_empty(), || {
            GEMINI.refuse("call-name", &[("place", &place), ("kind", &kind)])
        })?;
        ensure(called.is_null() || is_name(word(&called["name"]), 64, &['_', '-']), || {
            GEMINI.refuse("name", &[("place", &place), ("kind", &kind)])
        })?;
    }
    let args = call["args"].is_object() || call["args"].is_null();
    ensure(args, || GEMINI.refuse("args", &[("place", &place)]))?;
    ensure(response.is_null() || response["response"].is_object(), || GEMINI.refuse("response", &[("place", &place)]))?;
    ensure(response["parts"].is_null() || generation(model) >= 3.0, || GEMINI.refuse("media-in-response", &[]))
}

fn with<'a>(content: &'a Value, kind: &str) -> Vec<&'a Value> {
    items(&content["parts"]).iter().map(|part| &part[kind]).filter(|found| !found.is_null()).collect()
}

/// Checks that a content with calls is followed by one with as many responses, with the same names and ids.
fn calls_are_answered(contents: &[Value]) -> Checked {
    let none = Value::Null;
    for at in 0..=contents.len() {
        let content = contents.get(at).unwrap_or(&none);
        let before = at.checked_sub(1).map_or(&none, |before| &contents[before]);
        let calls = with(before, "functionCall");
        let responses = with(content, "functionResponse");
        ensure(responses.is_empty() || !calls.is_empty(), || GEMINI.refuse("response-alone", &[]))?;
        ensure(calls.len() == responses.len(), || GEMINI.refuse("response-count", &[]))?;
        for key in ["id", "name"] {
            let mut asked: Vec<&str> = calls.iter().map(|call| word(&call[key])).collect();
            let mut given: Vec<&str> = responses.iter().map(|it| word(&it[key])).collect();
            asked.sort_unstable();
            given.sort_unstable();
            // A response may have no id.
            let silent = key == "id" && given.iter().all(|id| id.is_empty());
            ensure(asked == given || silent, || {
                GEMINI.refuse(
                    "response-match",
                    &[("key", &key), ("given", &format!("{given:?}")), ("asked", &format!("{asked:?}"))],
                )
            })?;
        }
        let called = !with(content, "functionCall").is_empty();
        ensure(!called || before["role"] == "user", || GEMINI.refuse("call-after-model", &[]))?;
    }
    Ok(())
}

/// Checks that the first call of every step since the last user message is signed by this service.
fn signatures(model: &str, contents: &[Value], issued: &str) -> Checked {
    let asks = |content: &Value| content["role"] == "user" && with(content, "functionResponse").is_empty();
    let turn = contents.iter().rposition(asks).unwrap_or_default();
    for (at, content) in contents.iter().enumerate() {
        let parts = items(&content["parts"]);
        for signature in with(content, "thoughtSignature") {
            let known = word(signature) == UNCHECKED || issued.contains(word(signature));
            ensure(known && !word(signature).is_empty(), || GEMINI.refuse("signature", &[]))?;
        }
        let first = parts.iter().enumerate().find(|(_, part)| !part["functionCall"].is_null());
        let Some((number, part)) = first.filter(|_| at > turn && generation(model) >= 3.0) else {
            continue;
        };
        ensure(!part["thoughtSignature"].is_null(), || {
            GEMINI.refuse(
                "signature-missing",
                &[("name", &word(&part["functionCall"]["name"])), ("position", &(number + 1))],
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{
        super::rows::{check, covers},
        *,
    };

    fn says(role: &str, parts: Vec<Value>) -> Value {
        json!({"role": role, "parts": parts})
    }

    fn text(text: &str) -> Value {
        json!({"text": text})
    }

    fn call(name: &str) -> Value {
        json!({"functionCall": {"name": name, "args": {}}})
    }

    fn signed(mut part: Value, signature: &str) -> Value {
        part["thoughtSignature"] = json!(signature);
        part
    }

    fn response(name: &str) -> Value {
        json!({"functionResponse": {"name": name, "response": {"output": "red"}}})
    }

    fn base() -> Value {
        json!({"contents": [says("user", vec![text("?")])]})
    }

    fn given(contents: Vec<Value>) -> Vec<(&'static str, Value)> {
        vec![("/contents", json!(contents))]
    }

    fn asked(more: Vec<Value>) -> Vec<(&'static str, Value)> {
        given([vec![says("user", vec![text("?")])], more].concat())
    }

    #[test]
    fn conversations_that_gemini_refuses_are_refused_in_its_words() {
        of_conversations();
    }

    #[test]
    fn calls_of_the_current_turn_are_signed_for_gemini_3() {
        of_signatures();
    }

    #[test]
    fn settings_and_tools_that_gemini_refuses_are_refused_in_its_words() {
        of_settings();
        of_newer_settings();
    }

    #[test]
    fn each_refusal_of_gemini_has_a_row_and_each_row_a_case() {
        let refused = [of_conversations(), of_signatures(), of_settings(), of_newer_settings()];
        covers(&GEMINI, &refused);
    }

    fn of_conversations() -> BTreeSet<&'static str> {
        let number = "response-count";
        let cases = [
            ("a question", vec![], ""),
            ("no contents", given(vec![]), "contents"),
            ("another role", given(vec![says("system", vec![text("?")])]), "role"),
            ("no parts", given(vec![says("user", vec![])]), "parts"),
            ("an empty part", given(vec![says("user", vec![json!({})])]), "part-data"),
            ("an empty text", given(vec![says("user", vec![text("")])]), "part-data: contents[0].parts[0]"),
            (
                "an empty text with a signature",
                asked(vec![says("model", vec![signed(text(""), "ours")]), says("user", vec![text("!")])]),
                "",
            ),
            (
                "answered calls",
                asked(vec![
                    says("model", vec![call("look"), call("see")]),
                    says("user", vec![response("look"), response("see")]),
                ]),
                "",
            ),
            (
                "responses in two contents",
                asked(vec![
                    says("model", vec![call("look"), call("see")]),
                    says("user", vec![response("look")]),
                    says("user", vec![response("see")]),
                ]),
                number,
            ),
            ("a call at the end", asked(vec![says("model", vec![call("look")])]), number),
            (
                "a response twice",
                asked(vec![says("model", vec![call("look")]), says("user", vec![response("look"), response("look")])]),
                number,
            ),
            ("a response without a call", given(vec![says("user", vec![response("look")])]), "response-alone"),
            (
                "a response of another name",
                asked(vec![says("model", vec![call("look")]), says("user", vec![response("see")])]),
                "response-match: names",
            ),
            (
                "a first call",
                given(vec![says("model", vec![call("look")]), says("user", vec![response("look")])]),
                "call-after-model",
            ),
            (
                "a response without a name",
                asked(vec![says("model", vec![call("look")]), says("user", vec![response("")])]),
                "call-name: function_response",
            ),
            (
                "a name of a call with a dot",
                asked(vec![says("model", vec![call("look.up")]), says("user", vec![response("look.up")])]),
                "name: function_call",
            ),
            (
                "arguments that are no object",
                asked(vec![
                    says("model", vec![json!({"functionCall": {"name": "look", "args": "{}"}})]),
                    says("user", vec![response("look")]),
                ]),
                "args",
            ),
            (
                "a response that is no object",
                asked(vec![
                    says("model", vec![call("look")]),
                    says("user", vec![json!({"functionResponse": {"name": "look", "response": "red"}})]),
                ]),
                "response",
            ),
            (
                "a picture in a response",
                asked(vec![
                    says("model", vec![call("look")]),
                    says(
                        "user",
                        vec![json!({"functionResponse": {
                            "name": "look", "response": {}, "parts": [{"inlineData": {}}],
                        }})],
                    ),
                ]),
                "media-in-response",
            ),
            ("instructions without a word", vec![("/systemInstruction", json!({"parts": [text("")]}))], "instructions"),
        ];
        check(|body| refusal("gemini-2.5-flash", body, "ours"), &base(), &cases)
    }

    fn of_signatures() -> BTreeSet<&'static str> {
        let looks = |call: Value| vec![says("model", vec![call]), says("user", vec![response("look")])];
        let parallel = |first: Value| {
            vec![
                says("model", vec![text("So."), first, call("see")]),
                says("user", vec![response("look"), response("see")]),
            ]
        };
        let own = || signed(call("look"), "ours");
        let missing = "signature-missing";
        let cases = [
            ("a signed call", asked(looks(own())), ""),
            ("parallel calls, the first signed", asked(parallel(own())), ""),
            ("parallel calls, none signed", asked(parallel(call("look"))), missing),
            ("an unsigned call", asked(looks(call("look"))), missing),
            ("an unsigned second step", asked([looks(own()), looks(call("look"))].concat()), missing),
            (
                "an unsigned call of an earlier turn",
                asked([looks(call("look")), vec![says("user", vec![text("!")])]].concat()),
                "",
            ),
            ("no signature known", asked(looks(signed(call("look"), UNCHECKED))), ""),
            ("another signature", asked(looks(signed(call("look"), "theirs"))), "signature"),
        ];
        check(|body| refusal("gemini-3-pro-preview", body, "ours"), &base(), &cases)
    }

    /// Cases of settings that some models accept and others refuse. Returns the rows that refused one.
    fn of_newer_settings() -> BTreeSet<&'static str> {
        let thinking = |thinking: Value| vec![("/generationConfig", json!({"thinkingConfig": thinking}))];
        let of = |model: &'static str, what: &'static str, setting: Value, expected: &'static str| {
            let case = (what, thinking(setting), expected);
            check(|body| refusal(model, body, ""), &base(), &[case])
        };
        let minimal = json!({"thinkingLevel": "MINIMAL"});
        let none = json!({"thinkingBudget": 0});
        let refused = [
            of("gemini-3-pro-preview", "a level that it lacks", minimal.clone(), "level-lacking: MINIMAL"),
            of("gemini-3-flash", "a level that it has", minimal, ""),
            of("gemini-2.5-pro", "no thinking", none.clone(), "budget-zero"),
            of("gemini-2.5-flash", "no thinking", none.clone(), ""),
            of("gemini-2.0-flash", "thinking", none, "thinking"),
        ];
        refused.into_iter().flatten().collect()
    }

    fn of_settings() -> BTreeSet<&'static str> {
        let tool = |name: &str, key: &str, schema: Value| {
            ("/tools", json!([{"functionDeclarations": [{"name": name, key: schema}]}]))
        };
        let object = || json!({"type": "object", "additionalProperties": false});
        let look = || tool("look", "parametersJsonSchema", object());
        let choice = |choice: Value| ("/toolConfig", json!({"functionCallingConfig": choice}));
        let config = |config: Value| ("/generationConfig", config);
        let cases = [
            ("a tool", vec![look()], ""),
            ("a name with dots", vec![tool("a.b:c-d", "parametersJsonSchema", object())], ""),
            ("a name that begins with a digit", vec![tool("1look", "parametersJsonSchema", object())], "tool-name"),
            (
                "a keyword that OpenAPI lacks",
                vec![tool("look", "parameters", object())],
                "openapi: additionalProperties",
            ),
            (
                "a schema that is no object",
                vec![tool("look", "parametersJsonSchema", json!({"type": "string"}))],
                "tool-schema",
            ),
            (
                "two schemas",
                vec![(
                    "/tools",
                    json!([{"functionDeclarations": [{
                        "name": "look", "parameters": object(), "parametersJsonSchema": object(),
                    }]}]),
                )],
                "two-schemas",
            ),
            (
                "a name twice",
                vec![("/tools", json!([{"functionDeclarations": [{"name": "look"}, {"name": "look"}]}]))],
                "tool-twice: look",
            ),
            ("an unknown mode", vec![look(), choice(json!({"mode": "REQUIRED"}))], "choice-mode: REQUIRED"),
            ("a choice without tools", vec![choice(json!({"mode": "ANY"}))], "choice-without-tools"),
            (
                "the choice of a tool",
                vec![look(), choice(json!({"mode": "ANY", "allowedFunctionNames": ["look"]}))],
                "",
            ),
            (
                "the choice of an unknown tool",
                vec![look(), choice(json!({"mode": "ANY", "allowedFunctionNames": ["see"]}))],
                "choice-unknown: see",
            ),
            (
                "names without being forced",
                vec![look(), choice(json!({"mode": "AUTO", "allowedFunctionNames": ["look"]}))],
                "choice-names",
            ),
            ("a level for an older model", vec![config(json!({"thinkingConfig": {"thinkingLevel": "LOW"}}))], "level"),
            (
                "a level and a budget",
                vec![config(json!({"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 1}}))],
                "level-and-budget",
            ),
            ("a schema without its type", vec![config(json!({"responseJsonSchema": {}}))], "schema-without-json"),
            (
                "JSON and tools for an older model",
                vec![look(), config(json!({"responseMimeType": "application/json"}))],
                "json-and-tools",
            ),
            ("six stop sequences", vec![config(json!({"stopSequences": ["a", "b", "c", "d", "e", "f"]}))], "stops"),
        ];
        check(|body| refusal("gemini-2.5-flash", body, ""), &base(), &cases)
    }

    #[test]
    fn the_path_tells_the_model() {
        let path = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
        assert_eq!(model_of(path), "gemini-3-pro");
        assert_eq!(model_of("/v1/messages"), "");
    }
}

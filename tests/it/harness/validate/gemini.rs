//! What Gemini's generateContent refuses.

use serde_json::Value;

use super::{Checked, ensure, is_name, items, repeated, word};

/// What stands in place of a signature where there is none: the service does not look at it.
const UNCHECKED: &str = "skip_thought_signature_validator";

/// Keywords that `parameters`, a part of OpenAPI, does not have.
const NOT_OPENAPI: &[&str] = &[
    "$ref",
    "$defs",
    "$schema",
    "additionalProperties",
    "oneOf",
    "allOf",
    "const",
];

/// The model in a path.
pub fn model_of(path: &str) -> &str {
    let name = path.rsplit_once("/models/").map_or("", |(_, name)| name);
    name.split([':', '?']).next().unwrap_or_default()
}

/// Why Gemini refuses the request for that model; `None` if it takes it. A signature is in
/// `issued`.
pub fn refusal(model: &str, body: &Value, issued: &str) -> Option<String> {
    tools(body)
        .and_then(|()| settings(model, body))
        .and_then(|()| instructions(body))
        .and_then(|()| contents(model, items(&body["contents"])))
        .and_then(|()| signatures(model, items(&body["contents"]), issued))
        .err()
}

/// The generation of a model by its name; a name without a number is of the newest.
fn generation(model: &str) -> f32 {
    let number = |word: &str| word.parse().ok();
    model.split('-').find_map(number).unwrap_or(f32::MAX)
}

fn declared(body: &Value) -> Vec<&Value> {
    items(&body["tools"])
        .iter()
        .flat_map(|tool| items(&tool["functionDeclarations"]))
        .collect()
}

fn tools(body: &Value) -> Checked {
    let declared = declared(body);
    for (at, function) in declared.iter().enumerate() {
        let place = format!("GenerateContentRequest.tools[0].function_declarations[{at}]");
        let name = word(&function["name"]);
        let first = name.chars().next().unwrap_or('0');
        ensure(
            is_name(name, 128, &['_', '-', '.', ':'])
                && (first.is_ascii_alphabetic() || first == '_'),
            || {
                format!(
                    "* {place}.name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
                )
            },
        )?;
        let openapi = &function["parameters"];
        let schema = &function["parametersJsonSchema"];
        ensure(openapi.is_null() || schema.is_null(), || {
            format!("* {place}: only one of parameters and parameters_json_schema may be set.")
        })?;
        let given = if schema.is_null() { openapi } else { schema };
        let is_object = word(&given["type"]).eq_ignore_ascii_case("object");
        ensure(given.is_null() || is_object, || {
            format!(
                "* {place}.parameters: functionDeclaration parameters schema should be of type OBJECT."
            )
        })?;
        openapi_only(openapi)?;
    }
    let names = declared.iter().map(|function| word(&function["name"]));
    ensure(repeated(names.clone()).is_none(), || {
        format!(
            "Duplicate function declaration found: {}",
            repeated(names.clone()).unwrap_or_default()
        )
    })?;
    choice(body, &names.collect::<Vec<_>>())
}

fn openapi_only(schema: &Value) -> Checked {
    match schema {
        Value::Object(fields) => {
            let strange = fields
                .keys()
                .find(|key| NOT_OPENAPI.contains(&key.as_str()));
            ensure(strange.is_none(), || {
                format!(
                    "Invalid JSON payload received. Unknown name \"{}\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
                    strange.map_or("", String::as_str)
                )
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
    ensure(choice.is_null() || !names.is_empty(), || {
        "Function calling config is set without function_declarations.".to_owned()
    })?;
    ensure(
        matches!(mode, "" | "AUTO" | "ANY" | "NONE" | "VALIDATED"),
        || {
            format!(
                "Invalid value at 'tool_config.function_calling_config.mode' (type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), \"{mode}\""
            )
        },
    )?;
    let allowed = items(&choice["allowedFunctionNames"]);
    ensure(
        allowed.is_empty() || matches!(mode, "ANY" | "VALIDATED"),
        || "Please set allowed_function_names only when function calling mode is ANY.".to_owned(),
    )?;
    let unknown = allowed.iter().find(|name| !names.contains(&word(name)));
    ensure(unknown.is_none(), || {
        format!(
            "allowed_function_names contains a function that is not declared: {}",
            unknown.map_or("", word)
        )
    })
}

fn settings(model: &str, body: &Value) -> Checked {
    let config = &body["generationConfig"];
    let thinking = &config["thinkingConfig"];
    let level = &thinking["thinkingLevel"];
    ensure(
        level.is_null() || thinking["thinkingBudget"].is_null(),
        || "You can only set only one of thinking budget and thinking level.".to_owned(),
    )?;
    ensure(level.is_null() || generation(model) >= 3.0, || {
        "Thinking level is not supported for this model.".to_owned()
    })?;
    ensure(thinking.is_null() || generation(model) >= 2.5, || {
        "Thinking is not enabled for this model.".to_owned()
    })?;
    ensure(items(&config["stopSequences"]).len() <= 5, || {
        "The number of stop sequences must not be greater than 5.".to_owned()
    })?;
    let json = config["responseMimeType"] == "application/json";
    let schema = !config["responseJsonSchema"].is_null() || !config["responseSchema"].is_null();
    ensure(json || !schema, || {
        "response_mime_type must be set to application/json when response_schema is set.".to_owned()
    })?;
    ensure(
        !json || generation(model) >= 3.0 || declared(body).is_empty(),
        || {
            "Function calling with a response mime type: 'application/json' is unsupported"
                .to_owned()
        },
    )
}

fn instructions(body: &Value) -> Checked {
    let given = &body["systemInstruction"];
    let parts = items(&given["parts"]);
    let worded = parts.iter().all(|part| !word(&part["text"]).is_empty());
    ensure(given.is_null() || !parts.is_empty() && worded, || {
        "* GenerateContentRequest.system_instruction.parts: contents.parts must not be empty."
            .to_owned()
    })
}

fn contents(model: &str, contents: &[Value]) -> Checked {
    ensure(!contents.is_empty(), || {
        "* GenerateContentRequest.contents: contents is not specified".to_owned()
    })?;
    for (at, content) in contents.iter().enumerate() {
        ensure(matches!(word(&content["role"]), "user" | "model"), || {
            "Please use a valid role: user, model.".to_owned()
        })?;
        let place = format!("GenerateContentRequest.contents[{at}].parts");
        let parts = items(&content["parts"]);
        ensure(!parts.is_empty(), || {
            format!("* {place}: contents.parts must not be empty.")
        })?;
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
    ensure(data.next().is_some() && !wordless, || {
        format!("* {place}.data: required oneof field 'data' must have one initialized field")
    })?;
    let (call, response) = (&part["functionCall"], &part["functionResponse"]);
    for (kind, called) in [("function_call", call), ("function_response", response)] {
        ensure(
            called.is_null() || !word(&called["name"]).is_empty(),
            || format!("* {place}.{kind}.name: Name cannot be empty."),
        )?;
    }
    let args = call["args"].is_object() || call["args"].is_null();
    ensure(args, || {
        format!(
            "Invalid value at '{place}.function_call.args' (type.googleapis.com/google.protobuf.Struct)"
        )
    })?;
    ensure(
        response.is_null() || response["response"].is_object(),
        || {
            format!(
                "Invalid value at '{place}.function_response.response' (type.googleapis.com/google.protobuf.Struct)"
            )
        },
    )?;
    ensure(
        response["parts"].is_null() || generation(model) >= 3.0,
        || "Multimodal function response is not supported for this model.".to_owned(),
    )
}

fn with<'a>(content: &'a Value, kind: &str) -> Vec<&'a Value> {
    items(&content["parts"])
        .iter()
        .map(|part| &part[kind])
        .filter(|found| !found.is_null())
        .collect()
}

/// A content with calls is followed by one with as many responses, of the same names and ids.
fn calls_are_answered(contents: &[Value]) -> Checked {
    let none = Value::Null;
    for at in 0..=contents.len() {
        let content = contents.get(at).unwrap_or(&none);
        let before = at.checked_sub(1).map_or(&none, |before| &contents[before]);
        let calls = with(before, "functionCall");
        let responses = with(content, "functionResponse");
        ensure(responses.is_empty() || !calls.is_empty(), || {
            "Please ensure that function response turn comes immediately after a function call turn."
                .to_owned()
        })?;
        ensure(calls.len() == responses.len(), || {
            "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
                .to_owned()
        })?;
        for key in ["id", "name"] {
            let mut asked: Vec<&str> = calls.iter().map(|call| word(&call[key])).collect();
            let mut given: Vec<&str> = responses.iter().map(|it| word(&it[key])).collect();
            asked.sort_unstable();
            given.sort_unstable();
            // A response may do without an id.
            let silent = key == "id" && given.iter().all(|id| id.is_empty());
            ensure(asked == given || silent, || {
                format!(
                    "function response {key}s {given:?} do not match function call {key}s {asked:?}"
                )
            })?;
        }
        let called = !with(content, "functionCall").is_empty();
        ensure(!called || before["role"] == "user", || {
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
                .to_owned()
        })?;
    }
    Ok(())
}

/// The first call of every step since the user spoke last is signed, by this service.
fn signatures(model: &str, contents: &[Value], issued: &str) -> Checked {
    let asks =
        |content: &Value| content["role"] == "user" && with(content, "functionResponse").is_empty();
    let turn = contents.iter().rposition(asks).unwrap_or_default();
    for (at, content) in contents.iter().enumerate() {
        let parts = items(&content["parts"]);
        for signature in with(content, "thoughtSignature") {
            let known = word(signature) == UNCHECKED || issued.contains(word(signature));
            ensure(known && !word(signature).is_empty(), || {
                "Corrupted thought signature.".to_owned()
            })?;
        }
        let first = parts
            .iter()
            .enumerate()
            .find(|(_, part)| !part["functionCall"].is_null());
        let Some((number, part)) = first.filter(|_| at > turn && generation(model) >= 3.0) else {
            continue;
        };
        ensure(!part["thoughtSignature"].is_null(), || {
            format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{}`, position {}.",
                word(&part["functionCall"]["name"]),
                number + 1
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check, *};

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
        let number = "number of function response parts is equal";
        let cases = [
            ("a question", vec![], ""),
            ("no contents", given(vec![]), "contents is not specified"),
            (
                "another role",
                given(vec![says("system", vec![text("?")])]),
                "valid role: user, model",
            ),
            (
                "no parts",
                given(vec![says("user", vec![])]),
                "contents.parts must not be empty",
            ),
            (
                "an empty part",
                given(vec![says("user", vec![json!({})])]),
                "required oneof field 'data'",
            ),
            (
                "an empty text",
                given(vec![says("user", vec![text("")])]),
                "contents[0].parts[0].data",
            ),
            (
                "an empty text with a signature",
                asked(vec![
                    says("model", vec![signed(text(""), "ours")]),
                    says("user", vec![text("!")]),
                ]),
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
            (
                "a call at the end",
                asked(vec![says("model", vec![call("look")])]),
                number,
            ),
            (
                "a response twice",
                asked(vec![
                    says("model", vec![call("look")]),
                    says("user", vec![response("look"), response("look")]),
                ]),
                number,
            ),
            (
                "a response without a call",
                given(vec![says("user", vec![response("look")])]),
                "immediately after a function call turn",
            ),
            (
                "a response of another name",
                asked(vec![
                    says("model", vec![call("look")]),
                    says("user", vec![response("see")]),
                ]),
                "do not match function call names",
            ),
            (
                "a first call",
                given(vec![
                    says("model", vec![call("look")]),
                    says("user", vec![response("look")]),
                ]),
                "function call turn comes immediately after a user turn",
            ),
            (
                "a response without a name",
                asked(vec![
                    says("model", vec![call("look")]),
                    says("user", vec![response("")]),
                ]),
                "function_response.name: Name cannot be empty",
            ),
            (
                "a response that is no object",
                asked(vec![
                    says("model", vec![call("look")]),
                    says(
                        "user",
                        vec![json!({"functionResponse": {"name": "look", "response": "red"}})],
                    ),
                ]),
                "function_response.response' (type.googleapis.com/google.protobuf.Struct)",
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
                "not supported for this model",
            ),
            (
                "instructions without a word",
                vec![("/systemInstruction", json!({"parts": [text("")]}))],
                "system_instruction.parts",
            ),
        ];
        check(
            |body| refusal("gemini-2.5-flash", body, "ours"),
            &base(),
            &cases,
        );
    }

    #[test]
    fn calls_of_the_current_turn_are_signed_for_gemini_3() {
        let looks = |call: Value| {
            vec![
                says("model", vec![call]),
                says("user", vec![response("look")]),
            ]
        };
        let parallel = |first: Value| {
            vec![
                says("model", vec![text("So."), first, call("see")]),
                says("user", vec![response("look"), response("see")]),
            ]
        };
        let own = || signed(call("look"), "ours");
        let missing = "Function call is missing a thought_signature in functionCall parts";
        let cases = [
            ("a signed call", asked(looks(own())), ""),
            (
                "parallel calls, the first signed",
                asked(parallel(own())),
                "",
            ),
            (
                "parallel calls, none signed",
                asked(parallel(call("look"))),
                missing,
            ),
            ("an unsigned call", asked(looks(call("look"))), missing),
            (
                "an unsigned second step",
                asked([looks(own()), looks(call("look"))].concat()),
                missing,
            ),
            (
                "an unsigned call of an earlier turn",
                asked([looks(call("look")), vec![says("user", vec![text("!")])]].concat()),
                "",
            ),
            (
                "no signature known",
                asked(looks(signed(call("look"), UNCHECKED))),
                "",
            ),
            (
                "another signature",
                asked(looks(signed(call("look"), "theirs"))),
                "Corrupted thought",
            ),
        ];
        check(
            |body| refusal("gemini-3-pro-preview", body, "ours"),
            &base(),
            &cases,
        );
    }

    #[test]
    fn settings_and_tools_that_gemini_refuses_are_refused_in_its_words() {
        let tool = |name: &str, key: &str, schema: Value| {
            (
                "/tools",
                json!([{"functionDeclarations": [{"name": name, key: schema}]}]),
            )
        };
        let object = || json!({"type": "object", "additionalProperties": false});
        let look = || tool("look", "parametersJsonSchema", object());
        let choice = |choice: Value| ("/toolConfig", json!({"functionCallingConfig": choice}));
        let config = |config: Value| ("/generationConfig", config);
        let cases = [
            ("a tool", vec![look()], ""),
            (
                "a name with dots",
                vec![tool("a.b:c-d", "parametersJsonSchema", object())],
                "",
            ),
            (
                "a name that begins with a digit",
                vec![tool("1look", "parametersJsonSchema", object())],
                "Invalid function name",
            ),
            (
                "a keyword that OpenAPI lacks",
                vec![tool("look", "parameters", object())],
                "Unknown name \"additionalProperties\"",
            ),
            (
                "a schema that is no object",
                vec![tool(
                    "look",
                    "parametersJsonSchema",
                    json!({"type": "string"}),
                )],
                "should be of type OBJECT",
            ),
            (
                "a choice without tools",
                vec![choice(json!({"mode": "ANY"}))],
                "without function_declarations",
            ),
            (
                "the choice of a tool",
                vec![
                    look(),
                    choice(json!({"mode": "ANY", "allowedFunctionNames": ["look"]})),
                ],
                "",
            ),
            (
                "the choice of an unknown tool",
                vec![
                    look(),
                    choice(json!({"mode": "ANY", "allowedFunctionNames": ["see"]})),
                ],
                "not declared: see",
            ),
            (
                "names without being forced",
                vec![
                    look(),
                    choice(json!({"mode": "AUTO", "allowedFunctionNames": ["look"]})),
                ],
                "only when function calling mode is ANY",
            ),
            (
                "a level for an older model",
                vec![config(json!({"thinkingConfig": {"thinkingLevel": "LOW"}}))],
                "Thinking level is not supported",
            ),
            (
                "a level and a budget",
                vec![config(
                    json!({"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 1}}),
                )],
                "only one of thinking budget and thinking level",
            ),
            (
                "a schema without its type",
                vec![config(json!({"responseJsonSchema": {}}))],
                "response_mime_type must be set",
            ),
            (
                "JSON and tools for an older model",
                vec![
                    look(),
                    config(json!({"responseMimeType": "application/json"})),
                ],
                "Function calling with a response mime type",
            ),
            (
                "six stop sequences",
                vec![config(
                    json!({"stopSequences": ["a", "b", "c", "d", "e", "f"]}),
                )],
                "stop sequences",
            ),
        ];
        check(
            |body| refusal("gemini-2.5-flash", body, ""),
            &base(),
            &cases,
        );
    }

    #[test]
    fn the_path_tells_the_model() {
        let path = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
        assert_eq!(model_of(path), "gemini-3-pro");
        assert_eq!(model_of("/v1/messages"), "");
    }
}

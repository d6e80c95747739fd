//! The two demo tools of the chat, which show tool calls at work. Their results are made up, and say so.

use serde_json::Value;

use contextd_proto::{self as pb, json_schema::Schema, part::Content};

/// A demo tool.
struct Demo {
    name: &'static str,
    description: &'static str,
    run: fn(city: &str) -> String,
}

const CITY: &str = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;

const TOOLS: [Demo; 2] = [
    Demo {
        name: "get_weather",
        description: "Current weather of a city. A demonstration: the answer is made up.",
        run: |city| format!("18 °C and sunny in {city} (made-up demo data)"),
    },
    Demo {
        name: "get_time",
        description: "Local time of a city. A demonstration: the answer is made up.",
        run: |city| format!("14:05 in {city} (made-up demo data)"),
    },
];

/// The tool set sent to the model.
pub(super) fn offered(ask_first: bool) -> pb::ToolSet {
    let tool = |tool: &Demo| pb::Tool {
        name: tool.name.to_owned(),
        description: tool.description.to_owned(),
        input_schema: Some(pb::JsonSchema { schema: Some(Schema::Json(CITY.to_owned())) }),
        requires_approval: ask_first,
        ..pb::Tool::default()
    };
    pb::ToolSet { host_tools: TOOLS.iter().map(tool).collect(), ..pb::ToolSet::default() }
}

/// Runs a tool call. A failure is reported to the model, which may retry.
pub(super) fn run(call: &pb::ToolCall) -> pb::ToolResult {
    let (outcome, text) = match run_demo(call) {
        Ok(text) => (pb::ToolOutcome::Success, text),
        Err(why) => (pb::ToolOutcome::Error, why),
    };
    pb::ToolResult {
        call_id: call.call_id.clone(),
        parts: vec![pb::Part { content: Some(Content::Text(text)), ..pb::Part::default() }],
        outcome: outcome.into(),
        ..pb::ToolResult::default()
    }
}

fn run_demo(call: &pb::ToolCall) -> Result<String, String> {
    let tool = TOOLS.iter().find(|tool| tool.name == call.tool_name);
    let tool = tool.ok_or_else(|| format!("unknown tool: {}", call.tool_name))?;
    let arguments: Value = serde_json::from_str(&call.arguments_json).map_err(|error| error.to_string())?;
    let city = arguments["city"].as_str().ok_or("the argument `city` is missing or not a string")?;
    Ok((tool.run)(city))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_tools_return_a_result_or_say_what_is_wrong_with_the_call() {
        fn check(tool: &str, arguments: &str, outcome: pb::ToolOutcome, expected: &str) {
            let call = pb::ToolCall {
                call_id: "c".to_owned(),
                tool_name: tool.to_owned(),
                arguments_json: arguments.to_owned(),
                arguments_blob: None,
            };
            let result = run(&call);
            let Some(Content::Text(text)) = &result.parts[0].content else { panic!("no text") };
            assert_eq!((result.outcome(), result.call_id.as_str()), (outcome, "c"));
            assert!(text.contains(expected), "{text}");
        }
        use pb::ToolOutcome::{Error, Success};
        check("get_weather", r#"{"city":"Rome"}"#, Success, "18 °C and sunny in Rome (made-up demo data)");
        check("get_time", r#"{"city":"Rome"}"#, Success, "14:05 in Rome (made-up demo data)");
        check("get_time", "{}", Error, "city");
        check("get_time", r#"{"city":7}"#, Error, "city");
        check("get_time", "", Error, "EOF");
        check("rm", "{}", Error, "unknown tool: rm");
    }
}

//! Tests tools, their schemas and the limits on their output.

use std::time::Duration;

use super::*;
use crate::model::{Keep, OutputLimits, Tool, ToolCategory, ToolSet};

fn set(set: pb::ToolSet) -> Result<Option<ToolSet>, RequestError> {
    decoded(turn_with(|r| r.tools = Some(set))).map(|(command, _)| command.request.tools)
}

fn tool(name: &str) -> pb::Tool {
    pb::Tool { name: name.into(), ..Default::default() }
}

fn tools(host_tools: Vec<pb::Tool>) -> Result<Option<ToolSet>, RequestError> {
    set(pb::ToolSet { host_tools, ..pb::ToolSet::default() })
}

fn one(tool: pb::Tool) -> Tool {
    tools(vec![tool]).unwrap().unwrap().tools.remove(0)
}

#[track_caller]
fn check_tool(tool: pb::Tool, field: &str, reason: FieldReason) {
    check(tools(vec![tool]), &[(&format!("tools.host_tools[0].{field}"), reason)]);
}

fn with_schema(schema: Option<pb::json_schema::Schema>) -> pb::Tool {
    pb::Tool { input_schema: Some(pb::JsonSchema { schema }), ..tool("t") }
}

fn json(text: &str) -> pb::Tool {
    with_schema(Some(pb::json_schema::Schema::Json(text.into())))
}

fn value(fields: &[(&str, prost_types::value::Kind)]) -> pb::Tool {
    let value = |kind: &prost_types::value::Kind| prost_types::Value { kind: Some(kind.clone()) };
    let fields = fields.iter().map(|(name, kind)| ((*name).to_owned(), value(kind))).collect();
    with_schema(Some(pb::json_schema::Schema::Value(prost_types::Struct { fields })))
}

#[test]
fn an_empty_set_replaces_and_an_absent_one_does_not() {
    assert_eq!(tools(vec![]).unwrap(), Some(ToolSet::default()));
    assert_eq!(decoded(hello()).unwrap().0.request.tools, None);
}

#[test]
fn tool_names_have_allowed_characters_and_lengths() {
    assert_eq!(one(tool("aZ0_-")).name, "aZ0_-");
    check(tools(vec![tool(&"a".repeat(64))]), &[]);
    check_tool(tool(""), "name", Required);
    check_tool(tool(&"a".repeat(65)), "name", TooLarge);
    for name in ["a b", "a.b", "ä", "a\0"] {
        check_tool(tool(name), "name", Invalid);
    }
}

#[test]
fn tool_names_are_unique() {
    let result = tools(vec![tool("a"), tool("b"), tool("a"), tool("a")]);
    let Err(RequestError::Invalid(violations)) = &result else { panic!("is invalid") };
    assert!(violations.listed[0].description.contains("tools.host_tools[0]"));
    check(result, &[("tools.host_tools[2].name", Conflict), ("tools.host_tools[3].name", Conflict)]);
}

#[test]
fn a_set_has_at_most_512_tools() {
    let many = |count: usize| (0..count).map(|i| tool(&i.to_string())).collect();
    check(tools(many(512)), &[]);
    check(tools(many(513)), &[("tools", TooLarge)]);
}

#[test]
fn every_field_of_a_tool_is_decoded() {
    let wire = pb::Tool {
        name: "t".into(),
        description: "does\0".into(),
        input_schema: None,
        requires_approval: true,
        timeout: seconds(86_400),
        output_limits: Some(pb::ToolOutputLimits { max_lines: 3, ..Default::default() }),
        category: pb::ContextCategory::McpTools.into(),
        deferred: true,
        strict: Some(false),
        mcp: None,
    };
    let expected = Tool {
        name: "t".into(),
        description: "does\u{FFFD}".into(),
        input_schema: None,
        requires_approval: true,
        timeout: Some(Duration::from_secs(86_400)),
        output_limits: Some(OutputLimits { max_lines: Some(3), ..Default::default() }),
        category: ToolCategory::McpTools,
        deferred: true,
        strict: Some(false),
        mcp: None,
    };
    assert_eq!(one(wire), expected);
}

#[test]
fn schemas_in_text_are_json_objects_and_stay_as_they_are() {
    let schema = "{ \"type\":\"object\", \"b\":1.0, \"a\":1e2 }";
    assert_eq!(one(json(schema)).input_schema.as_deref(), Some(schema));
    for text in ["", "[]", "{", "true", "{\"a\":\"\0\"}"] {
        check_tool(json(text), "input_schema.json", NotJson);
    }
}

#[test]
fn schemas_are_at_most_256_kibibytes() {
    let of = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    check(tools(vec![json(&of(256 * 1024))]), &[]);
    check_tool(json(&of(256 * 1024 + 1)), "input_schema.json", TooLarge);
    let long = prost_types::value::Kind::StringValue("x".repeat(256 * 1024));
    check_tool(value(&[("a", long)]), "input_schema.value", TooLarge);
}

#[test]
fn schemas_as_objects_become_text() {
    use prost_types::{ListValue, Struct, Value, value::Kind};
    let list = ListValue { values: vec![Value { kind: Some(Kind::NumberValue(1.0)) }] };
    let schema = value(&[
        ("type", Kind::StringValue("object".into())),
        ("minimum", Kind::NumberValue(0.5)),
        ("enum", Kind::ListValue(list)),
        ("default", Kind::NullValue(0)),
        ("additionalProperties", Kind::BoolValue(false)),
        ("properties", Kind::StructValue(Struct::default())),
    ]);
    let expected = "{\"additionalProperties\":false,\"default\":null,\"enum\":[1],\"minimum\":0.5,\"properties\":{},\"type\":\"object\"}";
    assert_eq!(one(schema).input_schema.as_deref(), Some(expected));
}

#[test]
fn schemas_are_text_or_struct_with_json_values_only() {
    use prost_types::value::Kind;
    check_tool(with_schema(None), "input_schema", Invalid);
    check_tool(value(&[("a", Kind::NumberValue(f64::NAN))]), "input_schema.value", Invalid);
    let unset = prost_types::Struct { fields: [("a".to_owned(), prost_types::Value { kind: None })].into() };
    check_tool(with_schema(Some(pb::json_schema::Schema::Value(unset))), "input_schema.value", Invalid);
}

#[test]
fn a_tool_waits_at_most_a_day() {
    assert_eq!(one(pb::Tool { timeout: seconds(0), ..tool("t") }).timeout, None);
    check_tool(pb::Tool { timeout: seconds(86_401), ..tool("t") }, "timeout", OutOfRange);
    check_tool(pb::Tool { timeout: seconds(-1), ..tool("t") }, "timeout", OutOfRange);
    for malformed in malformed() {
        check_tool(pb::Tool { timeout: Some(malformed), ..tool("t") }, "timeout", Invalid);
    }
}

#[test]
fn a_tool_counts_in_its_category() {
    use pb::ContextCategory as Wire;
    let of = |category: Wire| pb::Tool { category: category.into(), ..tool("t") };
    let taken = [
        (Wire::Unspecified, ToolCategory::Tools),
        (Wire::Tools, ToolCategory::Tools),
        (Wire::McpTools, ToolCategory::McpTools),
        (Wire::Skills, ToolCategory::Skills),
        (Wire::Agents, ToolCategory::Agents),
    ];
    for (wire, category) in taken {
        assert_eq!(one(of(wire)).category, category);
    }
    for wire in [Wire::Memory, Wire::Pinned, Wire::DeferredTools, Wire::User] {
        check_tool(of(wire), "category", Unsupported);
    }
    check_tool(pb::Tool { category: 99, ..tool("t") }, "category", Unknown);
}

#[test]
fn limits_on_output_are_counts_where_zero_is_none() {
    let limited = |limits| pb::Tool { output_limits: Some(limits), ..tool("t") };
    assert_eq!(one(limited(Default::default())).output_limits, Some(OutputLimits::default()));
    let wire = pb::ToolOutputLimits {
        max_output_chars: 1,
        max_lines: 2,
        max_line_length: 3,
        max_matches: 4,
        keep: pb::KeepPart::HeadAndTail.into(),
    };
    let expected = OutputLimits {
        max_chars: Some(1),
        max_lines: Some(2),
        max_line_length: Some(3),
        max_matches: Some(4),
        keep: Some(Keep::HeadAndTail),
    };
    assert_eq!(one(limited(wire)).output_limits, Some(expected));
    let wrong =
        pb::ToolOutputLimits { max_output_chars: -1, max_lines: -1, max_line_length: -1, max_matches: -1, keep: 9 };
    let at = "tools.host_tools[0].output_limits";
    check(
        tools(vec![limited(wrong)]),
        &[
            (&format!("{at}.max_output_chars"), OutOfRange),
            (&format!("{at}.max_lines"), OutOfRange),
            (&format!("{at}.max_line_length"), OutOfRange),
            (&format!("{at}.max_matches"), OutOfRange),
            (&format!("{at}.keep"), Unknown),
        ],
    );
}

#[test]
fn a_tool_may_ask_for_approval() {
    let asks = pb::Tool { requires_approval: true, ..tool("b") };
    let read = tools(vec![tool("a"), asks]).unwrap();
    assert_eq!(read.unwrap().tools.iter().map(|tool| tool.requires_approval).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn provider_tools_are_validated() {
    let set_of = |provider: &str, json: &str| {
        let tool = pb::ProviderTool { provider: provider.into(), definition_json: json.into() };
        set(pb::ToolSet { host_tools: vec![], provider_tools: vec![tool], ..pb::ToolSet::default() })
    };
    let read = set_of("anthropic", r#"{"type":"web_search"}"#).expect("valid").expect("a tool set");
    assert_eq!(read.run_by("anthropic").collect::<Vec<_>>(), [r#"{"type":"web_search"}"#]);
    assert_eq!(read.run_by("openai").count(), 0);
    let at = "tools.provider_tools[0]";
    check(set_of("", "x"), &[(&format!("{at}.provider"), Required), (&format!("{at}.definition_json"), NotJson)]);
}

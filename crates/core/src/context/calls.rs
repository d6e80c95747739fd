//! Decides which of a model's tool calls are run.

use crate::model::{FinishReason, ToolCall, ToolSet, event::CallCancelReason};

/// Checks whether a call may be run: the response is complete, the arguments are a JSON object, and the tool exists.
///
/// Some providers report `Stop` for a response with calls, so calls are run for both `Stop` and `ToolCalls`.
///
/// # Errors
///
/// The reason for which the call is closed instead.
pub fn check_executable(finish: FinishReason, call: &ToolCall, tools: &ToolSet) -> Result<(), CallCancelReason> {
    if !lets_calls_run(finish) || !call.has_object() {
        return Err(CallCancelReason::Incomplete);
    }
    if tools.get(&call.name).is_some() || tools.host_runs(&call.name) {
        Ok(())
    } else {
        Err(CallCancelReason::UnknownTool)
    }
}

/// Whether the calls of a response with this finish reason are complete.
fn lets_calls_run(finish: FinishReason) -> bool {
    match finish {
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Paused => true,
        FinishReason::Length
        | FinishReason::ContentFilter
        | FinishReason::Refusal
        | FinishReason::Error
        | FinishReason::Cancelled => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::testing,
        model::{CallId, ProviderTool},
    };

    fn check(finish: FinishReason, name: &str, arguments: &str) -> Result<(), CallCancelReason> {
        let tools = ToolSet { tools: vec![testing::tool("read")], ..ToolSet::default() };
        let call = ToolCall { id: CallId::new("c1"), name: name.to_owned(), arguments: arguments.to_owned() };
        check_executable(finish, &call, &tools)
    }

    #[test]
    fn tool_calls_run_only_if_the_answer_is_complete() {
        let table = [
            (FinishReason::ToolCalls, Ok(())),
            (FinishReason::Stop, Ok(())),
            (FinishReason::Paused, Ok(())),
            (FinishReason::Length, Err(CallCancelReason::Incomplete)),
            (FinishReason::ContentFilter, Err(CallCancelReason::Incomplete)),
            (FinishReason::Refusal, Err(CallCancelReason::Incomplete)),
            (FinishReason::Error, Err(CallCancelReason::Incomplete)),
            (FinishReason::Cancelled, Err(CallCancelReason::Incomplete)),
        ];
        for (finish, expected) in table {
            assert_eq!(check(finish, "read", "{}"), expected, "{finish:?}");
        }
    }

    #[test]
    fn arguments_must_be_a_json_object() {
        let sound =
            ["{}", r#" {"a": {"b": [1e999, null]}} "#, r#"{"a":1,"a":2}"#, r#"{"a":"\ud83d"}"#, r#"{"\udc00":1}"#];
        for arguments in sound {
            assert_eq!(check(FinishReason::ToolCalls, "read", arguments), Ok(()), "{arguments}");
        }
        let broken =
            ["", "[]", "null", "1", r#""{}""#, r#"{"a":"#, "{} {}", "{a:1}", "{\"a\":1,}", "{\"a\":\"\\u12\"}"];
        for arguments in broken {
            let expected = Err(CallCancelReason::Incomplete);
            assert_eq!(check(FinishReason::ToolCalls, "read", arguments), expected, "{arguments}");
        }
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(check(FinishReason::ToolCalls, "read", &deep), Ok(()));
    }

    #[test]
    fn an_unknown_tool_is_not_run() {
        assert_eq!(check(FinishReason::ToolCalls, "write", "{}"), Err(CallCancelReason::UnknownTool));
        assert_eq!(check(FinishReason::ToolCalls, "write", "{"), Err(CallCancelReason::Incomplete));
    }

    /// Row P11
    #[test]
    fn a_call_of_a_tool_that_a_provider_defines_and_the_host_runs_is_run() {
        let provider_tool =
            |definition: &str| ProviderTool { provider: "anthropic".to_owned(), definition: definition.to_owned() };
        let tools = ToolSet {
            provider_tools: vec![
                provider_tool(r#"{"type":"bash_20250124","name":"bash"}"#),
                provider_tool(r#"{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"}"#),
                provider_tool(r#"{"type":"memory_20250818","name":"memory"}"#),
                provider_tool(r#"{"type":"web_search_20250305","name":"web_search"}"#),
            ],
            ..ToolSet::default()
        };
        let table = [
            ("bash", Ok(())),
            ("str_replace_based_edit_tool", Ok(())),
            ("memory", Ok(())),
            ("web_search", Err(CallCancelReason::UnknownTool)),
            ("bash_20250124", Err(CallCancelReason::UnknownTool)),
        ];
        for (name, expected) in table {
            let call = ToolCall { id: CallId::new("c1"), name: name.to_owned(), arguments: "{}".to_owned() };
            let runs = check_executable(FinishReason::ToolCalls, &call, &tools);
            assert_eq!(runs, expected, "{name}");
        }
    }
}

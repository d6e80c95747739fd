//! Test helpers: small messages and prompts, and a check of running time.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

use super::estimate;
use crate::model::{
    BlobId, CallId, ClosedTranscript, Content, Contents, FinishReason, Generation, Media, Message, MessageId,
    ModelResponse, OutputPart, Part, Prompt, Role, Seq, Tool, ToolCall, ToolCategory, ToolOutcome, ToolResult,
    Transcript,
    media::{BlobRef, Source},
    message::StoredPart,
};

/// Number of cases for property tests of pure functions.
pub const CASES: u32 = 2_000;

/// Processor time that a quadratic algorithm exceeds with 100,000 items, even in a release build.
const MAX_LINEAR_TIME: Duration = Duration::from_secs(5);

/// Runs `work` on this thread and checks that it takes less than [`MAX_LINEAR_TIME`] of processor time.
#[track_caller]
pub fn assert_linear_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let spent = || {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        Duration::from(time.expect("the clock of the thread"))
    };
    let begun = spent();
    let done = work();
    let took = spent() - begun;
    eprintln!("{what}: {took:?}");
    assert!(took < MAX_LINEAR_TIME, "{what}: {took:?}");
    done
}

/// A schema with this many properties, all of them required, listed in reverse order.
pub fn wide_schema(properties: u32) -> String {
    let names = |number: u32| format!("p{number:06}");
    let of_properties: Vec<_> = (0..properties).map(|number| format!(r#""{}":{{}}"#, names(number))).collect();
    let required: Vec<_> = (0..properties).rev().map(names).collect();
    format!(
        r#"{{"type":"object","additionalProperties":false,"properties":{{{}}},"required":["{}"]}}"#,
        of_properties.join(","),
        required.join(r#"",""#)
    )
}

/// A message with this role and these parts.
pub fn message(role: Role, parts: Vec<Part>) -> Message {
    let parts = parts
        .into_iter()
        .map(|part| StoredPart {
            size: estimate::part(&part, role),
            estimator: estimate::ESTIMATOR.to_owned(),
            pruned: None,
            part,
        })
        .collect();
    Message {
        id: MessageId::new("m"),
        turn: None,
        step: 0,
        seq: Seq(1),
        role,
        parts,
        overhead: 4,
        created_at: Timestamp::UNIX_EPOCH,
        response: None,
        pinned: false,
        metadata: BTreeMap::new(),
        queued: Vec::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
    }
}

/// A user message.
pub fn user(text: &str) -> Message {
    message(Role::User, vec![Part::text(text)])
}

/// An assistant message.
pub fn assistant(text: &str) -> Message {
    message(Role::Assistant, vec![Part::text(text)])
}

/// The metadata of an assistant message from this model.
pub fn response(model: &str) -> ModelResponse {
    ModelResponse {
        provider: String::new(),
        model: model.to_owned(),
        provider_model: String::new(),
        provider_response_id: String::new(),
        finish: FinishReason::Stop,
        provider_finish: String::new(),
        usage: None,
        failure: None,
        time_to_first_token: None,
        elapsed: std::time::Duration::ZERO,
        provider_metadata: None,
        prompt_fingerprint: None,
    }
}

/// An assistant message with calls of these tools; the ids of the calls are the tools' names.
pub fn calls(names: &[&str]) -> Message {
    let call = |name: &&str| ToolCall { id: CallId::new(*name), name: (*name).to_owned(), arguments: "{}".to_owned() };
    message(Role::Assistant, names.iter().map(|name| Part::new(Content::ToolCall(call(name)))).collect())
}

/// Results for such calls: pairs of tool and text.
pub fn results(results: &[(&str, &str)]) -> Message {
    let result = |(name, text): &(&str, &str)| ToolResult {
        call: CallId::new(*name),
        name: (*name).to_owned(),
        parts: vec![(*text).into()],
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    };
    message(Role::Tool, results.iter().map(|entry| Part::new(Content::ToolResult(result(entry)))).collect())
}

/// The messages as a closed transcript.
pub fn closed(messages: Vec<Message>) -> ClosedTranscript {
    Transcript::new(messages).close().expect("every call in a test has its result")
}

/// A prompt with these messages and nothing else.
pub fn prompt(messages: Vec<Message>) -> Prompt {
    let transcript = closed(messages);
    let size = super::estimate::prompt("", &[], &transcript);
    Prompt {
        model: "test".to_owned(),
        system: Vec::new(),
        provider_tools: Vec::new(),
        transcript,
        contents: Contents::default(),
        tools: Vec::new(),
        max_output_tokens: None,
        generation: Generation::default(),
        size,
    }
}

/// A tool with this name.
pub fn tool(name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: Some(r#"{"type":"object"}"#.to_owned()),
        requires_approval: false,
        timeout: None,
        output_limits: None,
        category: ToolCategory::Tools,
        deferred: false,
        strict: None,
        mcp: None,
    }
}

/// A stored picture in the output of a tool.
pub fn picture(id: &str) -> OutputPart {
    let source = Source::Blob(BlobRef { id: BlobId::new(id), bytes: 1, pixels: None });
    OutputPart::Media(Media { media_type: "image/png".to_owned(), source, filename: String::new() })
}

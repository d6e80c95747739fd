//! Mistakes in models, generation settings, and content for models.

use contextd::pb::{self, FieldReason as F};
use tonic::Code;

use super::{
    rows::{Row, invalid, missing, refused},
    scene::Scene,
};
use crate::harness::requests::text;

fn wishes(s: &Scene) -> Vec<Row> {
    let none = pb::Generation::default;
    let wide = pb::Generation { temperature: Some(3.0), provider_options_json: "no".into(), ..none() };
    let stops = pb::Generation { stop_sequences: vec!["x".into(); 17], ..none() };
    let options = pb::Generation { provider_options_json: "{\"openai\": 1}".into(), ..none() };
    let choice = pb::ToolChoice { choice: Some(pb::tool_choice::Choice::ToolName("a b".into())) };
    let choice = pb::Generation { tool_choice: Some(choice), reasoning_effort: 99, ..none() };
    vec![
        invalid(
            "wishes out of bounds",
            s.execute(|it| it.generation = Some(wide)),
            &[("generation.temperature", F::OutOfRange), ("generation.provider_options_json", F::NotJson)],
        ),
        invalid(
            "17 stop sequences",
            s.execute(|it| it.generation = Some(stops)),
            &[("generation.stop_sequences", F::TooLarge)],
        ),
        invalid(
            "options that are no provider's",
            s.configure(|it| it.generation = Some(options)),
            &[("session.generation.provider_options_json", F::NotJson)],
        ),
        invalid(
            "a choice of what is no tool",
            s.configure(|it| it.generation = Some(choice)),
            &[
                ("session.generation.reasoning_effort", F::Unknown),
                ("session.generation.tool_choice.tool_name", F::Invalid),
            ],
        ),
    ]
}

fn references(s: &Scene) -> Vec<Row> {
    vec![
        invalid("no model to read", s.get_model(|it| it.model.clear()), &[("model", F::Required)]),
        invalid("a model to read too long", s.get_model(|it| it.model = "x".repeat(257)), &[("model", F::TooLarge)]),
        invalid("a line break in a model", s.get_model(|it| it.model = "a/\n".into()), &[("model", F::Invalid)]),
        missing("a model nobody has", s.get_model(|it| it.model = "scripted/none".into()), "MODEL_NOT_FOUND"),
        missing("a model of nobody", s.get_model(|it| it.model = "talks".into()), "MODEL_NOT_FOUND"),
        invalid("NUL in a provider", s.list_models(|it| it.provider = "\0".into()), &[("provider", F::Invalid)]),
    ]
}

fn counts(s: &Scene) -> Vec<Row> {
    let nameless = pb::ToolSet { host_tools: vec![pb::Tool::default()], ..Default::default() };
    let user = || pb::InputMessage { parts: vec![text("Hello")], ..Default::default() };
    vec![
        invalid(
            "1,001 messages to count",
            s.count(|it| it.messages = vec![user(); 1_001]),
            &[("messages", F::TooLarge)],
        ),
        invalid(
            "nothing in a message to count",
            s.count(|it| it.messages = vec![pb::InputMessage::default()]),
            &[("messages[0].parts", F::Required)],
        ),
        invalid(
            "a slash in the session to count",
            s.count(|it| it.session_id = "a/b".into()),
            &[("session_id", F::Invalid)],
        ),
        invalid(
            "a system prompt beside a session",
            s.count(|it| (it.session_id, it.system_prompt) = ("talked".into(), "Be brief.".into())),
            &[("system_prompt", F::Conflict)],
        ),
        invalid(
            "a nameless tool to count",
            s.count(|it| it.tools = Some(nameless)),
            &[("tools.host_tools[0].name", F::Required)],
        ),
        invalid("a model to count for too long", s.count(|it| it.model = "x".repeat(257)), &[("model", F::TooLarge)]),
        missing("a model to count for that nobody has", s.count(|it| it.model = "a/b".into()), "MODEL_NOT_FOUND"),
    ]
}

fn uploads(s: &Scene) -> Vec<Row> {
    let everything = |it: &mut pb::BlobHeader| {
        (it.media_type, it.size_bytes) = (String::new(), -1);
        (it.sha256, it.request_id) = ("XYZ".into(), "\0".into());
    };
    vec![
        invalid(
            "a header of mistakes",
            s.put(everything),
            &[
                ("header.media_type", F::Required),
                ("header.size_bytes", F::OutOfRange),
                ("header.sha256", F::Invalid),
                ("header.request_id", F::Invalid),
            ],
        ),
        invalid("no media type", s.put(|it| it.media_type = "picture".into()), &[("header.media_type", F::Invalid)]),
        invalid(
            "a media type too long",
            s.put(|it| it.media_type = format!("text/{}", "x".repeat(251))),
            &[("header.media_type", F::TooLarge)],
        ),
        invalid("other content", s.put(|it| it.sha256 = "0".repeat(64)), &[("header.sha256", F::Conflict)]),
        invalid("less content", s.put(|it| it.size_bytes = 6), &[("header.size_bytes", F::Conflict)]),
        refused(
            "content over the limit",
            s.put(|it| it.size_bytes = i64::MAX),
            Code::ResourceExhausted,
            "REQUEST_TOO_LARGE",
        )
        .with("limit_bytes", 8 * 1024 * 1024),
    ]
}

pub(super) fn rows(s: &Scene) -> Vec<Row> {
    [wishes, references, counts, uploads].into_iter().flat_map(|rows| rows(s)).collect()
}

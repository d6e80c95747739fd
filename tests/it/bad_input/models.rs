//! Mistakes about models and how they are to answer.

use contextd::pb::{self, FieldReason as F};

use super::{
    rows::{Row, invalid},
    scene::Scene,
};

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

/// All of them.
pub(super) fn rows(s: &Scene) -> Vec<Row> {
    wishes(s)
}

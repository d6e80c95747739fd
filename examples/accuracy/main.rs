//! Prints the accuracy of token estimates: recorded requests compared with the input tokens that their providers
//! reported.
//!
//! `cargo run --example accuracy [-- FILE] [--worst N] [--terms] [--pairs]`. The file defaults to the recordings of the
//! repository. `--terms` prints the terms of each request as JSON lines, to which `script/fit-templates` fits the
//! prices. `--pairs` prints each request that continues another one, with the terms of both estimates.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod cases;
mod report;
mod score;

use std::path::PathBuf;

use contextd::context::template::Template;

use cases::Case;

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/accuracy/cases.jsonl.gz");

fn main() -> std::io::Result<()> {
    let (mut file, mut worst, mut terms, mut pairs) = (PathBuf::from(RECORDINGS), 0, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--worst" => worst = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(20),
            "--terms" => terms = true,
            "--pairs" => pairs = true,
            path => file = PathBuf::from(path),
        }
    }
    let cases = cases::load(&file)?;
    if terms {
        cases.iter().for_each(print_terms);
    } else if pairs {
        score::continued(&cases).into_iter().for_each(print_pair);
    } else {
        print!("{}", report::report(&cases, worst));
    }
    Ok(())
}

fn print_terms(case: &Case) {
    let template = Template::of(case.service(), &case.recorded.model);
    let line = serde_json::json!({
        "id": case.recorded.id,
        "template": template.name,
        "recording": case.recorded.file,
        "superseded": case.is_superseded(),
        "setting": case.setting(),
        "actual": case.recorded.input_tokens_actual,
        "terms": template.terms(&case.prompt).all(),
    });
    println!("{line}");
}

fn print_pair(pair: score::Continued<'_>) {
    let score::Continued { earlier, later } = pair;
    let template = Template::of(later.service(), &later.recorded.model);
    let since: Vec<_> = pair
        .since()
        .iter()
        .map(|message| serde_json::json!({"role": format!("{:?}", message.role), "terms": template.terms_of_message(message).all()}))
        .collect();
    let side = |case: &Case| {
        serde_json::json!({
            "id": case.recorded.id, "actual": case.recorded.input_tokens_actual,
            "output": case.recorded.output_tokens, "reasoning": case.recorded.reasoning_tokens,
            "choice": format!("{:?}", case.prompt.generation.tool_choice),
            "terms": template.terms(&case.prompt).all(),
        })
    };
    let line = serde_json::json!({
        "template": template.name, "provider": later.recorded.provider, "model": later.recorded.model, "recording": later.recorded.file,
        "before": side(earlier), "now": side(later), "since": since, "calls": pair.has_calls(),
        "predicted": pair.predict().predicted,
    });
    println!("{line}");
}

//! Prints how well prompts are predicted: recorded requests against the input tokens that their
//! providers reported.
//!
//! `cargo run --example accuracy [-- FILE] [--worst N] [--terms]`. The file defaults to the
//! recordings of the repository. With `--terms` it prints what each request is made of, as JSON
//! lines: what `script/fit-templates` fits the prices to.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod cases;
mod report;
mod score;

use std::path::PathBuf;

use contextd::context::template::Template;

use cases::Case;

const RECORDINGS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/accuracy/cases.jsonl.gz"
);

fn main() -> std::io::Result<()> {
    let (mut file, mut worst, mut terms) = (PathBuf::from(RECORDINGS), 0, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--worst" => {
                worst = arguments
                    .next()
                    .and_then(|number| number.parse().ok())
                    .unwrap_or(20)
            }
            "--terms" => terms = true,
            path => file = PathBuf::from(path),
        }
    }
    let cases = cases::load(&file)?;
    if terms {
        cases.iter().for_each(print_terms);
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

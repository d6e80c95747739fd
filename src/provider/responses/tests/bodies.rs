//! Every recorded body of the dialect.

use super::*;

/// The dialect of recorded bodies.
pub(super) const RECORDED: &str = "openai_responses";

/// A decoder for a recorded body.
pub(super) fn decoder(file: &str) -> Decoder {
    let name = match file.split('/').next().unwrap_or_default() {
        "openai-responses" => "openai",
        folder => folder,
    };
    Decoder::new(dialect::named(name).expect("a dialect"))
}

#[test]
fn every_recorded_answer_is_decoded_as_expected() {
    assert_eq!(recordings::check_whole(RECORDED, decoder), 81);
}

#[test]
fn a_recorded_answer_decodes_equally_under_any_chunking() {
    let small = recordings::check_splits(RECORDED, decoder);
    assert!(small > 5, "{small} small recordings");
}

#[test]
fn a_truncated_recorded_answer_is_never_complete() {
    recordings::check_truncated(RECORDED, decoder);
}

//! Tests of every recorded body of the dialect.

use super::*;

/// The dialect of recorded bodies.
pub(super) const RECORDED: &str = "openai_responses";

/// Creates a decoder for a recorded body.
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

#[test]
fn a_recorded_citation_points_at_the_link_in_the_text() {
    let mut seen = 0;
    for (file, _, answer) in recordings::answers(RECORDED, decoder) {
        for part in &answer.parts {
            let Content::Text(text) = &part.content else {
                assert_eq!(part.citations, [], "{file}");
                continue;
            };
            for citation in &part.citations {
                let place = citation.start_byte as usize..citation.end_byte as usize;
                let words = text.get(place).expect(&file);
                let ranged = !words.is_empty();
                assert!(!ranged || words.contains(&citation.url), "{file}: {words}");
                seen += usize::from(ranged);
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

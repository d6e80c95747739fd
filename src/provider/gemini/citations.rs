//! Reads which passages of a text are supported by which sources.

use serde_json::value::RawValue;

use super::wire::{Grounding, GroundingChunk, Segment};
use crate::{
    model::Citation,
    provider::http::lenient::{self, Number},
};

/// The citations of a text in a grounding report.
pub(super) fn citations(report: &RawValue, text: &str) -> Vec<Citation> {
    let grounding: Grounding = lenient::read(report);
    let sources = grounding.grounding_chunks.unwrap_or_default();
    let supports = grounding.grounding_supports.into_iter().flatten();
    supports
        .flat_map(|support| {
            let indices = support.grounding_chunk_indices.unwrap_or_default();
            let indices = indices.into_iter().filter_map(|index| index.0);
            let named = indices.filter_map(|index| sources.get(usize::try_from(index).ok()?));
            let segment = support.segment.unwrap_or_default();
            let cited = named.map(|source| citation(source, &segment, text));
            cited.collect::<Vec<_>>()
        })
        .collect()
}

fn citation(source: &RawValue, segment: &Segment, text: &str) -> Citation {
    let chunk: GroundingChunk = lenient::read(source);
    let place = chunk.web.or(chunk.retrieved_context).or(chunk.maps);
    let place = place.unwrap_or_default();
    let (start_byte, end_byte) = passage(segment, text).unwrap_or((0, 0));
    Citation {
        url: place.uri.0,
        title: place.title.0,
        cited_text: place.text.0,
        start_byte,
        end_byte,
        provider_metadata: Some(source.get().to_owned()),
    }
}

/// The position of a passage in the text, in bytes. The service counts bytes, possibly of another
/// part, so the text of the passage is compared. Returns `None` if the passage does not occur, or
/// occurs more than once.
fn passage(segment: &Segment, text: &str) -> Option<(u32, u32)> {
    let words = &segment.text;
    let index = |number: &Option<Number>| usize::try_from(number.as_ref()?.0?).ok();
    // The service leaves out an index of zero.
    let said = index(&segment.end_index).map(|end| (index(&segment.start_index).unwrap_or(0), end));
    let as_said = said.filter(|(start, end)| {
        let there = text.get(*start..*end);
        there.is_some_and(|there| there == words.0 || words.0.is_empty() && !there.is_empty())
    });
    let (start, end) = match as_said {
        Some(range) => range,
        None => {
            let mut found = text.match_indices(words.0.as_str());
            let (start, _) = found.next().filter(|_| !words.0.is_empty())?;
            if found.next().is_some() {
                return None;
            }
            (start, start + words.0.len())
        }
    };
    Some((u32::try_from(start).ok()?, u32::try_from(end).ok()?))
}

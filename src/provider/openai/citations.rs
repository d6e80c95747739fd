//! Reads the citations of a response: annotations of its text, as OpenRouter and OpenAI write them,
//! and Perplexity's lists of search results.

use std::collections::BTreeSet;

use serde_json::{Value, value::RawValue};

use crate::{
    model::Citation,
    provider::{
        Chunk,
        http::{Chunks, lenient},
    },
};

/// Limit on the citations of one response. Further ones are dropped.
const MAX_CITATIONS: usize = 1_024;

/// The citations of a response, and its text, to which their positions refer.
#[derive(Debug, Default)]
pub(super) struct Citations {
    text: String,
    /// Another part was written within the text, so positions do not refer to a single part.
    is_split: bool,
    urls: BTreeSet<String>,
    count: usize,
}

impl Citations {
    /// Adds text of the response. `continues`: nothing else was written since the previous text.
    pub(super) fn take_text(&mut self, text: &str, continues: bool) {
        self.is_split |= !continues && !self.text.is_empty();
        self.text.push_str(text);
    }

    /// Emits the citations in annotations.
    pub(super) fn annotate(&mut self, annotations: Option<Box<RawValue>>, chunks: &mut Chunks) {
        for annotation in list(annotations) {
            let Some(named) = annotation.get("url_citation") else {
                continue;
            };
            let (start_byte, end_byte) = self.range(named).unwrap_or_default();
            self.emit(
                Citation {
                    url: word(named, "url"),
                    title: word(named, "title"),
                    start_byte,
                    end_byte,
                    provider_metadata: Some(annotation.to_string()),
                    ..Citation::default()
                },
                chunks,
            );
        }
    }

    /// Emits search results as citations. Each event repeats them, and a second list has only their
    /// URLs, so repeated URLs are skipped.
    pub(super) fn search(&mut self, lists: [Option<Box<RawValue>>; 2], chunks: &mut Chunks) {
        for source in lists.into_iter().flat_map(list) {
            let url = match &source {
                Value::String(url) => url.clone(),
                Value::Object(_) => word(&source, "url"),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => String::new(),
            };
            if url.is_empty() || self.text.is_empty() || !self.urls.insert(url.clone()) {
                continue;
            }
            self.emit(
                Citation {
                    url,
                    title: word(&source, "title"),
                    provider_metadata: Some(source.to_string()),
                    ..Citation::default()
                },
                chunks,
            );
        }
    }

    fn emit(&mut self, citation: Citation, chunks: &mut Chunks) {
        if !self.text.is_empty() && self.count < MAX_CITATIONS {
            self.count += 1;
            chunks.push(Chunk::Citation(citation));
        }
    }

    /// The passage that an annotation refers to, in bytes. The positions in the annotation are in
    /// characters.
    fn range(&self, named: &Value) -> Option<(u32, u32)> {
        let byte = |key: &str| {
            let chars = usize::try_from(named.get(key)?.as_u64()?).ok()?;
            let at = self.text.char_indices().nth(chars);
            u32::try_from(at.map_or(self.text.len(), |(byte, _)| byte)).ok()
        };
        let range = byte("start_index").zip(byte("end_index"));
        range.filter(|(start, end)| !self.is_split && start <= end)
    }
}

/// The elements of an array. Empty for other values.
fn list(raw: Option<Box<RawValue>>) -> Vec<Value> {
    let value = raw.and_then(|raw| lenient::value(raw.get()));
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn word(value: &Value, key: &str) -> String {
    let word = value.get(key).and_then(Value::as_str).unwrap_or_default();
    // PostgreSQL cannot store NUL.
    word.replace('\0', "\u{fffd}")
}

//! Calls out of fragments: which fragment belongs to which call, whatever a service leaves away.

use std::collections::VecDeque;

use serde_json::json;

use super::{decode::arguments, wire::Fragment};
use crate::provider::{Chunk, http::Fault};

/// Bytes of arguments that may come before the name of their call.
const MAX_HELD_BYTES: usize = 64 << 10;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
}

/// A call that is being made.
#[derive(Debug)]
struct Call {
    /// The service's number of it.
    number: Option<i64>,
    id: String,
    /// Empty until it is told; nothing is handed out before.
    name: String,
    /// Arguments that came before the name.
    held: String,
    /// Some of its arguments came.
    begun: bool,
}

impl Calls {
    /// Takes a fragment. What is known of a call is never overwritten: later fragments may carry an empty name and id.
    pub(super) fn take(&mut self, fragment: Fragment, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        let Fragment { index: number, id, function, extra_content } = fragment;
        let function = function.unwrap_or_default();
        let (id, name) = (id.unwrap_or_default(), function.name.unwrap_or_default());
        let at = match self.find(number, &id, &name) {
            Some(at) => at,
            None => {
                self.calls.push(Call {
                    number,
                    id: String::new(),
                    name: String::new(),
                    held: String::new(),
                    begun: false,
                });
                self.calls.len() - 1
            }
        };
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        let piece = call.piece(function.arguments.map(|raw| arguments(&raw)).unwrap_or_default());
        if call.name.is_empty() && name.is_empty() {
            return call.hold(&piece);
        }
        if call.name.is_empty() {
            call.name = name;
            chunks.push_back(Chunk::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
            let held = std::mem::take(&mut call.held);
            chunks.extend((!held.is_empty()).then_some(Chunk::ToolInput { index, json: held }));
        }
        chunks.extend((!piece.is_empty()).then_some(Chunk::ToolInput { index, json: piece }));
        // Gemini's signature. It is the call's own only while the call is what was written last.
        if let Some(extra) = extra_content.filter(|_| writes(chunks.back(), index)) {
            chunks.push_back(Chunk::PartMetadata(json!({super::KIND: {"extra_content": extra}}).to_string()));
        }
        Ok(())
    }

    /// The answer is complete: a call that never got a name cannot be run, nor shown to a model again.
    pub(super) fn close(&self) -> Result<(), Fault> {
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(Fault::broken("the answer holds a tool call without a name"));
        }
        Ok(())
    }

    /// The call that a fragment belongs to; none: it begins one.
    fn find(&self, number: Option<i64>, id: &str, name: &str) -> Option<usize> {
        let known = match number {
            Some(_) => self.calls.iter().rposition(|call| call.number == number),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None if !name.is_empty() => None,
            None => self.calls.len().checked_sub(1),
        };
        // Some services give every call the same number; a whole new id and name tell them apart.
        known.filter(|&at| {
            let call = &self.calls[at];
            let known = [id, name, &call.id, &call.name].iter().all(|word| !word.is_empty());
            !known || call.id == id
        })
    }
}

impl Call {
    /// The arguments that a fragment adds. Models of Groq's write `null` for a tool without any.
    fn piece(&mut self, arguments: String) -> String {
        if !self.begun && arguments == "null" {
            return String::new();
        }
        self.begun |= !arguments.is_empty();
        arguments
    }

    fn hold(&mut self, piece: &str) -> Result<(), Fault> {
        self.held.push_str(piece);
        if self.held.len() > MAX_HELD_BYTES {
            return Err(Fault::broken("the arguments of a tool call came without its name"));
        }
        Ok(())
    }
}

/// Whether this chunk writes to the call of that index.
fn writes(chunk: Option<&Chunk>, index: u32) -> bool {
    match chunk {
        Some(Chunk::ToolCall { index: at, .. } | Chunk::ToolInput { index: at, .. }) => *at == index,
        Some(
            Chunk::Text(_) | Chunk::Reasoning(_) | Chunk::Refusal(_) | Chunk::PartMetadata(_) | Chunk::Finished(_),
        )
        | None => false,
    }
}

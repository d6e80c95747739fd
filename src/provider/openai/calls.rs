//! Calls out of fragments: which fragment belongs to which call, whatever a service leaves away.

use std::collections::VecDeque;

use serde_json::json;

use super::wire::{Fragment, FunctionFragment};
use crate::provider::{
    Chunk,
    http::{
        Fault,
        lenient::{self, Joiner, Number, Piece, Text},
    },
};

/// Bytes of arguments that may come before the name of their call.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Bytes of a name, however many pieces it comes in.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The number of the call that has none because it is the only one.
const ONLY: i64 = i64::MIN;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// A call in `tool_calls` came: `function_call` says the same again.
    several: bool,
    /// The call that was written last, where nothing else was written since.
    last: Option<usize>,
}

/// A call that is being made.
#[derive(Debug, Default)]
struct Call {
    /// The service's number of it.
    number: Option<i64>,
    id: String,
    /// Empty until it arrives. It may come in pieces, so nothing is handed out before something
    /// else comes.
    name: String,
    /// Id and name were handed out.
    announced: bool,
    /// Arguments that came before the name.
    held: Text,
    /// Some of its arguments came.
    begun: bool,
    joiner: Joiner,
}

impl Calls {
    /// Takes a fragment. What is known of a call is never overwritten: later fragments may carry an
    /// empty name and id, or repeat them.
    pub(super) fn take(
        &mut self,
        fragment: Fragment,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<(), Fault> {
        self.several = true;
        self.add(fragment, chunks)
    }

    /// Takes a fragment of an answer that can hold one call only. Some services repeat there what
    /// `tool_calls` says.
    pub(super) fn take_only(
        &mut self,
        function: FunctionFragment,
        chunks: &mut VecDeque<Chunk>,
    ) -> Result<(), Fault> {
        if self.several {
            return Ok(());
        }
        let index = Some(Number(Some(ONLY)));
        self.add(
            Fragment {
                index,
                function: Some(function),
                ..Fragment::default()
            },
            chunks,
        )
    }

    fn add(&mut self, fragment: Fragment, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        let Fragment {
            index: number,
            id,
            function,
            extra_content,
        } = fragment;
        let number = number.and_then(|number| number.0);
        let function = function.unwrap_or_default();
        let id = id.unwrap_or_default().0;
        let name = function.name.unwrap_or_default().0;
        let at = match self.find(number, &id, &name) {
            Some(at) => at,
            None => {
                // The names of those before are complete.
                self.announce(chunks);
                self.calls.push(Call {
                    number,
                    ..Call::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        if name != call.name {
            call.name.push_str(&name);
            if call.name.len() > MAX_NAME_BYTES {
                return Err(Fault::broken("the name of a tool call has no end"));
            }
        }
        let piece = call.piece(
            function
                .arguments
                .map(|raw| Piece::of(&raw))
                .unwrap_or_default(),
        );
        if call.name.is_empty() {
            return call.hold(&piece);
        }
        if !piece.text.is_empty() || !call.held.text.is_empty() || extra_content.is_some() {
            self.announce(chunks);
            self.write(at, piece, chunks);
        }
        // Gemini's signature. It is the call's own only while the call is what was written last.
        if let Some(extra) = extra_content.filter(|_| self.last == Some(at)) {
            let extra = lenient::value(extra.get());
            chunks.push_back(Chunk::PartMetadata(
                json!({super::KIND: {"extra_content": extra}}).to_string(),
            ));
        }
        Ok(())
    }

    /// Something else than a call is written next.
    pub(super) fn interrupt(&mut self, chunks: &mut VecDeque<Chunk>) {
        self.announce(chunks);
        self.last = None;
    }

    /// Hands out the calls that have a name and were not handed out: something else is written, so
    /// that their names are complete.
    fn announce(&mut self, chunks: &mut VecDeque<Chunk>) {
        for at in 0..self.calls.len() {
            let call = &mut self.calls[at];
            if call.announced || call.name.is_empty() {
                continue;
            }
            call.announced = true;
            let id = call.id.clone();
            let name = call.name.clone();
            let held = std::mem::take(&mut call.held);
            chunks.push_back(Chunk::ToolCall {
                index: narrow(at),
                id,
                name,
            });
            self.last = Some(at);
            self.write(at, held, chunks);
        }
    }

    /// The answer is complete: a call that never got a name cannot be run, nor shown to a model
    /// again.
    pub(super) fn close(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), Fault> {
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(Fault::broken("the answer holds a tool call without a name"));
        }
        self.announce(chunks);
        for at in 0..self.calls.len() {
            let mut rest = Text::default();
            self.calls[at].joiner.close(&mut rest);
            self.write(at, rest, chunks);
        }
        Ok(())
    }

    /// Hands out arguments of a call that is announced.
    fn write(&mut self, at: usize, Text { text, replaced }: Text, chunks: &mut VecDeque<Chunk>) {
        if !text.is_empty() {
            self.last = Some(at);
            chunks.push_back(Chunk::ToolInput {
                index: narrow(at),
                json: text,
            });
        }
        chunks.extend(replaced.then_some(Chunk::Sanitized));
    }

    /// The call that a fragment belongs to; `None` if it begins one.
    fn find(&self, number: Option<i64>, id: &str, name: &str) -> Option<usize> {
        let known = match number {
            Some(_) => self.calls.iter().rposition(|call| call.number == number),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None if !name.is_empty() => None,
            None => self.calls.len().checked_sub(1),
        };
        // Some services give every call the same number; a whole new id and name tell them apart,
        // and so does another name once arguments came.
        known.filter(|&at| {
            let call = &self.calls[at];
            let known = [id, name, &call.id, &call.name]
                .iter()
                .all(|word| !word.is_empty());
            let renamed = call.announced && !name.is_empty() && call.name != name;
            (!known || call.id == id) && !renamed
        })
    }
}

/// An index of a call; there are never so many.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Call {
    /// The arguments that a fragment adds. Models of Groq's write `null` for a tool without any.
    fn piece(&mut self, arguments: Piece) -> Text {
        let piece = self.joiner.join(&arguments);
        if !self.begun && piece.text == "null" {
            return Text::default();
        }
        self.begun |= !piece.text.is_empty();
        piece
    }

    fn hold(&mut self, piece: &Text) -> Result<(), Fault> {
        self.held.text.push_str(&piece.text);
        self.held.replaced |= piece.replaced;
        if self.held.text.len() > MAX_HELD_BYTES {
            return Err(Fault::broken(
                "the arguments of a tool call came without its name",
            ));
        }
        Ok(())
    }
}

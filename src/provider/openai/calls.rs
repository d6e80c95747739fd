//! Assembles tool calls from their fragments, and determines which call a fragment belongs to,
//! whatever fields a service omits.

use serde_json::json;

use super::wire::{Fragment, FunctionFragment};
use crate::provider::{
    Chunk,
    http::{
        Chunks, Decoded, Fault,
        lenient::{self, Joiner, LenientString, Number, Piece, Text},
    },
};

/// Limit on the bytes of arguments that arrive before the name of their call.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Limit on the bytes of a name, in any number of fragments.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The number assigned to a `function_call`, which has none.
const FUNCTION_CALL_NUMBER: i64 = i64::MIN;

/// The tool calls of one response.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// A call arrived in `tool_calls`. A `function_call` repeats it.
    has_tool_calls: bool,
    /// Index of the call that was written last, if nothing else was written since.
    last: Option<usize>,
}

/// A tool call that is still streaming.
#[derive(Debug, Default)]
struct Call {
    /// The service's number for the call.
    number: Option<i64>,
    id: String,
    /// Empty until it arrives. It may arrive in fragments, so it is emitted only when something
    /// else follows.
    name: String,
    /// Id and name were emitted.
    announced: bool,
    /// Arguments that arrived before the name.
    held: Text,
    /// Some arguments have arrived.
    begun: bool,
    joiner: Joiner,
}

impl Calls {
    /// Handles a fragment of `tool_calls`. Known values are never overwritten: later fragments may
    /// have an empty name and id, or repeat them.
    pub(super) fn take(&mut self, fragment: Fragment, chunks: &mut Chunks) -> Decoded {
        self.has_tool_calls = true;
        self.add(fragment, chunks)
    }

    /// Handles a fragment of `function_call`, of which a response has at most one. Some services
    /// repeat in it what `tool_calls` contains.
    pub(super) fn take_only(&mut self, function: FunctionFragment, chunks: &mut Chunks) -> Decoded {
        if self.has_tool_calls {
            return Ok(());
        }
        let fragment =
            Fragment { index: Number(Some(FUNCTION_CALL_NUMBER)), function: Some(function), ..Fragment::default() };
        self.add(fragment, chunks)
    }

    fn add(&mut self, fragment: Fragment, chunks: &mut Chunks) -> Decoded {
        let Fragment { index: Number(number), id: LenientString(id), function, extra_content } = fragment;
        let FunctionFragment { name: LenientString(name), arguments } = function.unwrap_or_default();
        let at = match self.find(number, &id, &name) {
            Some(at) => at,
            None => {
                // The names of the calls before it are complete.
                self.announce(chunks);
                self.calls.push(Call { number, ..Call::default() });
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
                return Err(Fault::broken("the name of a tool call is too long"));
            }
        }
        let arguments = arguments.map(|raw| Piece::of(&raw)).unwrap_or_default();
        let piece = call.piece(arguments);
        if call.name.is_empty() {
            return call.hold(&piece);
        }
        if !piece.text.is_empty() || !call.held.text.is_empty() || extra_content.is_some() {
            self.announce(chunks);
            self.write(at, piece, chunks);
        }
        // Gemini's signature. It belongs to this call only if the call is what was written last.
        if let Some(extra) = extra_content.filter(|_| self.last == Some(at)) {
            let extra = lenient::value(extra.get());
            chunks.attach(super::KIND, json!({"extra_content": extra}));
        }
        Ok(())
    }

    /// Handles output of another kind after a call.
    pub(super) fn interrupt(&mut self, chunks: &mut Chunks) {
        self.announce(chunks);
        self.last = None;
    }

    /// Emits the id and name of calls that have a name but were not announced. Their names are
    /// complete, because something else follows.
    fn announce(&mut self, chunks: &mut Chunks) {
        for at in 0..self.calls.len() {
            let call = &mut self.calls[at];
            if call.announced || call.name.is_empty() {
                continue;
            }
            call.announced = true;
            let id = call.id.clone();
            let name = call.name.clone();
            let held = std::mem::take(&mut call.held);
            chunks.push(Chunk::ToolCall { index: narrow(at), id, name });
            self.last = Some(at);
            self.write(at, held, chunks);
        }
    }

    /// Completes the calls. A call without a name is an error: it can neither be run nor sent to a
    /// model again.
    pub(super) fn close(&mut self, chunks: &mut Chunks) -> Decoded {
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(Fault::broken("the response contains a tool call without a name"));
        }
        self.announce(chunks);
        for at in 0..self.calls.len() {
            let rest = self.calls[at].joiner.rest();
            self.write(at, rest, chunks);
        }
        Ok(())
    }

    /// Emits arguments of an announced call.
    fn write(&mut self, at: usize, text: Text, chunks: &mut Chunks) {
        if !text.text.is_empty() {
            self.last = Some(at);
        }
        chunks.input(narrow(at), text);
    }

    /// The call that a fragment belongs to. Returns `None` if it starts a new call.
    fn find(&self, number: Option<i64>, id: &str, name: &str) -> Option<usize> {
        let known = match number {
            Some(_) => self.calls.iter().rposition(|call| call.number == number),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None if !name.is_empty() => None,
            None => self.calls.len().checked_sub(1),
        };
        // Some services give every call the same number. A fragment with a new id and a name starts
        // a new call, and so does one with another name after arguments arrived.
        known.filter(|&at| {
            let call = &self.calls[at];
            let known = [id, name, &call.id, &call.name].iter().all(|word| !word.is_empty());
            let renamed = call.announced && !name.is_empty() && call.name != name;
            (!known || call.id == id) && !renamed
        })
    }
}

/// Converts the index of a call, which is far below the limit.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Call {
    /// The arguments that a fragment adds. Models at Groq write `null` for a tool without
    /// arguments.
    fn piece(&mut self, arguments: Piece) -> Text {
        let piece = self.joiner.join(&arguments);
        if !self.begun && piece.text == "null" {
            return Text::default();
        }
        self.begun |= !piece.text.is_empty();
        piece
    }

    fn hold(&mut self, piece: &Text) -> Decoded {
        self.held.text.push_str(&piece.text);
        self.held.replaced |= piece.replaced;
        if self.held.text.len() > MAX_HELD_BYTES {
            return Err(Fault::broken("received the arguments of a tool call without its name"));
        }
        Ok(())
    }
}

//! The calls of a response while they are streaming: their names, and their arguments or text
//! inputs.

use serde_json::{Map, Value, json, value::RawValue};

use super::{
    KIND,
    items::{CUSTOM_CALL, Item, Items, inconsistent_events, is_garbled, unnamed_call},
    wire,
};
use crate::provider::{
    Chunk,
    http::{
        Chunks, Decoded, Fault,
        lenient::{self, Joiner, Piece, Text},
    },
};

/// Limit on the bytes of arguments that arrive before the name of their call.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Limit on the bytes of a custom tool's input, which is buffered until it is complete.
const MAX_CUSTOM_BYTES: usize = 8 << 20;

impl Items {
    /// Adds arguments of a call.
    pub(super) fn extend_call(&mut self, output: i64, piece: &Piece, chunks: &mut Chunks) -> Decoded {
        if !piece.is_empty() {
            self.check_open(output)?;
        }
        self.add_arguments(output, piece, chunks)
    }

    fn add_arguments(&mut self, output: i64, piece: &Piece, chunks: &mut Chunks) -> Decoded {
        let Item { call, is_custom, .. } = self.item(output)?;
        let text = call.joiner.join(piece);
        call.arguments.text.push_str(&text.text);
        call.arguments.replaced |= text.replaced;
        let held = call.arguments.text.len();
        match (call.index, *is_custom) {
            (Some(index), _) => self.write_arguments(index, text, chunks),
            (None, true) if held > MAX_CUSTOM_BYTES => {
                return Err(Fault::oversized("the input of a tool call is too large"));
            }
            (None, false) if held > MAX_HELD_BYTES => {
                return Err(Fault::broken("received the arguments of a tool call without its name"));
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// Emits arguments. Text after them starts a new part.
    fn write_arguments(&mut self, index: u32, text: Text, chunks: &mut Chunks) {
        if !text.text.is_empty() {
            self.close(chunks);
        }
        chunks.input(index, text);
    }

    /// Completes the arguments of a call.
    pub(super) fn complete_call(&mut self, output: i64, whole: &Piece, chunks: &mut Chunks) -> Decoded {
        let is_whole = self.order.is_whole();
        let call = &mut self.item(output)?.call;
        let Text { text, replaced } = whole.whole();
        if let Some(rest) = text.strip_prefix(&call.arguments.text) {
            call.joiner = Joiner::default();
            call.arguments.replaced |= replaced;
            self.add_arguments(output, &Piece::from(rest), chunks)?;
        } else if !is_whole && is_garbled(&call.arguments.text, &text) && !is_same_json(&call.arguments.text, &text) {
            return Err(inconsistent_events());
        }
        Ok(())
    }

    pub(super) fn begin_call(&mut self, output: i64, item: &wire::Item, chunks: &mut Chunks) -> Decoded {
        let name = item.name.0.clone();
        if name.is_empty() {
            return Err(unnamed_call());
        }
        if self.item(output)?.call.index.is_some() {
            return Ok(());
        }
        self.close(chunks);
        let index = self.calls;
        self.calls += 1;
        let id = item.call_id.clone().some();
        let id = id.unwrap_or_else(|| item.id.0.clone());
        chunks.push(Chunk::ToolCall { index, id, name });
        let call = &mut self.item(output)?.call;
        call.index = Some(index);
        let arguments = call.arguments.clone();
        self.write_arguments(index, arguments, chunks);
        Ok(())
    }

    pub(super) fn end_call(&mut self, output: i64, item: &wire::Item, chunks: &mut Chunks) -> Decoded {
        self.begin_call(output, item, chunks)?;
        if let Some(whole) = &item.arguments {
            self.complete_call(output, &Piece::of(whole), chunks)?;
        }
        let call = &mut self.item(output)?.call;
        let last = call.joiner.rest();
        let index = call.index.unwrap_or_default();
        self.write_arguments(index, last, chunks);
        let mut own = self.id_and_phase(output);
        let caller = item.caller.as_deref().map(RawValue::get);
        let caller = caller.and_then(lenient::value).filter(|it| !it.is_null());
        own.extend(caller.map(|caller| ("caller".to_owned(), caller)));
        attach_to_call(index, own, chunks);
        Ok(())
    }

    /// Completes a custom tool call. Its text input becomes the `input` argument.
    pub(super) fn end_custom_call(&mut self, output: i64, item: &wire::Item, chunks: &mut Chunks) -> Decoded {
        if let Some(whole) = &item.input {
            self.complete_call(output, &Piece::of(whole), chunks)?;
        }
        let call = &mut self.item(output)?.call;
        let Text { text, replaced } = std::mem::take(&mut call.arguments);
        let mut own = self.id_and_phase(output);
        own.insert("type".to_owned(), json!(CUSTOM_CALL));
        self.begin_call(output, item, chunks)?;
        let index = self.item(output)?.call.index.unwrap_or_default();
        let text = json!({"input": text}).to_string();
        self.write_arguments(index, Text { text, replaced }, chunks);
        attach_to_call(index, own, chunks);
        Ok(())
    }
}

fn is_same_json(one: &str, other: &str) -> bool {
    match (lenient::value(one), lenient::value(other)) {
        (Some(one), Some(other)) => one == other,
        (_, _) => false,
    }
}

fn attach_to_call(index: u32, own: Map<String, Value>, chunks: &mut Chunks) {
    if !own.is_empty() {
        chunks.attach_to_call(index, KIND, own);
    }
}

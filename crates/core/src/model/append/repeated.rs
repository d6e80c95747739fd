//! Renames calls with repeated ids: services that number their calls start again with each response. The calls get new
//! ids, as in a turn.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use super::Place;
use crate::model::{CallId, Content, InputMessage};

/// Returns the messages with a new id for each call whose id is already used in the session (`known`) or by an earlier
/// call, and for its result. `new_id` returns the id for the call at a position.
pub fn with_unique_calls<'a>(
    known: &BTreeSet<CallId>,
    messages: &'a [InputMessage],
    new_id: impl Fn(Place) -> CallId,
) -> Cow<'a, [InputMessage]> {
    if !has_repeated(known, messages) {
        return Cow::Borrowed(messages);
    }
    let mut seen = known.clone();
    // For each original id, the new ids of the calls without a result yet, in order.
    let mut waiting: BTreeMap<CallId, VecDeque<CallId>> = BTreeMap::new();
    let mut messages = messages.to_vec();
    for (message, found) in messages.iter_mut().enumerate() {
        for (part, found) in found.parts.iter_mut().enumerate() {
            match &mut found.content {
                Content::ToolCall(call) => {
                    let given = call.id.clone();
                    if !seen.insert(given.clone()) {
                        call.id = new_id(Place { message, part });
                    }
                    waiting.entry(given).or_default().push_back(call.id.clone());
                }
                Content::ToolResult(result) => {
                    let call = waiting.get_mut(&result.call).and_then(VecDeque::pop_front);
                    if let Some(call) = call {
                        result.call = call;
                    }
                }
                Content::Text(_)
                | Content::Reasoning { .. }
                | Content::Refusal(_)
                | Content::Media(_)
                | Content::ProviderItem(_)
                | Content::Unknown(_) => {}
            }
        }
    }
    Cow::Owned(messages)
}

fn has_repeated(known: &BTreeSet<CallId>, messages: &[InputMessage]) -> bool {
    let mut seen = BTreeSet::new();
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| part.content.as_call()).any(|call| known.contains(&call.id) || !seen.insert(&call.id))
}

//! Calls and results of server tools, which the service runs itself: which of them are stored, and
//! which are sent back.
//!
//! The service rejects a call without a result and a result without its call. The two may be far
//! apart: if a response also calls a host tool, the service writes the result of its own tool after
//! the result of the host tool.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::{
    model::{Content, Message, ProviderItem, Role},
    provider::http::lenient,
};

/// Limit on the bytes of a result that is stored. A file that the service fetched may exceed the
/// limit on a response.
const MAX_RESULT_BYTES: usize = 256 << 10;

/// Limit on the bytes of all stored results of one response.
const MAX_RESULTS_BYTES: usize = 512 << 10;

/// The field of a result that holds the output of the tool.
const CONTENT: &str = "content";

/// Whether an item of this kind is a call, such as `server_tool_use` and `mcp_tool_use`.
pub(super) fn is_call(kind: &str) -> bool {
    kind.ends_with("_tool_use")
}

/// Whether an item of this kind is the result of a call, such as `web_search_tool_result`.
pub(super) fn is_result(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// The space for the results of one response.
#[derive(Debug, Default)]
pub(super) struct ResultBudget {
    used: usize,
}

impl ResultBudget {
    /// Removes the output from a result that exceeds the remaining space.
    pub(super) fn fit(&mut self, kind: &str, fields: &mut BTreeMap<String, Box<RawValue>>) {
        if !is_result(kind) {
            return;
        }
        let size: usize = fields.values().map(|raw| raw.get().len()).sum();
        let used = self.used.saturating_add(size);
        if size > MAX_RESULT_BYTES || used > MAX_RESULTS_BYTES {
            fields.insert(CONTENT.to_owned(), RawValue::NULL.to_owned());
        } else {
            self.used = used;
        }
    }
}

/// The position of an item: index of the message, and index of the part within it.
type ItemPosition = (usize, usize);

/// Which calls and results of a conversation are sent back.
#[derive(Debug, Default)]
pub(super) struct Hosted {
    /// Items that are not sent back.
    withheld: BTreeSet<ItemPosition>,
    /// Ids of the calls that are sent back.
    calls: BTreeSet<String>,
    /// Messages that may cite a result that is not sent back.
    uncited: BTreeSet<usize>,
}

impl Hosted {
    /// Selects from a conversation the items that this provider created.
    pub(super) fn of(messages: &[Message], provider: &str) -> Self {
        let mut hosted = Self::default();
        let mut exchange = Exchange::default();
        for (at, message) in messages.iter().enumerate() {
            match message.role {
                Role::Assistant => exchange.read(at, message, provider),
                Role::Tool => {}
                Role::User | Role::System => {
                    std::mem::take(&mut exchange).end(false, &mut hosted);
                }
            }
        }
        exchange.end(true, &mut hosted);
        hosted
    }

    /// Whether the item at this position is sent back.
    pub(super) fn sends(&self, message: usize, part: usize) -> bool {
        !self.withheld.contains(&(message, part))
    }

    /// Whether the call with this id is sent back.
    pub(super) fn sends_call(&self, id: &str) -> bool {
        self.calls.contains(id)
    }

    /// Whether everything that a message cites is sent back.
    pub(super) fn sends_sources(&self, message: usize) -> bool {
        !self.uncited.contains(&message)
    }
}

/// Consecutive assistant messages without a user message in between.
#[derive(Debug, Default)]
struct Exchange {
    messages: Vec<usize>,
    calls: BTreeMap<String, Call>,
    /// Calls and results that are never sent back.
    withheld: Vec<ItemPosition>,
    /// A result is among `withheld`.
    lacks_result: bool,
}

#[derive(Debug)]
struct Call {
    place: ItemPosition,
    outcome: Outcome,
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The service is still running it.
    Waiting,
    /// It has a result.
    Answered,
    /// Its result was not stored.
    Lost,
}

impl Exchange {
    fn read(&mut self, at: usize, message: &Message, provider: &str) {
        self.messages.push(at);
        for (part, stored) in message.parts.iter().enumerate() {
            if let Content::ProviderItem(item) = &stored.part.content
                && item.provider == provider
            {
                self.add((at, part), item);
            }
        }
    }

    fn add(&mut self, place: ItemPosition, item: &ProviderItem) {
        if is_call(&item.kind) {
            let id = lenient::member(&item.json, "id");
            let outcome = Outcome::Waiting;
            match self.calls.get(&id) {
                Some(_) => self.withheld.push(place),
                None => drop(self.calls.insert(id, Call { place, outcome })),
            }
        } else if is_result(&item.kind) {
            let fields = lenient::members(&item.json);
            let whole = fields.get(CONTENT).is_none_or(|raw| raw.get() != "null");
            self.answer(place, &lenient::member(&item.json, "tool_use_id"), whole);
        }
    }

    /// Records a result. `whole`: its output was stored.
    fn answer(&mut self, place: ItemPosition, id: &str, whole: bool) {
        match self.calls.get_mut(id) {
            Some(call) if call.outcome == Outcome::Waiting && whole => {
                call.outcome = Outcome::Answered;
            }
            call => {
                if let Some(call) = call.filter(|call| call.outcome == Outcome::Waiting) {
                    call.outcome = Outcome::Lost;
                }
                self.withheld.push(place);
                self.lacks_result = true;
            }
        }
    }

    /// Ends the exchange, at a user message or at the end of the conversation. `open`: the service
    /// can still continue calls that it started.
    fn end(self, open: bool, hosted: &mut Hosted) {
        hosted.withheld.extend(self.withheld);
        if self.lacks_result {
            hosted.uncited.extend(self.messages);
        }
        for (id, Call { place, outcome }) in self.calls {
            let goes_back = match outcome {
                Outcome::Answered => true,
                Outcome::Waiting => open,
                Outcome::Lost => false,
            };
            if goes_back {
                hosted.calls.insert(id);
            } else {
                hosted.withheld.insert(place);
            }
        }
    }
}

//! Calls and results of the tools that the service runs itself: which of them are kept, and which go
//! back.
//!
//! The service refuses a call that never got a result and a result whose call is not there. The two
//! may be far apart: where an answer calls a tool of the host's too, the service writes its own
//! result after the host's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::{
    model::{Content, Message, ProviderItem, Role},
    provider::http::lenient,
};

/// Bytes of a result that is kept: a file that the service fetched may be larger than an answer may
/// be.
const MAX_RESULT_BYTES: usize = 256 << 10;

/// Bytes of the results of one answer that are kept.
const MAX_RESULTS_BYTES: usize = 512 << 10;

/// What the service's own tools gave stands in this field of a result.
const CONTENT: &str = "content";

/// Whether an item of that kind is a call, as `server_tool_use` and `mcp_tool_use` are.
pub(super) fn is_call(kind: &str) -> bool {
    kind.ends_with("_tool_use")
}

/// Whether an item of that kind is the result of a call, as `web_search_tool_result` is.
pub(super) fn is_result(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// The room for the results of one answer.
#[derive(Debug, Default)]
pub(super) struct Room {
    used: usize,
}

impl Room {
    /// Takes what a result holds out of it where there is no room for that.
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

/// Where an item stands: its message, and its part in that.
type Place = (usize, usize);

/// Which calls and results of a conversation go back.
#[derive(Debug, Default)]
pub(super) struct Hosted {
    /// Items that do not.
    withheld: BTreeSet<Place>,
    /// The ids of the calls that do.
    calls: BTreeSet<String>,
    /// Messages of which a source may be in a result that does not go back.
    uncited: BTreeSet<usize>,
}

impl Hosted {
    /// Those of a conversation, as far as that provider wrote them.
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

    /// Whether an item there goes back.
    pub(super) fn sends(&self, message: usize, part: usize) -> bool {
        !self.withheld.contains(&(message, part))
    }

    /// Whether the call of that id goes back.
    pub(super) fn sends_call(&self, id: &str) -> bool {
        self.calls.contains(id)
    }

    /// Whether everything that a message cites goes back.
    pub(super) fn sends_sources(&self, message: usize) -> bool {
        !self.uncited.contains(&message)
    }
}

/// What the model said without a word of the user's in between.
#[derive(Debug, Default)]
struct Exchange {
    messages: Vec<usize>,
    calls: BTreeMap<String, Call>,
    /// Calls and results that do not go back whatever follows.
    withheld: Vec<Place>,
    /// A result is among them.
    lacks_result: bool,
}

#[derive(Debug)]
struct Call {
    place: Place,
    outcome: Outcome,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The service is still at work on it.
    Waiting,
    /// It has its result.
    Answered,
    /// Its result was not kept.
    Lost,
}

impl Exchange {
    fn read(&mut self, at: usize, message: &Message, provider: &str) {
        self.messages.push(at);
        for (part, stored) in message.parts.iter().enumerate() {
            match &stored.part.content {
                Content::ProviderItem(item) if item.provider == provider => {
                    self.add((at, part), item);
                }
                Content::ProviderItem(_)
                | Content::Text(_)
                | Content::Reasoning { .. }
                | Content::ToolCall(_)
                | Content::ToolResult(_)
                | Content::Refusal(_)
                | Content::Media(_)
                | Content::Unknown(_) => {}
            }
        }
    }

    fn add(&mut self, place: Place, item: &ProviderItem) {
        let fields = || lenient::members(&item.json);
        let word = |fields: &BTreeMap<String, Box<RawValue>>, name: &str| {
            fields
                .get(name)
                .map(|raw| lenient::word(raw))
                .unwrap_or_default()
        };
        if is_call(&item.kind) {
            let id = word(&fields(), "id");
            let outcome = Outcome::Waiting;
            match self.calls.get(&id) {
                Some(_) => self.withheld.push(place),
                None => drop(self.calls.insert(id, Call { place, outcome })),
            }
        } else if is_result(&item.kind) {
            let fields = fields();
            let whole = fields.get(CONTENT).is_none_or(|raw| raw.get() != "null");
            self.answer(place, &word(&fields, "tool_use_id"), whole);
        }
    }

    /// A result came. `whole`: it was kept.
    fn answer(&mut self, place: Place, id: &str, whole: bool) {
        match self.calls.get_mut(id) {
            Some(call) if call.outcome == Outcome::Waiting && whole => {
                call.outcome = Outcome::Answered;
            }
            Some(call) => {
                if call.outcome == Outcome::Waiting {
                    call.outcome = Outcome::Lost;
                }
                self.withheld.push(place);
                self.lacks_result = true;
            }
            None => {
                self.withheld.push(place);
                self.lacks_result = true;
            }
        }
    }

    /// Nothing follows, or the user does. `open`: the service can still go on with what it began.
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

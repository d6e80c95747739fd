//! Messages that a host appends by itself, and what makes them fit: the transcript stays closed, or
//! ends in one open batch of calls.

mod repeated;

use std::collections::{BTreeMap, BTreeSet};

pub use repeated::with_unique_calls;

use super::{CallId, Content, InputMessage, Role};

/// Where a part stands among the messages that are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which message.
    pub message: usize,
    /// Which of its parts.
    pub part: usize,
}

/// A call that waits for its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// The message that makes it is pinned.
    pub pinned: bool,
}

/// A call that the appended messages make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeCall {
    /// The call.
    pub call: OpenCall,
    /// Where it is made.
    pub made: Place,
    /// Where it is answered. `None` means it is left open.
    pub answered: Option<Place>,
}

/// An answer to a call that was open before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The call.
    pub call: OpenCall,
    /// Where it is answered.
    pub answered: Place,
}

/// What the appended messages do to the session's calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fit {
    /// Calls that they make.
    pub made: Vec<MadeCall>,
    /// Calls that were open before, and that they answer.
    pub answered: Vec<Answered>,
    /// The call that each result answers.
    pub results: BTreeMap<Place, OpenCall>,
    /// How many calls are open after them.
    pub open: usize,
}

/// Why a message does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// The session has a call of that id already.
    Taken(Place),
    /// A result of a call that was never made.
    Orphan(Place),
    /// A result of a call that has one.
    Repeated(Place),
    /// A call that has no result when the next message comes.
    Unanswered {
        /// The call.
        call: Place,
        /// The next message.
        before: usize,
    },
    /// A message of results that is pinned while the message with the calls is not: a compaction
    /// would part them.
    PinnedApart(usize),
}

/// Why messages cannot be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// The session ends in these calls, and something else than their results was to follow.
    Open(Vec<CallId>),
    /// The messages do not fit among themselves, or answer what the session never asked.
    Flawed(Vec<Flaw>),
}

/// Which of two beginnings an open call has.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Session(usize),
    Appended(usize),
}

/// Checks whether messages can follow a session that ends in these open calls. `known` are the
/// calls among theirs that the session has, the open ones included.
pub fn fit(
    open: &[OpenCall],
    known: &BTreeSet<CallId>,
    messages: &[InputMessage],
) -> Result<Fit, Misfit> {
    let mut fitting = Fitting {
        open,
        waiting: open
            .iter()
            .enumerate()
            .map(|(i, call)| (call.id.clone(), Origin::Session(i)))
            .collect(),
        seen: known.clone(),
        fit: Fit::default(),
        flaws: Vec::new(),
        parted: None,
        interrupted: None,
    };
    for (index, message) in messages.iter().enumerate() {
        fitting.message(index, message);
    }
    fitting.finish()
}

struct Fitting<'a> {
    open: &'a [OpenCall],
    waiting: BTreeMap<CallId, Origin>,
    /// Calls that the session or an earlier message made.
    seen: BTreeSet<CallId>,
    fit: Fit,
    flaws: Vec<Flaw>,
    /// The last message of results that is pinned apart.
    parted: Option<usize>,
    /// The session's open calls that something else than results followed.
    interrupted: Option<Vec<CallId>>,
}

impl Fitting<'_> {
    fn message(&mut self, index: usize, message: &InputMessage) {
        if message.role != Role::Tool {
            self.interrupt(index);
        }
        for (part, content) in message.parts.iter().map(|part| &part.content).enumerate() {
            let place = Place {
                message: index,
                part,
            };
            match content {
                Content::ToolCall(call) => {
                    let pinned = message.pinned;
                    self.call(
                        OpenCall {
                            id: call.id.clone(),
                            name: call.name.clone(),
                            pinned,
                        },
                        place,
                    );
                }
                Content::ToolResult(result) => self.result(&result.call, message.pinned, place),
                Content::Text(_)
                | Content::Reasoning { .. }
                | Content::Refusal(_)
                | Content::Media(_)
                | Content::ProviderItem(_)
                | Content::Unknown(_) => {}
            }
        }
    }

    /// Something other than results comes: calls that still wait get no result any more.
    fn interrupt(&mut self, before: usize) {
        let mut interrupted = Vec::new();
        for (id, origin) in std::mem::take(&mut self.waiting) {
            match origin {
                Origin::Session(_) => interrupted.push(id),
                Origin::Appended(made) => {
                    self.flaws.push(Flaw::Unanswered {
                        call: self.fit.made[made].made,
                        before,
                    });
                }
            }
        }
        if !interrupted.is_empty() {
            self.interrupted = Some(interrupted);
        }
    }

    fn call(&mut self, call: OpenCall, made: Place) {
        if !self.seen.insert(call.id.clone()) {
            self.flaws.push(Flaw::Taken(made));
            return;
        }
        self.waiting
            .insert(call.id.clone(), Origin::Appended(self.fit.made.len()));
        self.fit.made.push(MadeCall {
            call,
            made,
            answered: None,
        });
    }

    fn result(&mut self, call: &CallId, pinned: bool, answered: Place) {
        let asked = match self.waiting.remove(call) {
            Some(Origin::Session(before)) => {
                let call = self.open[before].clone();
                self.fit.answered.push(Answered {
                    call: call.clone(),
                    answered,
                });
                call
            }
            Some(Origin::Appended(made)) => {
                self.fit.made[made].answered = Some(answered);
                self.fit.made[made].call.clone()
            }
            None if self.seen.contains(call) => return self.flaws.push(Flaw::Repeated(answered)),
            None => return self.flaws.push(Flaw::Orphan(answered)),
        };
        if pinned && !asked.pinned && self.parted != Some(answered.message) {
            self.parted = Some(answered.message);
            self.flaws.push(Flaw::PinnedApart(answered.message));
        }
        self.fit.results.insert(answered, asked);
    }

    fn finish(mut self) -> Result<Fit, Misfit> {
        if !self.flaws.is_empty() {
            self.flaws.sort_unstable_by_key(|flaw| flaw.place());
            return Err(Misfit::Flawed(self.flaws));
        }
        if let Some(calls) = self.interrupted {
            return Err(Misfit::Open(calls));
        }
        self.fit.open = self.waiting.len();
        Ok(self.fit)
    }
}

impl Flaw {
    /// Where it stands.
    fn place(&self) -> Place {
        match *self {
            Self::Taken(place)
            | Self::Orphan(place)
            | Self::Repeated(place)
            | Self::Unanswered { call: place, .. } => place,
            Self::PinnedApart(message) => Place { message, part: 0 },
        }
    }
}

#[cfg(test)]
mod tests;

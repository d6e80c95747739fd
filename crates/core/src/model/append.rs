//! Checks messages that a host appends without a turn. After them the transcript must still be closed, or end in one
//! open batch of calls.

mod repeated;

use std::collections::{BTreeMap, BTreeSet};

pub use repeated::with_unique_calls;

use super::{CallId, InputMessage, Role};

/// Position of a part among the appended messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Index of the message.
    pub message: usize,
    /// Index of the part within the message.
    pub part: usize,
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    pub id: CallId,
    pub name: String,
    /// The message with the call is pinned.
    pub pinned: bool,
}

/// A call in the appended messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeCall {
    pub call: OpenCall,
    pub made: Place,
    /// Position of its result. `None` means the call stays open.
    pub answered: Option<Place>,
}

/// A result in the appended messages for a call that was open before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub call: OpenCall,
    /// Position of the result.
    pub answered: Place,
}

/// How the appended messages change the session's calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallChanges {
    /// Calls in the appended messages.
    pub made: Vec<MadeCall>,
    /// Calls that were open before and that the appended messages answer.
    pub answered: Vec<Answered>,
    /// The call that each result answers.
    pub results: BTreeMap<Place, OpenCall>,
    /// Number of calls that are open after the appended messages.
    pub open: usize,
}

/// Why an appended message is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// The session already has a call with this id.
    Taken(Place),
    /// A result for a call that does not exist.
    Orphan(Place),
    /// A second result for the same call.
    Repeated(Place),
    /// A call without a result before the next message that is not a result.
    Unanswered {
        call: Place,
        /// Index of that next message.
        before: usize,
    },
    /// A pinned message of results whose calls are in a message that is not pinned: a compaction would separate them.
    PinnedApart(usize),
}

/// Why messages cannot be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendError {
    /// The session ends in these open calls, and a message other than their results follows.
    Open(Vec<CallId>),
    /// The messages are inconsistent with each other, or answer calls that the session does not have.
    Flawed(Vec<Flaw>),
}

/// Where an open call is from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Session(usize),
    Appended(usize),
}

/// Checks whether the messages can follow a session that ends in the calls `open`. `known` are the calls of the session
/// whose ids occur in the messages, the open ones included.
pub fn fit(open: &[OpenCall], known: &BTreeSet<CallId>, messages: &[InputMessage]) -> Result<CallChanges, AppendError> {
    let mut fitting = Fitting {
        open,
        waiting: open.iter().enumerate().map(|(i, call)| (call.id.clone(), Origin::Session(i))).collect(),
        seen: known.clone(),
        fit: CallChanges::default(),
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
    /// Calls of the session and of the messages so far.
    seen: BTreeSet<CallId>,
    fit: CallChanges,
    flaws: Vec<Flaw>,
    /// Index of the last message of results that is `PinnedApart`.
    parted: Option<usize>,
    /// The session's open calls, if a message other than their results followed.
    interrupted: Option<Vec<CallId>>,
}

impl Fitting<'_> {
    fn message(&mut self, index: usize, message: &InputMessage) {
        if message.role != Role::Tool {
            self.interrupt(index);
        }
        for (part, content) in message.parts.iter().map(|part| &part.content).enumerate() {
            let place = Place { message: index, part };
            if let Some(call) = content.as_call() {
                let pinned = message.pinned;
                self.call(OpenCall { id: call.id.clone(), name: call.name.clone(), pinned }, place);
            } else if let Some(result) = content.as_result() {
                self.result(&result.call, message.pinned, place);
            }
        }
    }

    /// Handles a message that is not a result: calls that are still open can no longer get one.
    fn interrupt(&mut self, before: usize) {
        let mut interrupted = Vec::new();
        for (id, origin) in std::mem::take(&mut self.waiting) {
            match origin {
                Origin::Session(_) => interrupted.push(id),
                Origin::Appended(made) => {
                    self.flaws.push(Flaw::Unanswered { call: self.fit.made[made].made, before });
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
        self.waiting.insert(call.id.clone(), Origin::Appended(self.fit.made.len()));
        self.fit.made.push(MadeCall { call, made, answered: None });
    }

    fn result(&mut self, call: &CallId, pinned: bool, answered: Place) {
        let asked = match self.waiting.remove(call) {
            Some(Origin::Session(before)) => {
                let call = self.open[before].clone();
                self.fit.answered.push(Answered { call: call.clone(), answered });
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

    fn finish(mut self) -> Result<CallChanges, AppendError> {
        if !self.flaws.is_empty() {
            self.flaws.sort_unstable_by_key(|flaw| flaw.place());
            return Err(AppendError::Flawed(self.flaws));
        }
        if let Some(calls) = self.interrupted {
            return Err(AppendError::Open(calls));
        }
        self.fit.open = self.waiting.len();
        Ok(self.fit)
    }
}

impl Flaw {
    /// Position of the flaw, for sorting.
    fn place(&self) -> Place {
        match *self {
            Self::Taken(place) | Self::Orphan(place) | Self::Repeated(place) | Self::Unanswered { call: place, .. } => {
                place
            }
            Self::PinnedApart(message) => Place { message, part: 0 },
        }
    }
}

#[cfg(test)]
mod tests;

//! Renders events as text. Independent of the terminal and the network.
//!
//! On a terminal, a response is shown as it streams, each byte once: a delta has its offset in its part, and
//! text already shown is skipped, whether it arrives again after a reconnect, in a `sync` or in the final
//! message. When a void response is repeated, output continues from the text on the screen as long as both
//! are the same; see [`ScreenText`].

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{self, Line};
use super::tape::{Kind, ScreenText, ScreenUpdate};
use contextd_proto::{self as pb, event::Payload, part::Content};

#[cfg(test)]
mod tests;

/// A piece of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Text of a model response.
    Answer(String),
    /// Other output.
    Notice(String),
}

/// How to render.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Whether text is shown as it streams. Otherwise each message is printed once it is final, so that
    /// programs never read void text.
    pub live: bool,
    /// Whether to use colours.
    pub colour: bool,
}

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

impl Style {
    pub(super) fn dim(self, text: &str) -> String {
        self.wrap(DIM, text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.wrap(RED, text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("{code}{text}{PLAIN}") } else { text.to_owned() }
    }
}

/// The rendering state of a turn.
#[derive(Debug)]
pub(super) struct View {
    style: Style,
    /// Id of the message being streamed. Empty if there is none.
    open: String,
    /// Bytes received of each of its parts.
    received_bytes: BTreeMap<i32, usize>,
    /// The kind of the last part received.
    last: Option<Kind>,
    tape: ScreenText,
    /// Messages that are final.
    settled: BTreeSet<String>,
    /// Messages already reported as queued, with their text if this user sent them.
    queued: BTreeMap<String, String>,
    /// The cursor is not at the beginning of a line.
    in_line: bool,
}

impl View {
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            open: String::new(),
            received_bytes: BTreeMap::new(),
            last: None,
            tape: ScreenText::default(),
            settled: BTreeSet::new(),
            queued: BTreeMap::new(),
            in_line: false,
        }
    }

    /// Renders an event.
    pub(super) fn show(&mut self, event: &pb::Event) -> Vec<Output> {
        let mut out = Vec::new();
        // The payload is unset if its type is newer than this client.
        if let Some(payload) = &event.payload {
            self.payload(payload, &mut out);
        }
        out
    }

    /// Renders a notice.
    pub(super) fn notice(&mut self, line: &str) -> Vec<Output> {
        let mut out = Vec::new();
        self.note(line, &mut out);
        out
    }

    /// Renders that the server has queued a message of this user. Its event may have been rendered before.
    pub(super) fn queued(&mut self, message: &pb::QueuedMessage, words: &str) -> Vec<Output> {
        let mut out = Vec::new();
        self.waits(&message.queued_message_id, words, message.position, &mut out);
        out
    }

    /// Ends the current line, so that other output can follow.
    pub(super) fn pause(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        self.close_line(&mut out);
        out
    }

    /// Renders an error.
    pub(super) fn error(&mut self, line: &str) -> Vec<Output> {
        let mut out = Vec::new();
        self.put(Output::Notice(format!("{}\n", self.style.red(line))), &mut out);
        out
    }

    fn payload(&mut self, payload: &Payload, out: &mut Vec<Output>) {
        match payload {
            Payload::TextDelta(d) => self.piece(Kind::Text, &d.message_id, d.part_index, d.byte_offset, &d.text, out),
            Payload::ReasoningDelta(d) => {
                self.piece(Kind::Reasoning, &d.message_id, d.part_index, d.byte_offset, &d.text, out);
            }
            Payload::Sync(sync) => self.sync(sync, out),
            Payload::MessageCommitted(committed) => self.commit(committed.message.as_ref(), out),
            Payload::TurnRetrying(_) | Payload::TurnRecovered(_) => self.void(),
            Payload::TurnCompleted(_) | Payload::TurnCancelled(_) | Payload::TurnFailed(_) => self.end(out),
            Payload::MessageQueued(queued) => self.waits(&queued.queued_message_id, "", queued.position, out),
            Payload::MessagesApplied(applied) => self.taken(applied, out),
            Payload::ToolInputDelta(_)
            | Payload::Heartbeat(_)
            | Payload::Admitted(_)
            | Payload::TurnStarted(_)
            | Payload::StepStarted(_)
            | Payload::ToolCallRequested(_)
            | Payload::ApprovalRequested(_)
            | Payload::ToolCallCompleted(_)
            | Payload::ToolCallCancelled(_)
            | Payload::ActionRequired(_)
            | Payload::UsageRecorded(_)
            | Payload::UnsupportedInput(_)
            | Payload::ModelSwitched(_)
            | Payload::ModelFallback(_)
            | Payload::SessionUpdated(_)
            | Payload::QueuedMessageCancelled(_)
            | Payload::QueuedMessageExpired(_)
            | Payload::QueuedMessageDropped(_)
            | Payload::ContextPruned(_)
            | Payload::ContextRestored(_)
            | Payload::CompactionStarted(_)
            | Payload::CompactionCompleted(_)
            | Payload::CompactionFailed(_)
            | Payload::CompactionReverted(_)
            | Payload::Thinking(_)
            | Payload::Notice(_) => {}
        }
        match lines::event_line(payload) {
            Some(Line::Plain(line)) => self.note(&line, out),
            Some(Line::Error(line)) => out.extend(self.error(&line)),
            None => {}
        }
    }

    /// Renders that a message is queued, once per message.
    fn waits(&mut self, id: &str, words: &str, position: i32, out: &mut Vec<Output>) {
        let told = self.queued.contains_key(id);
        let known = self.queued.entry(id.to_owned()).or_default();
        if !words.is_empty() {
            words.clone_into(known);
        }
        if !told && position > 0 {
            self.note(&lines::queued(position), out);
        }
    }

    /// Renders that a turn has taken queued messages.
    fn taken(&mut self, applied: &pb::MessagesApplied, out: &mut Vec<Output>) {
        let ids = applied.messages.iter().map(|message| &message.queued_message_id);
        let words: Vec<String> = ids.map(|id| self.queued.get(id).cloned().unwrap_or_default()).collect();
        let known: Vec<&str> = words.iter().map(String::as_str).filter(|words| !words.is_empty()).collect();
        for line in lines::taken(&known, words.len() - known.len()) {
            self.note(&line, out);
        }
    }

    /// Renders the open message of a `sync`: all text that was streamed so far.
    fn sync(&mut self, sync: &pb::Sync, out: &mut Vec<Output>) {
        if let Some(message) = sync.open_message.as_ref().filter(|_| self.style.live) {
            self.parts(message, out);
        }
    }

    /// Renders the rest of a final message, and ends its line.
    fn commit(&mut self, message: Option<&pb::Message>, out: &mut Vec<Output>) {
        let Some(message) = message.filter(|message| message.role() == pb::Role::Assistant) else {
            return;
        };
        self.parts(message, out);
        if self.open == message.message_id
            && let ScreenUpdate::Restart(anew) = self.tape.finish()
        {
            self.begun_again(&anew, out);
        }
        self.close_line(out);
        self.settled.insert(message.message_id.clone());
        self.forget();
        for line in message.parts.iter().filter_map(lines::unstreamed_content) {
            self.note(&line, out);
        }
    }

    fn parts(&mut self, message: &pb::Message, out: &mut Vec<Output>) {
        for (index, part) in (0..).zip(&message.parts) {
            match &part.content {
                Some(Content::Text(text) | Content::Refusal(text)) => {
                    self.words(Kind::Text, &message.message_id, index, 0, text, out);
                }
                Some(Content::Reasoning(reasoning)) => {
                    self.words(Kind::Reasoning, &message.message_id, index, 0, &reasoning.text, out);
                }
                Some(
                    Content::ToolCall(_)
                    | Content::ToolResult(_)
                    | Content::Media(_)
                    | Content::ProviderItem(_)
                    | Content::StepStart(_)
                    | Content::CompactionMarker(_),
                )
                | None => {}
            }
        }
    }

    /// Renders a delta of the open message.
    fn piece(&mut self, kind: Kind, message: &str, part: i32, offset: i32, text: &str, out: &mut Vec<Output>) {
        if self.style.live {
            self.words(kind, message, part, offset, text, out);
        }
    }

    /// Renders text of a message, without what was already shown. After a gap nothing is shown until a `sync`
    /// or the final message fills it.
    fn words(&mut self, kind: Kind, message: &str, part: i32, offset: i32, text: &str, out: &mut Vec<Output>) {
        if self.settled.contains(message) {
            return;
        }
        if self.open != message {
            self.void();
            message.clone_into(&mut self.open);
        }
        let heard = self.received_bytes.get(&part).copied().unwrap_or_default();
        let known = usize::try_from(offset).ok().and_then(|offset| heard.checked_sub(offset));
        let Some(new) = known.and_then(|known| text.get(known..)).filter(|new| !new.is_empty()) else {
            return;
        };
        if heard == 0 {
            self.begin_part(kind, out);
        }
        self.received_bytes.insert(part, heard + new.len());
        self.say(kind, &lines::printable(new, self.style.live), out);
    }

    /// Separates two parts with a newline. Consecutive text parts are not separated, because the provider
    /// chose where one ends.
    fn begin_part(&mut self, kind: Kind, out: &mut Vec<Output>) {
        match (self.last, kind) {
            (None, Kind::Text | Kind::Reasoning) | (Some(Kind::Text), Kind::Text) => {}
            (Some(before), Kind::Text | Kind::Reasoning) => self.say(before, "\n", out),
        }
        self.last = Some(kind);
    }

    fn say(&mut self, kind: Kind, text: &str, out: &mut Vec<Output>) {
        match self.tape.add(kind, text) {
            ScreenUpdate::New(new) => self.print(kind, &new, out),
            ScreenUpdate::AlreadyShown => {}
            ScreenUpdate::Restart(anew) => self.begun_again(&anew, out),
        }
    }

    /// Renders a repeated response that differs from the text on the screen.
    fn begun_again(&mut self, anew: &[(Kind, String)], out: &mut Vec<Output>) {
        self.note("(the response was restarted)", out);
        for (kind, text) in anew {
            self.print(*kind, text, out);
        }
    }

    fn print(&mut self, kind: Kind, text: &str, out: &mut Vec<Output>) {
        if let Some(end) = text.chars().next_back() {
            out.push(match kind {
                Kind::Text => Output::Answer(text.to_owned()),
                Kind::Reasoning => Output::Notice(self.style.dim(text)),
            });
            self.in_line = end != '\n';
        }
    }

    /// Discards the text of the open message.
    fn void(&mut self) {
        self.open.clear();
        self.received_bytes.clear();
        self.last = None;
        self.tape.rewind();
    }

    fn forget(&mut self) {
        self.void();
        self.tape = ScreenText::default();
    }

    fn end(&mut self, out: &mut Vec<Output>) {
        let shown = !self.tape.is_empty();
        self.close_line(out);
        self.forget();
        if shown {
            self.note("(the partial response above was discarded)", out);
        }
    }

    fn note(&mut self, line: &str, out: &mut Vec<Output>) {
        self.put(Output::Notice(format!("{}\n", self.style.dim(line))), out);
    }

    /// Renders whole lines, which start on a new line.
    fn put(&mut self, lines: Output, out: &mut Vec<Output>) {
        self.close_line(out);
        out.push(lines);
    }

    fn close_line(&mut self, out: &mut Vec<Output>) {
        if std::mem::take(&mut self.in_line) {
            out.push(match self.last {
                Some(Kind::Text) | None => Output::Answer("\n".to_owned()),
                Some(Kind::Reasoning) => Output::Notice("\n".to_owned()),
            });
        }
    }
}

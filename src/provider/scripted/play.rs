//! Plays what a step does: beat by beat without a clock, and as a stream with one.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{Stream, stream};

use super::{
    action::{Act, Pace, Report, Voice},
    signals::Signals,
};
use crate::{
    model::{FinishReason, Prompt, Tally, Usage},
    provider::{Chunk, Error, Finish},
};

/// What happens next in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Beat {
    /// A piece arrives.
    Chunk(Chunk),
    /// Time passes.
    Delay(Duration),
    /// Nothing arrives until a signal is released.
    WaitFor(String),
    /// The answer fails; nothing follows.
    Fail(Error),
    /// Nothing arrives any more.
    Stall,
}

/// An answer that is being played: an iterator of beats.
#[derive(Debug)]
pub(super) struct Player {
    prompt: Arc<Prompt>,
    moves: VecDeque<Move>,
    calls: u32,
    said: Tally,
    thought: Tally,
}

/// What is left to do.
#[derive(Debug)]
enum Move {
    Act(Act),
    Stream {
        tone: Tone,
        text: String,
        at: usize,
        pace: Pace,
    },
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy)]
enum Tone {
    Voice(Voice),
    Input(u32),
}

impl Player {
    /// An answer to the prompt. One that does not say how it ends is finished in the ordinary way.
    pub(super) fn new(acts: Vec<Act>, prompt: Arc<Prompt>) -> Self {
        let end = Act::Finish {
            reason: None,
            usage: Report::Estimated,
        };
        let moves = acts.into_iter().chain([end]).map(Move::Act).collect();
        Self {
            prompt,
            moves,
            calls: 0,
            said: Tally::default(),
            thought: Tally::default(),
        }
    }

    /// Begins an act. `None` means it has no beat of its own.
    fn begin(&mut self, act: Act) -> Option<Beat> {
        match act {
            Act::Say { voice, text, pace } => {
                self.moves.push_front(Move::Stream {
                    tone: Tone::Voice(voice),
                    text,
                    at: 0,
                    pace,
                });
                None
            }
            Act::Call {
                name,
                id,
                arguments,
                pace,
            } => {
                let index = self.calls;
                self.calls += 1;
                self.said = self.said.plus(&name);
                self.moves.push_front(Move::Stream {
                    tone: Tone::Input(index),
                    text: arguments,
                    at: 0,
                    pace,
                });
                Some(Beat::Chunk(Chunk::ToolCall { index, id, name }))
            }
            Act::Delay(delay) => Some(Beat::Delay(delay)),
            Act::WaitFor(name) => Some(Beat::WaitFor(name)),
            Act::Fail(error) => self.end(Some(Beat::Fail(error))),
            Act::Finish { reason, usage } => {
                let finish = self.finish(reason, usage);
                self.end(Some(Beat::Chunk(Chunk::Finished(finish))))
            }
            Act::Break => self.end(None),
            Act::Stall => self.end(Some(Beat::Stall)),
        }
    }

    /// The next piece of a text; the rest follows after the pace's delay.
    fn stream(&mut self, tone: Tone, text: String, at: usize, pace: Pace) -> Option<Beat> {
        let end = at + piece(&text[at..], pace.chunk_chars);
        if end == at {
            return None;
        }
        let piece = text[at..end].to_owned();
        if end < text.len() {
            self.moves.push_front(Move::Stream {
                tone,
                text,
                at: end,
                pace,
            });
            if !pace.delay.is_zero() {
                self.moves.push_front(Move::Act(Act::Delay(pace.delay)));
            }
        }
        Some(Beat::Chunk(self.speak(tone, piece)))
    }

    /// A piece as a chunk, counted.
    fn speak(&mut self, tone: Tone, piece: String) -> Chunk {
        match tone {
            Tone::Voice(Voice::Reasoning) => {
                self.thought = self.thought.plus(&piece);
                Chunk::Reasoning(piece)
            }
            Tone::Voice(Voice::Text) => {
                self.said = self.said.plus(&piece);
                Chunk::Text(piece)
            }
            Tone::Voice(Voice::Refusal) => {
                self.said = self.said.plus(&piece);
                Chunk::Refusal(piece)
            }
            Tone::Input(index) => {
                self.said = self.said.plus(&piece);
                Chunk::ToolInput { index, json: piece }
            }
        }
    }

    /// The last beat.
    fn end(&mut self, last: Option<Beat>) -> Option<Beat> {
        self.moves.clear();
        last
    }

    /// The end of the answer.
    fn finish(&self, reason: Option<FinishReason>, usage: Report) -> Finish {
        let reason = reason.unwrap_or(if self.calls > 0 {
            FinishReason::ToolCalls
        } else {
            FinishReason::Stop
        });
        Finish {
            reason,
            provider_reason: word(reason).to_owned(),
            usage: match usage {
                Report::Given(usage) => usage,
                Report::Estimated => Some(self.estimated()),
            },
            provider_model: self.prompt.model.clone(),
            response_id: String::new(),
            metadata: None,
            prompt_usage: None,
            prompt_fingerprint: None,
        }
    }

    /// Usage as the heuristic sees it: the same for the same prompt and answer.
    fn estimated(&self) -> Usage {
        let reasoning = self.thought.tokens();
        Usage {
            input: self.prompt.size.tokens,
            output: self.said.tokens().saturating_add(reasoning),
            reasoning,
            ..Usage::default()
        }
    }
}

impl Iterator for Player {
    type Item = Beat;

    fn next(&mut self) -> Option<Beat> {
        while let Some(next) = self.moves.pop_front() {
            let beat = match next {
                Move::Act(act) => self.begin(act),
                Move::Stream {
                    tone,
                    text,
                    at,
                    pace,
                } => self.stream(tone, text, at, pace),
            };
            if beat.is_some() {
                return beat;
            }
        }
        None
    }
}

/// The answer in time. Dropping the stream ends it, since nothing runs outside of it.
pub(super) fn stream(
    player: Player,
    signals: Signals,
) -> impl Stream<Item = Result<Chunk, Error>> + Send {
    stream::unfold((player, signals), async |(mut player, signals)| {
        let item = next_item(&mut player, &signals).await?;
        Some((item, (player, signals)))
    })
}

/// The next chunk or failure, once it is its time.
async fn next_item(player: &mut Player, signals: &Signals) -> Option<Result<Chunk, Error>> {
    // A long script without delays lets other tasks run, as a network would.
    tokio::task::consume_budget().await;
    loop {
        match player.next()? {
            Beat::Chunk(chunk) => return Some(Ok(chunk)),
            Beat::Fail(error) => return Some(Err(error)),
            Beat::Delay(delay) => tokio::time::sleep(delay).await,
            Beat::WaitFor(name) => signals.wait(&name).await,
            Beat::Stall => std::future::pending().await,
        }
    }
}

/// Length in bytes of the first piece: so many characters, or a word with the white space after it.
fn piece(text: &str, chunk_chars: Option<u32>) -> usize {
    let end = match chunk_chars {
        Some(chars) => text.char_indices().nth(chars as usize).map(|(at, _)| at),
        None => {
            let after_space = |(at, pair): (usize, [char; 2])| {
                (pair[0].is_whitespace() && !pair[1].is_whitespace()).then_some(at)
            };
            let pairs = text.chars().zip(text.char_indices().skip(1));
            pairs
                .map(|(before, (at, char))| (at, [before, char]))
                .find_map(after_space)
        }
    };
    end.unwrap_or(text.len())
}

/// A reason in the provider's own word.
fn word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Refusal => "refusal",
        FinishReason::Error => "error",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Paused => "paused",
    }
}

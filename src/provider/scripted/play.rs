//! Plays the actions of a step: first as a sequence of beats without a clock, then as a stream with
//! delays.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{Stream, stream};

use super::{
    action::{Output, Pace, RenderedAction, UsageReport},
    signals::Signals,
};
use crate::{
    model::{FinishReason, Prompt, Tally, Usage},
    provider::{Chunk, Error, Finish, chunk::TextKind},
};

/// The next event of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlaybackEvent {
    Chunk(Chunk),
    /// A delay.
    Delay(Duration),
    /// Nothing is returned until a signal is released.
    WaitFor(String),
    /// The response fails. No beat follows.
    Fail(Error),
    /// Nothing is returned any more; the stream stays open.
    Stall,
}

/// A response that is being played, as an iterator over beats.
#[derive(Debug)]
pub(super) struct Player {
    prompt: Arc<Prompt>,
    moves: VecDeque<Move>,
    calls: u32,
    output: Tally,
    reasoning: Tally,
}

/// A remaining action, or the rest of one.
#[derive(Debug)]
enum Move {
    Act(RenderedAction),
    Stream { tone: ChunkKind, text: String, at: usize, pace: Pace },
}

/// The kind of a streamed text.
#[derive(Debug, Clone, Copy)]
enum ChunkKind {
    Text(TextKind),
    Input(u32),
}

impl Player {
    /// Creates the response to a prompt. If no action ends it, it finishes normally.
    pub(super) fn new(acts: Vec<RenderedAction>, prompt: Arc<Prompt>) -> Self {
        let end = RenderedAction::Finish { reason: None, usage: UsageReport::Estimated };
        let moves = acts.into_iter().chain([end]).map(Move::Act).collect();
        Self { prompt, moves, calls: 0, output: Tally::default(), reasoning: Tally::default() }
    }

    /// Starts an action. Returns `None` if the action itself has no beat.
    fn begin(&mut self, act: RenderedAction) -> Option<PlaybackEvent> {
        match act {
            RenderedAction::Stream { output, text, pace } => {
                let (tone, begin) = match output {
                    Output::Text(kind) => (ChunkKind::Text(kind), None),
                    Output::Call { name, id } => {
                        let index = self.calls;
                        self.calls += 1;
                        self.output = self.output.plus(&name);
                        let call = Chunk::ToolCall { index, id, name };
                        (ChunkKind::Input(index), Some(PlaybackEvent::Chunk(call)))
                    }
                };
                self.moves.push_front(Move::Stream { tone, text, at: 0, pace });
                begin
            }
            RenderedAction::Delay(delay) => Some(PlaybackEvent::Delay(delay)),
            RenderedAction::WaitFor(name) => Some(PlaybackEvent::WaitFor(name)),
            RenderedAction::Fail(error) => self.end(Some(PlaybackEvent::Fail(error))),
            RenderedAction::Finish { reason, usage } => {
                let finish = self.finish(reason, usage);
                self.end(Some(PlaybackEvent::Chunk(Chunk::Finished(finish))))
            }
            RenderedAction::Break => self.end(None),
            RenderedAction::Stall => self.end(Some(PlaybackEvent::Stall)),
        }
    }

    /// The next chunk of a text. The rest follows after the delay of its pace.
    fn stream(&mut self, tone: ChunkKind, text: String, at: usize, pace: Pace) -> Option<PlaybackEvent> {
        let end = at + piece(&text[at..], pace.chunk_chars);
        if end == at {
            return None;
        }
        let piece = text[at..end].to_owned();
        if end < text.len() {
            self.moves.push_front(Move::Stream { tone, text, at: end, pace });
            if !pace.delay.is_zero() {
                self.moves.push_front(Move::Act(RenderedAction::Delay(pace.delay)));
            }
        }
        Some(PlaybackEvent::Chunk(self.speak(tone, piece)))
    }

    /// Converts text to a chunk and counts its tokens.
    fn speak(&mut self, tone: ChunkKind, piece: String) -> Chunk {
        let tally = match tone {
            ChunkKind::Text(TextKind::Reasoning) => &mut self.reasoning,
            ChunkKind::Text(TextKind::Text | TextKind::Refusal) | ChunkKind::Input(_) => &mut self.output,
        };
        *tally = tally.plus(&piece);
        match tone {
            ChunkKind::Text(kind) => kind.chunk(piece),
            ChunkKind::Input(index) => Chunk::ToolInput { index, json: piece },
        }
    }

    /// Returns the last beat.
    fn end(&mut self, last: Option<PlaybackEvent>) -> Option<PlaybackEvent> {
        self.moves.clear();
        last
    }

    /// How the response ended.
    fn finish(&self, reason: Option<FinishReason>, usage: UsageReport) -> Finish {
        let reason = reason.unwrap_or(if self.calls > 0 { FinishReason::ToolCalls } else { FinishReason::Stop });
        Finish {
            reason,
            provider_reason: word(reason).to_owned(),
            usage: match usage {
                UsageReport::Fixed(usage) => usage,
                UsageReport::Estimated => Some(self.estimated()),
            },
            provider_model: self.prompt.model.clone(),
            response_id: String::new(),
            metadata: None,
            prompt_usage: None,
            prompt_fingerprint: None,
        }
    }

    /// Usage estimated by the heuristic. Deterministic for the prompt and the response.
    fn estimated(&self) -> Usage {
        let reasoning = self.reasoning.tokens();
        Usage {
            input: self.prompt.size.tokens,
            output: self.output.tokens().saturating_add(reasoning),
            reasoning,
            ..Usage::default()
        }
    }
}

impl Iterator for Player {
    type Item = PlaybackEvent;

    fn next(&mut self) -> Option<PlaybackEvent> {
        while let Some(next) = self.moves.pop_front() {
            let beat = match next {
                Move::Act(act) => self.begin(act),
                Move::Stream { tone, text, at, pace } => self.stream(tone, text, at, pace),
            };
            if beat.is_some() {
                return beat;
            }
        }
        None
    }
}

/// Plays the response with its delays. No task runs outside of the stream, so dropping the stream
/// ends it.
pub(super) fn stream(player: Player, signals: Signals) -> impl Stream<Item = Result<Chunk, Error>> + Send {
    stream::unfold((player, signals), async |(mut player, signals)| {
        let item = next_item(&mut player, &signals).await?;
        Some((item, (player, signals)))
    })
}

/// Waits for the next chunk or failure.
async fn next_item(player: &mut Player, signals: &Signals) -> Option<Result<Chunk, Error>> {
    // Lets other tasks run during a long script without delays, as network I/O would.
    tokio::task::consume_budget().await;
    loop {
        match player.next()? {
            PlaybackEvent::Chunk(chunk) => return Some(Ok(chunk)),
            PlaybackEvent::Fail(error) => return Some(Err(error)),
            PlaybackEvent::Delay(delay) => tokio::time::sleep(delay).await,
            PlaybackEvent::WaitFor(name) => signals.wait(&name).await,
            PlaybackEvent::Stall => std::future::pending().await,
        }
    }
}

/// Length of the first chunk in bytes: the given number of characters, or a word and the white
/// space after it.
fn piece(text: &str, chunk_chars: Option<u32>) -> usize {
    let end = match chunk_chars {
        Some(chars) => text.char_indices().nth(chars as usize).map(|(at, _)| at),
        None => {
            let after_space =
                |(at, pair): (usize, [char; 2])| (pair[0].is_whitespace() && !pair[1].is_whitespace()).then_some(at);
            let pairs = text.chars().zip(text.char_indices().skip(1));
            pairs.map(|(before, (at, char))| (at, [before, char])).find_map(after_space)
        }
    };
    end.unwrap_or(text.len())
}

/// The finish reason as the provider reports it.
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

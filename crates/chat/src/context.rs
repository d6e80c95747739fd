//! Displays the size of the context and the token usage that the server reports.
//!
//! Uses the server's statistics if it has any, otherwise the result of the last turn. The chat itself counts
//! and estimates no tokens.

use tonic::{Code, Status};

use super::client::Server;
use super::lines::number;
use contextd_proto::{self as pb, event::Payload};

/// Messages per ListMessages request.
const PAGE: i32 = 100;

/// The context of a conversation.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// The model's context window in tokens; 0 if unknown.
    window: i32,
    /// The predicted size of the last prompt.
    predicted: Option<pb::TokenCount>,
    /// The result of the last turn.
    result: Option<pb::TurnResult>,
    /// Number of messages up to `counted_to`.
    messages: u64,
    counted_to: i64,
}

impl Context {
    /// Records what an event reports.
    pub(super) fn record_event(&mut self, event: &pb::Event) {
        let result = match &event.payload {
            Some(Payload::StepStarted(step)) => {
                self.window = step.context_window;
                self.predicted.clone_from(&step.context_tokens);
                return;
            }
            Some(Payload::TurnCompleted(turn)) => &turn.result,
            Some(Payload::TurnCancelled(turn)) => &turn.result,
            Some(Payload::TurnFailed(turn)) => &turn.result,
            Some(_) | None => return,
        };
        self.result.clone_from(result);
    }

    /// The line printed after a turn.
    pub(super) async fn line(&mut self, server: &Server, session: &str) -> Result<String, Status> {
        let stats = stats(server, session, pb::StatsFormat::Unspecified).await?;
        self.count_messages(server, session).await?;
        Ok(self.in_words(stats.and_then(|answer| answer.stats).as_ref()))
    }

    fn in_words(&self, stats: Option<&pb::ContextStats>) -> String {
        let size = match stats {
            Some(stats) => size(stats.used.as_ref(), stats.context_window),
            None => size(self.used().as_ref(), self.window),
        };
        let last = match self.result.as_ref().and_then(|result| result.last_step_usage.as_ref()) {
            Some(usage) => format!(
                "last call {} in, {} out",
                number(usage.input_tokens.into()),
                number(usage.output_tokens.into())
            ),
            None => "token usage of the last call not reported".to_owned(),
        };
        let plural = if self.messages == 1 { "" } else { "s" };
        format!("context: {size}; {last}; {} message{plural}", self.messages)
    }

    /// The current size of the context: the usage of the last model call, or else its predicted size.
    fn used(&self) -> Option<pb::TokenCount> {
        let reported = self.result.as_ref().and_then(|result| result.last_step_usage.as_ref());
        let actual = |usage: &pb::Usage| pb::TokenCount {
            tokens: usage.total_tokens,
            basis: pb::TokenBasis::Actual.into(),
            ..pb::TokenCount::default()
        };
        reported.map(actual).or_else(|| self.predicted.clone())
    }

    /// Counts messages that are new since the last call, including those of other clients.
    async fn count_messages(&mut self, server: &Server, session: &str) -> Result<(), Status> {
        let mut page_token = String::new();
        let mut newest = self.counted_to;
        loop {
            let request = pb::ListMessagesRequest {
                session_id: session.to_owned(),
                newest_first: true,
                page_size: PAGE,
                page_token,
                ..pb::ListMessagesRequest::default()
            };
            let page = server.sessions.clone().list_messages(request).await?.into_inner();
            let new = page.messages.iter().take_while(|message| message.seq > self.counted_to).count();
            newest = newest.max(page.messages.first().map_or(0, |message| message.seq));
            self.messages += u64::try_from(new).unwrap_or(u64::MAX);
            if new < page.messages.len() || page.next_page_token.is_empty() {
                self.counted_to = newest;
                return Ok(());
            }
            page_token = page.next_page_token;
        }
    }
}

/// The server's statistics. Returns `None` if it has none yet.
pub(super) async fn stats(
    server: &Server,
    session: &str,
    format: pb::StatsFormat,
) -> Result<Option<pb::GetContextStatsResponse>, Status> {
    let request =
        pb::GetContextStatsRequest { session_id: session.to_owned(), format: format.into(), ..Default::default() };
    match server.contexts.clone().get_context_stats(request).await {
        Ok(response) => Ok(Some(response.into_inner())),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}

/// Formats a size such as `52,100 of 200,000 tokens (26%)`, and marks an estimate.
fn size(used: Option<&pb::TokenCount>, window: i32) -> String {
    let Some(used) = used else {
        return "size unknown".to_owned();
    };
    let estimated = if used.basis() == pb::TokenBasis::Actual { "" } else { " (estimated)" };
    let tokens = number(used.tokens.into());
    if window <= 0 {
        return format!("{tokens} tokens{estimated}");
    }
    let percent = i64::from(used.tokens) * 100 / i64::from(window);
    format!("{tokens} of {} tokens ({percent}%){estimated}", number(window.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tokens: i32, basis: pb::TokenBasis) -> pb::TokenCount {
        pb::TokenCount { tokens, basis: basis.into(), ..pb::TokenCount::default() }
    }

    fn ended(usage: Option<pb::Usage>) -> pb::Event {
        let result = Some(pb::TurnResult { last_step_usage: usage, ..pb::TurnResult::default() });
        let payload = Payload::TurnCompleted(pb::TurnCompleted { result, ..pb::TurnCompleted::default() });
        pb::Event { payload: Some(payload), ..pb::Event::default() }
    }

    fn step() -> pb::Event {
        let payload = Payload::StepStarted(pb::StepStarted {
            context_tokens: Some(tokens(212, pb::TokenBasis::Heuristic)),
            context_window: 16_000,
            ..pb::StepStarted::default()
        });
        pb::Event { payload: Some(payload), ..pb::Event::default() }
    }

    #[test]
    fn context_line_shows_reported_tokens_and_labels_estimates() {
        fn check(events: &[pb::Event], stats: Option<&pb::ContextStats>, expected: &str) {
            let mut context = Context { messages: 4, ..Context::default() };
            events.iter().for_each(|event| context.record_event(event));
            assert_eq!(context.in_words(stats), expected);
        }
        let usage = pb::Usage { input_tokens: 1_590, output_tokens: 10, total_tokens: 1_600, ..pb::Usage::default() };
        let reported = ended(Some(usage));
        check(&[], None, "context: size unknown; token usage of the last call not reported; 4 messages");
        check(
            &[step(), reported.clone()],
            None,
            "context: 1,600 of 16,000 tokens (10%); last call 1,590 in, 10 out; 4 messages",
        );
        check(std::slice::from_ref(&reported), None, "context: 1,600 tokens; last call 1,590 in, 10 out; 4 messages");
        check(
            &[step(), ended(None)],
            None,
            "context: 212 of 16,000 tokens (1%) (estimated); token usage of the last call not reported; 4 messages",
        );
        let stats = pb::ContextStats {
            used: Some(tokens(52_100, pb::TokenBasis::Calibrated)),
            context_window: 200_000,
            ..pb::ContextStats::default()
        };
        check(
            &[step(), reported],
            Some(&stats),
            "context: 52,100 of 200,000 tokens (26%) (estimated); last call 1,590 in, 10 out; 4 messages",
        );
    }
}

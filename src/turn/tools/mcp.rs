//! Calls that contextd itself runs, on MCP servers. Each is begun once, by the replica whose
//! transaction requested it. If that replica dies, the call is closed at its deadline as one with
//! unknown outcome.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout_at};

use crate::{
    context::{picture_size::pixels, sanitize::sanitize_text},
    mcp::{CallError, Output, Piece},
    model::{
        CallId, McpTool, Media, OutputPart, SessionKey, ToolExecutor, ToolOutcome,
        command::{Idempotency, SubmitToolResults, SubmittedResult},
        event::WaitsFor,
        media::{BlobRef, NewContent, Source},
    },
    store::{self, tool_call::OpenCall},
    telemetry::{ToolCallOutcome, Trace},
    turn::{Error, context::result_texts::UNKNOWN_WORDS, engine::Engine},
};

/// Interval at which a running call checks whether it is still open.
const CALL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before a failed read of the calls, or a failed write of a result, is retried.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a statement with a lost response may take to commit, including a short outage of the
/// database.
const COMMIT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long the read of the calls is retried. Nearly all calls have a shorter deadline.
const BEGIN_RETRY_TIMEOUT: Duration = Duration::from_hours(1);

impl Engine {
    /// Runs the newly requested calls that belong to MCP servers.
    pub(in crate::turn) fn run_mcp_calls(self: &Arc<Self>, key: &SessionKey, requested: &BTreeSet<CallId>) {
        if requested.is_empty() {
            return;
        }
        let (engine, of, requested) = (Arc::clone(self), key.clone(), requested.clone());
        let running = async move { engine.begin_mcp_calls_with_retry(&of, &requested).await };
        self.capacity.spawn_for(&key.tenant, running);
    }

    /// Runs the calls that a submission with a lost response has requested. No other replica runs
    /// them, and a repeated submission requests nothing.
    pub(super) fn resolve_submission(self: &Arc<Self>, key: &SessionKey, submission: String, error: &store::Error) {
        if self.prompts.mcp.is_empty() || !matches!(error, store::Error::Unavailable(_)) {
            return;
        }
        let (engine, of) = (Arc::clone(self), key.clone());
        let looking = async move {
            let until = Instant::now() + COMMIT_TIMEOUT;
            while Instant::now() < until && !engine.capacity.aborting.is_cancelled() {
                match engine.store.requested_by(&of, &submission).await {
                    Ok(requested) if !requested.is_empty() => {
                        return engine.run_mcp_calls(&of, &requested);
                    }
                    // The submission may not have committed yet.
                    Ok(_) | Err(_) => sleep(PAUSE).await,
                }
            }
        };
        self.capacity.spawn_for(&key.tenant, looking);
    }

    /// Begins the calls, and retries while the database is unavailable: no other replica begins
    /// them. Calls whose deadline passes before that are closed instead.
    async fn begin_mcp_calls_with_retry(self: &Arc<Self>, key: &SessionKey, requested: &BTreeSet<CallId>) {
        let since = Instant::now();
        loop {
            let Err(error) = self.begin_mcp_calls(key, requested, since).await else {
                return;
            };
            let again = matches!(&error, Error::Store(error) if error.is_transient())
                && since.elapsed() < BEGIN_RETRY_TIMEOUT
                && !self.capacity.aborting.is_cancelled();
            tracing::warn!(session.id = %key.session, %error, again, "failed to start MCP tool calls");
            if !again {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    async fn begin_mcp_calls(
        self: &Arc<Self>,
        key: &SessionKey,
        requested: &BTreeSet<CallId>,
        since: Instant,
    ) -> Result<(), Error> {
        let open = self.store.open_calls(key).await?;
        let calls: Vec<OpenCall> = open
            .into_iter()
            .filter(|open| {
                let pending = &open.pending;
                pending.executor == ToolExecutor::Mcp
                    && !open.overdue
                    && !open.cancelled
                    && matches!(pending.waits_for, WaitsFor::Result { .. })
                    && requested.contains(&pending.call.id)
            })
            .collect();
        let ids: Vec<CallId> = calls.iter().map(|open| open.pending.call.id.clone()).collect();
        let known = self.store.calls(key, &ids).await?;
        let Some(call) = known.values().next() else {
            return Ok(());
        };
        let turn = self.store.turn(key, &call.turn).await?;
        let turn = turn.ok_or_else(|| Error::TurnNotFound(call.turn.clone()))?;
        let tools = turn.request.tools.as_ref().unwrap_or(&turn.config.tools);
        for open in calls {
            let tool = tools.get(&open.pending.call.name);
            let run = McpCall {
                engine: Arc::clone(self),
                key: key.clone(),
                tool: tool.and_then(|tool| tool.mcp.clone()),
                end: since + open.timeout,
                open,
            };
            self.capacity.spawn_for(&key.tenant, run.run());
        }
        Ok(())
    }
}

/// A call that runs on this replica.
struct McpCall {
    engine: Arc<Engine>,
    key: SessionKey,
    /// `None` if the turn's tools no longer contain it.
    tool: Option<McpTool>,
    open: OpenCall,
    end: Instant,
}

/// The result of a call, with the content of its media.
struct Finished {
    result: SubmittedResult,
    contents: Vec<NewContent>,
}

impl McpCall {
    async fn run(self) {
        let finished = tokio::select! {
            finished = self.finished() => finished,
            () = self.closed() => return,
            () = self.engine.capacity.aborting.cancelled() => self.failed(UNKNOWN_WORDS.to_owned()),
        };
        self.submit(finished).await;
    }

    /// Runs the call and returns its result.
    async fn finished(&self) -> Finished {
        let Some(McpTool { server, tool }) = &self.tool else {
            let error = CallError::NotRun("the turn has no such tool".to_owned());
            return self.failed(format!("[{error}]"));
        };
        let arguments = &self.open.pending.call.arguments;
        let (span, begun) = (Trace::current().tool_call(server, tool), Instant::now());
        let calling = self.engine.prompts.mcp.call(&self.key.tenant, server, tool, arguments);
        let called = timeout_at(self.end, span.trace().clone().scope(calling)).await;
        let result = measured(&called);
        span.tool_answered(result);
        self.engine.metrics.tool_called(server, result, begun.elapsed());
        match called {
            Ok(Ok(output)) => self.result_of(output),
            Ok(Err(error)) => self.failed(format!("[{error}]")),
            Err(_) => self.failed(UNKNOWN_WORDS.to_owned()),
        }
    }

    fn failed(&self, words: String) -> Finished {
        self.result_of(Output { pieces: vec![Piece::Text(words)], display_text: String::new(), is_error: true })
    }

    fn result_of(&self, output: Output) -> Finished {
        let Output { pieces, display_text, is_error } = output;
        let (mut parts, mut contents, mut sanitized) = (Vec::new(), Vec::new(), false);
        for piece in pieces {
            parts.push(match piece {
                Piece::Text(text) => {
                    let text = sanitize_text(&text);
                    sanitized |= text.replaced;
                    OutputPart::Text(text.text)
                }
                Piece::Media { content, filename } => {
                    let medium = medium(&content, filename);
                    contents.push(content);
                    OutputPart::Media(medium)
                }
            });
        }
        let result = SubmittedResult {
            call: self.open.pending.call.id.clone(),
            sanitized,
            parts,
            outcome: if is_error { ToolOutcome::Error } else { ToolOutcome::Success },
            display_text: sanitize_text(&display_text).text,
        };
        Finished { result, contents }
    }

    /// Resolves when the call is no longer open: its turn was cancelled or ended, or the host has
    /// answered it.
    async fn closed(&self) {
        let mut look = interval_at(Instant::now() + CALL_POLL_INTERVAL, CALL_POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let id = std::slice::from_ref(&self.open.pending.call.id);
        loop {
            look.tick().await;
            // An unavailable database does not end the call.
            if let Ok(known) = self.engine.store.calls(&self.key, id).await
                && !known.values().any(|call| call.state.is_open())
            {
                return;
            }
        }
    }

    /// Stores the result. Retries until the call's deadline, at which the call is closed anyway.
    /// Media that cannot be stored are replaced by notes.
    async fn submit(&self, finished: Finished) {
        let Finished { mut result, mut contents } = finished;
        loop {
            let command = SubmitToolResults {
                session: self.key.session.clone(),
                idempotency: Idempotency::none(),
                results: vec![result.clone()],
                decisions: Vec::new(),
                contents: contents.clone(),
            };
            let tenant = self.key.tenant.clone();
            let Err(error) = self.engine.submit(tenant, command).await else {
                return;
            };
            let over = Instant::now() >= self.end || self.engine.capacity.aborting.is_cancelled();
            tracing::warn!(session.id = %self.key.session, %error, over, "failed to store the result of an MCP tool call");
            if over {
                return;
            }
            if matches!(error, Error::Store(_)) {
                sleep(PAUSE).await;
            } else if contents.is_empty() {
                return;
            } else {
                contents.clear();
                result.parts.iter_mut().for_each(leave_out);
            }
        }
    }
}

fn medium(content: &NewContent, filename: String) -> Media {
    Media {
        media_type: content.media_type().to_owned(),
        source: Source::Blob(BlobRef {
            id: content.id().clone(),
            bytes: u64::try_from(content.bytes().len()).unwrap_or(u64::MAX),
            pixels: pixels(content.bytes()),
        }),
        filename,
    }
}

/// Replaces a medium by a note.
fn leave_out(part: &mut OutputPart) {
    if let OutputPart::Media(media) = part {
        *part = OutputPart::Text(format!("[Left out: {}]", media.title()));
    }
}

/// The outcome of a call, for its span and metric.
fn measured<T>(called: &Result<Result<Output, CallError>, T>) -> ToolCallOutcome {
    match called {
        Ok(Ok(output)) if output.is_error => ToolCallOutcome::Error,
        Ok(Ok(_)) => ToolCallOutcome::Success,
        Ok(Err(CallError::NotRun(_))) => ToolCallOutcome::NotRun,
        Ok(Err(CallError::Refused(_))) => ToolCallOutcome::Refused,
        Ok(Err(CallError::Unknown(_))) | Err(_) => ToolCallOutcome::Unknown,
    }
}

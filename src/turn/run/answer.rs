//! One model call: assembles the response, streams it to readers, and stops it when the turn must
//! stop.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    fair::FairPermit,
    model::{
        CallId, Delta, FailurePhase, MessageId, ModelResponse, Part, Prompt, Seq, Tally, TenantId, TurnId, derive,
        event::StepPosition,
    },
    provider::{
        self, Finish, ResponseStream,
        assemble::{AssembledResponse, Assembly, Progress},
        error::Kind,
        registry::ResolvedModel,
    },
    turn::{
        lease::leases::Lease,
        live::hub::{Channel, LiveKind, LiveOutput},
    },
};

/// Bytes of text after which deltas are sent without waiting for more.
const FLUSH_BYTES: usize = 4096;

/// A model call to be made.
#[derive(Debug)]
pub(in crate::turn) struct Call<'a> {
    pub(in crate::turn) tenant: &'a TenantId,
    pub(in crate::turn) model: &'a ResolvedModel,
    pub(in crate::turn) prompt: Arc<Prompt>,
    /// The message to write.
    pub(in crate::turn) message: MessageId,
    /// Call ids that the session already uses.
    pub(in crate::turn) taken: BTreeSet<CallId>,
    /// Most bytes of the response.
    pub(in crate::turn) max_bytes: usize,
    /// Longest duration of the call.
    pub(in crate::turn) time_left: Duration,
    /// Most tokens of the response before the window is too full. `None` disables the check.
    pub(in crate::turn) room: Option<u32>,
    /// Deltas that arrive within this time are sent together.
    pub(in crate::turn) flush: Duration,
    pub(in crate::turn) publisher: Publisher<'a>,
    /// Memory reserved for the prompt. Released when the response begins, since the request has
    /// then been sent.
    pub(in crate::turn) memory: &'a mut Option<FairPermit>,
}

/// Where the response is streamed to.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct Publisher<'a> {
    pub(in crate::turn) channel: &'a Arc<Channel>,
    pub(in crate::turn) turn: &'a TurnId,
    /// Seq of the newest durable event.
    pub(in crate::turn) after: Seq,
    pub(in crate::turn) at: StepPosition,
}

/// How a call ended.
#[derive(Debug)]
pub(in crate::turn) enum CallEnd {
    /// The response is complete.
    Complete(AssembledResponse),
    /// The call failed.
    Failed(FailedCall),
    /// The call was cut short. Contains the parts received so far.
    Cut(CutReason, Vec<Part>),
}

/// A failed call.
#[derive(Debug)]
pub(in crate::turn) struct FailedCall {
    pub(in crate::turn) error: provider::Error,
    /// The phase in which it failed.
    pub(in crate::turn) phase: FailurePhase,
    /// Readers were sent a part of the response.
    pub(in crate::turn) shown: bool,
}

/// Why a call was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::turn) enum CutReason {
    Cancelled,
    /// The turn's time has passed.
    Deadline,
    /// The lease is lost: nothing may be written.
    LeaseLost,
    /// The server is aborting its turns to shut down.
    Aborted,
    /// The response would exceed the window.
    WindowFull,
}

/// Durations of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::turn) struct Timing {
    /// Time to the first content. `None` if there was none.
    pub(in crate::turn) first: Option<Duration>,
    /// Total time.
    pub(in crate::turn) total: Duration,
}

/// Makes the call. The tally covers everything that arrived, also of an incomplete response.
pub(in crate::turn) async fn call(
    call: Call<'_>,
    lease: &Lease,
    aborting: &CancellationToken,
) -> (CallEnd, Timing, Tally) {
    let begun = Instant::now();
    let mut timing = Timing::default();
    let mut written = Tally::default();
    call.publisher.show(LiveKind::Thinking { model: call.model.reference.clone() });
    let answer = call.model.call(call.tenant, call.prompt);
    let assembly = Assembly::new(call.message.clone(), call.taken, call.max_bytes);
    let arriving = Arriving {
        provider: &call.model.provider_name,
        message: &call.message,
        outbox: Outbox { audience: call.publisher, flush: call.flush, pending: None, shown: None },
        begun,
        timing: &mut timing,
        room: call.room,
        written: &mut written,
        memory: call.memory,
    };
    let end = arriving.until(answer, assembly, begun + call.time_left, lease, aborting).await;
    timing.total = begun.elapsed();
    (end, timing, written)
}

/// A response that is being received.
struct Arriving<'a> {
    provider: &'a str,
    message: &'a MessageId,
    outbox: Outbox<'a>,
    begun: Instant,
    timing: &'a mut Timing,
    room: Option<u32>,
    written: &'a mut Tally,
    memory: &'a mut Option<FairPermit>,
}

impl Arriving<'_> {
    async fn until(
        mut self,
        mut answer: ResponseStream,
        mut assembly: Assembly,
        deadline: Instant,
        lease: &Lease,
        aborting: &CancellationToken,
    ) -> CallEnd {
        let mut calls = 0;
        loop {
            let chunk = tokio::select! {
                biased;
                () = lease.lost().cancelled() => return CallEnd::Cut(CutReason::LeaseLost, Vec::new()),
                () = aborting.cancelled() => return CallEnd::Cut(CutReason::Aborted, Vec::new()),
                () = lease.cancelled().cancelled() => return CallEnd::Cut(CutReason::Cancelled, assembly.into_partial()),
                () = sleep_until(deadline) => return CallEnd::Cut(CutReason::Deadline, assembly.into_partial()),
                () = self.outbox.due() => { self.outbox.send(); continue }
                chunk = answer.next() => chunk,
            };
            let phase = if self.timing.first.is_some() { FailurePhase::Stream } else { FailurePhase::Generate };
            let chunk = match chunk {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return self.failed(error, phase),
                None => return self.failed(broke_off(self.provider), phase),
            };
            *self.memory = None;
            calls += 1;
            match assembly.apply(chunk, || derive::call(self.message, calls)) {
                Ok(Progress::NoDelta) => {}
                Ok(Progress::Delta(delta)) => {
                    self.timing.first.get_or_insert_with(|| self.begun.elapsed());
                    *self.written = self.written.plus(&delta.text);
                    self.outbox.push(delta);
                    if self.room.is_some_and(|room| self.written.tokens() > room) {
                        return CallEnd::Cut(CutReason::WindowFull, Vec::new());
                    }
                }
                Ok(Progress::Finished(finish)) => {
                    self.outbox.send();
                    return CallEnd::Complete(assembly.finish(finish));
                }
                Err(malformed) => return self.failed(malformed.into_error(self.provider), phase),
            }
        }
    }

    fn failed(&self, error: provider::Error, phase: FailurePhase) -> CallEnd {
        CallEnd::Failed(FailedCall { error, phase, shown: self.outbox.shown.is_some() })
    }
}

/// Deltas to be sent to readers. The first is sent immediately; later ones are collected for the
/// duration `flush`.
struct Outbox<'a> {
    audience: Publisher<'a>,
    flush: Duration,
    pending: Option<Delta>,
    shown: Option<Instant>,
}

impl Outbox<'_> {
    fn push(&mut self, delta: Delta) {
        match &mut self.pending {
            Some(pending) if pending.part == delta.part && pending.message == delta.message => {
                pending.text.push_str(&delta.text)
            }
            Some(_) => {
                self.send();
                self.pending = Some(delta);
            }
            None => self.pending = Some(delta),
        }
        let full = self.pending.as_ref().is_some_and(|pending| pending.text.len() >= FLUSH_BYTES);
        if full || self.shown.is_none_or(|shown| shown.elapsed() >= self.flush) {
            self.send();
        }
    }

    fn send(&mut self) {
        if let Some(delta) = self.pending.take() {
            self.shown = Some(Instant::now());
            self.audience.show(LiveKind::Delta(delta));
        }
    }

    /// Resolves when the pending delta has to be sent. Never resolves if there is none.
    async fn due(&self) {
        match (&self.pending, self.shown) {
            (Some(_), Some(shown)) => sleep_until(shown + self.flush).await,
            (Some(_), None) => {}
            (None, _) => std::future::pending().await,
        }
    }
}

impl Publisher<'_> {
    fn show(&self, what: LiveKind) {
        self.channel.show(LiveOutput { after: self.after, turn: self.turn.clone(), at: self.at, kind: what });
    }
}

/// The stream ended without a finish reason: never treated as a complete response.
fn broke_off(provider: &str) -> provider::Error {
    provider::Error::new(Kind::Broken, provider, "the response ended without its end marker")
}

/// The response as stored with its message.
pub(super) fn response(model: &ResolvedModel, finish: &Finish, timing: Timing) -> ModelResponse {
    ModelResponse {
        provider: model.provider_name.clone(),
        model: model.reference.clone(),
        provider_model: finish.provider_model.clone(),
        provider_response_id: finish.response_id.clone(),
        finish: finish.reason,
        provider_finish: finish.provider_reason.clone(),
        usage: finish.usage.clone(),
        failure: None,
        time_to_first_token: timing.first,
        elapsed: timing.total,
        provider_metadata: finish.metadata.clone(),
        prompt_fingerprint: finish.prompt_fingerprint.clone(),
    }
}

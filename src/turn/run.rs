//! The turn loop: read the committed state, decide, act, commit. One step after the other, until
//! the turn ends or waits for tools.

pub mod answer;
mod batch;
mod call;
pub mod cancel;
pub(in crate::turn) mod cause;
pub mod decide;
mod ending;
mod enqueue;
pub mod execute;
mod fallback;
mod make_room;
mod memory;
mod spans;
mod start;
mod start_queued;
mod state;
mod take;
mod token_wait;
mod watch;
mod window;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    model::{
        ClosedTranscript, CompletionReason, Message, SessionKey, TakeMode, Transcript, TurnFence, event::StepPosition,
        transcript::NotClosed,
    },
    session::{SessionState, cost::StepCost, rows::Rows, steps::NewStep},
    store::{
        self,
        grant::Grant,
        owned::{OwnedTurn, Revision, VisibleTranscript},
        written::{Ack, ConditionalWriteOutcome, WriteOutcome},
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            media::PromptMedia,
            prompt_call::PromptCall,
            size::{Excerpt, unsupported},
            window::budget,
        },
        engine::Engine,
        lease::leases::Lease,
        live::{hub::Channel, wakeups::Wakeup},
        opening::step_started,
        run::{
            cause::Cause,
            decide::{LastMessage, TurnAction, TurnProgress, next_action},
            memory::TurnRead,
            spans::Spans,
            state::{ContextReductions, Flow, NotReleased, PromptFit, Run, StepContext},
            watch::Watch,
        },
    },
};

/// First pause after a failed read of a turn. It doubles with each further failure.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Longest pause.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Runs a turn until it ends, waits for tools, or has to leave this replica. An error ends the turn
/// or leaves it to the next owner.
pub(in crate::turn) async fn run(
    engine: &Arc<Engine>,
    key: &SessionKey,
    grant: &Grant,
    lease: &Arc<Lease>,
    channel: &Arc<Channel>,
    (cause, sent): (Cause, Instant),
) -> Result<(), NotReleased> {
    let mut run = Run {
        engine,
        key,
        turn: &grant.turn,
        lease,
        channel,
        fence: grant.fence,
        seq: grant.last_seq,
        is_just_committed: true,
        last_usage: None,
        writing: None,
        conflicts: 0,
        attended: false,
        calls: (0, 0),
        recovered: None,
        called_again: None,
        reductions: ContextReductions::default(),
        is_over: false,
        is_worth_pruning: false,
        memory: None,
        media: 0,
        prompt_media: PromptMedia::default(),
        watch: Watch::new(cause, sent),
        spans: Spans::new(cause),
    };
    let left = loop {
        match Box::pin(run.step()).await {
            Ok(Flow::Continue) => {}
            Ok(Flow::Stop) => break Ok(()),
            Err(error) => break run.give_up(&error).await,
        }
    };
    run.close_message();
    channel.advance(run.seq);
    run.memory = None;
    if run.is_over && run.is_worth_pruning {
        engine.sessions.prune_after_turn(key).await;
    }
    left
}

impl Run<'_> {
    /// One iteration: read, decide, act.
    async fn step(&mut self) -> Result<Flow, Error> {
        if self.lease.lost().is_cancelled() {
            return Ok(Flow::Stop);
        }
        if self.engine.capacity.draining.is_cancelled() {
            return self.hand_over().await;
        }
        let read = Instant::now();
        let (owned, seen) = match self.read_turn().await? {
            TurnRead::NotOwned => return Ok(Flow::Stop),
            TurnRead::Interrupted => return Ok(Flow::Continue),
            TurnRead::Current(owned, seen) => (*owned, seen),
        };
        self.seq = owned.last_seq;
        self.watch.look(owned.step);
        self.channel.advance(self.seq);
        let changed_between = |version| version != owned.context_version;
        if seen.context_version.is_some_and(changed_between) {
            return Ok(Flow::Continue);
        }
        let trace = self.spans.at((&self.engine.traces, self.key, self.turn), &owned, &seen.messages);
        trace.scope(Box::pin(self.decide_and_act(owned, seen, read))).await
    }

    /// Decides and acts on the state that was read.
    async fn decide_and_act(
        &mut self,
        owned: OwnedTurn,
        seen: VisibleTranscript,
        read: Instant,
    ) -> Result<Flow, Error> {
        self.attend(&owned).await?;
        let transcript = match Transcript::new(seen.messages).close() {
            Ok(closed) => Some(closed),
            Err(NotClosed::Open(_)) => None,
            Err(error @ NotClosed::Broken(_)) => return Err(Error::Internal(error.to_string())),
        };
        let config = &owned.prepared_for.config;
        let named = owned.request.model.as_ref().unwrap_or(&config.model);
        let model = match self.engine.prompts.model_to_call(named, config).await {
            Ok(model) => model,
            Err(error) => return self.without_model(&owned, named, error).await,
        };
        let messages = transcript.as_ref().map_or([].as_slice(), ClosedTranscript::messages);
        let call = PromptCall::new(config, &owned.request, owned.step, owned.is_late(), &model);
        let context = call.size((&owned).into(), messages);
        let step = StepContext {
            owned: &owned,
            estimator: estimator(&model),
            limits: self.engine.prompts.limits(config, &owned.request),
            policy: self.engine.prompts.policy(config)?,
            size: context.size(),
            context,
            unsupported: unsupported(&model, &Excerpt::whole(messages)),
            model: &model,
            call,
            hides: seen.context_version != Some(0),
            at: StepPosition { step: owned.step, attempt: owned.attempt },
            read,
        };
        self.is_worth_pruning = owned.context_tokens >= i64::from(step.policy.context.prune.minimum_tokens);
        if let Some(transcript) = &transcript
            && self.prune(&step, transcript).await?
        {
            self.reductions.pruned = Some(owned.step);
            return Ok(Flow::Continue);
        }
        let next = next_action(&self.progress(&step, transcript.as_ref()));
        self.follow(&step, transcript, next).await
    }

    /// Performs the step that was decided.
    async fn follow(
        &mut self,
        step: &StepContext<'_>,
        transcript: Option<ClosedTranscript>,
        next: TurnAction,
    ) -> Result<Flow, Error> {
        match (next, transcript) {
            (TurnAction::Call, Some(transcript)) => {
                // The model or the policy may have changed since the turn was admitted.
                budget(&step.policy.context, step.model)?;
                if self.wait_for_tokens(step).await {
                    return Ok(Flow::Continue);
                }
                match self.make_room(step, transcript.messages()).await? {
                    PromptFit::Fits if self.release_memory_for_media(step, transcript.messages()) => Ok(Flow::Continue),
                    PromptFit::Fits => self.call(step, transcript).await,
                    PromptFit::Changed => Ok(Flow::Continue),
                    PromptFit::TooLarge(ending) => {
                        self.stop(step, Self::no_rows(step), StepCost::default(), ending, None).await
                    }
                }
            }
            (TurnAction::Begin, Some(transcript)) => self.begin(step.owned, transcript.messages()).await,
            (TurnAction::Take { advance }, Some(transcript)) => self.take(step, transcript.messages(), advance).await,
            (TurnAction::Finish, Some(transcript)) => {
                let last = LastMessage::of(&transcript, self.turn);
                let end =
                    (last.map_or(CompletionReason::Stop, LastMessage::completion), last.and_then(|last| last.finish));
                self.finish(step, Self::no_rows(step), StepCost::default(), end).await
            }
            (TurnAction::Stop(ending), _) => {
                let ending = self.with_rollback(ending, step.owned.cancel.as_ref(), None).await?;
                self.stop(step, Self::no_rows(step), StepCost::default(), ending, None).await
            }
            (TurnAction::Call | TurnAction::Begin | TurnAction::Take { .. } | TurnAction::Finish, None) => {
                Err(Error::Internal("unexpected owner of a turn that waits for tools".to_owned()))
            }
        }
    }

    /// Records once that the turn has a reader, if the turn is to be cancelled without one.
    async fn attend(&mut self, owned: &OwnedTurn) -> Result<(), Error> {
        let Some(patience) = owned.request.cancel_after else {
            return Ok(());
        };
        if std::mem::replace(&mut self.attended, true) {
            return Ok(());
        }
        self.retry_transient(|| self.engine.store.register_attended_turn(self.key, self.turn, patience)).await
    }

    /// Repeats a database access while the database is unavailable, for up to two thirds of a
    /// lease: a turn survives a restart of its database, and a response is not lost with a
    /// connection. After that the turn is left to a replica that can reach the database, although
    /// this replica's heartbeats may still succeed.
    pub(super) async fn retry_transient<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, store::Error>>,
    {
        let mut pause = MIN_RETRY_DELAY;
        let end = Instant::now() + self.engine.store.lease_ttl() * 2 / 3;
        loop {
            match ask().await {
                Err(error) if error.is_transient() && !self.lease.lost().is_cancelled() && Instant::now() < end => {
                    tracing::warn!(session.id = %self.key.session, turn.id = %self.turn, %error, "retrying a database access of a turn");
                    tokio::select! {
                        () = self.lease.lost().cancelled() => return Err(error.into()),
                        () = self.engine.capacity.aborting.cancelled() => return Err(error.into()),
                        () = tokio::time::sleep(pause) => pause = (pause * 2).min(MAX_RETRY_DELAY),
                    }
                }
                looked => return Ok(looked?),
            }
        }
    }

    fn progress(&self, step: &StepContext<'_>, transcript: Option<&ClosedTranscript>) -> TurnProgress {
        let owned = step.owned;
        TurnProgress {
            step: owned.step,
            is_answered: owned.completed_steps >= owned.step,
            takeovers: owned.takeovers,
            max_takeovers: self.engine.prompts.rules.turn.max_takeovers,
            open_calls: owned.open_calls,
            cancel: owned.cancel.as_ref().map(|cancel| (cancel.cause, cancel.reason.clone())),
            time_left: owned.time_left,
            grace_left: step.grace_left(),
            late: owned.late,
            spent: owned.totals,
            // The limits of the configuration in force, since they decide whether there is a next
            // step.
            limits: self.engine.prompts.limits(&owned.in_force().config, &owned.request),
            last: transcript.and_then(|transcript| LastMessage::of(transcript, self.turn)),
            waiting: owned.waiting,
            has_taken: step.policy.take == TakeMode::OneAtATime
                && transcript.is_some_and(|transcript| self.ends_in_taken(transcript)),
        }
    }

    /// Whether the newest message of the transcript was taken from the queue by this turn.
    fn ends_in_taken(&self, transcript: &ClosedTranscript) -> bool {
        let newest = transcript.messages().last();
        newest.is_some_and(|newest| newest.turn.as_ref() == Some(self.turn) && !newest.queued.is_empty())
    }

    /// Begins the next step, under the configuration in force. After a bounded number of concurrent
    /// configuration changes, the step begins anyway.
    async fn begin(&mut self, owned: &OwnedTurn, messages: &[Message]) -> Result<Flow, Error> {
        let Revision { number, config } = owned.in_force();
        let model = self.engine.prompts.model(owned.request.model.as_ref().unwrap_or(&config.model))?;
        let call = PromptCall::new(config, &owned.request, owned.step + 1, owned.time_left.is_zero(), &model);
        let size = call.size(owned.into(), messages);
        let budget = budget(&self.engine.prompts.policy(config)?.context, &model).ok();
        let started = step_started(&model, *number, size.size().count, budget);
        let step = NewStep {
            revision: *number,
            in_any_case: self.begins_in_any_case(),
            started: &crate::codec::event::encode(&started).payload,
            size_offset: size.offset(),
        };
        let begun = self.engine.store.begin_step(self.key, self.turn_fence(), &step).await?;
        self.apply_conditional(begun)
    }

    /// Applies the outcome of a write that also depends on concurrent changes.
    pub(super) fn apply_conditional(&mut self, written: ConditionalWriteOutcome) -> Result<Flow, Error> {
        match written {
            ConditionalWriteOutcome::Applied(ack) => {
                self.conflicts = 0;
                self.apply_written(WriteOutcome::Applied(ack))
            }
            ConditionalWriteOutcome::Fenced => self.apply_written(WriteOutcome::Fenced),
            ConditionalWriteOutcome::Stale => {
                self.conflicts += 1;
                Ok(Flow::Continue)
            }
        }
    }

    /// Applies the outcome of a write.
    pub(super) fn apply_written(&mut self, written: WriteOutcome) -> Result<Flow, Error> {
        match written {
            WriteOutcome::Fenced => Ok(Flow::Stop),
            WriteOutcome::Applied(Ack { state, cancelled: _, last_seq }) => {
                self.fence = self.fence.next();
                self.seq = last_seq;
                self.is_just_committed = true;
                self.watch.committed(&self.engine.metrics);
                self.close_message();
                self.channel.advance(last_seq);
                self.engine.live.wake(Wakeup::NewEvents(self.key.clone()));
                self.is_over = state == SessionState::Idle;
                Ok(if state == SessionState::Running { Flow::Continue } else { Flow::Stop })
            }
        }
    }

    /// Closes the open message in the channel: it is committed or void.
    fn close_message(&mut self) {
        if let Some(message) = self.writing.take() {
            self.channel.close_message(&message);
        }
    }

    /// Hands the turn over, so that any replica can continue it immediately.
    pub(super) async fn hand_over(&mut self) -> Result<Flow, Error> {
        if self.engine.store.hand_over(self.key, self.turn_fence()).await? {
            self.engine.live.wake(Wakeup::HandOver(self.key.clone()));
        }
        Ok(Flow::Stop)
    }

    /// The fence of the next statement.
    pub(super) fn turn_fence(&self) -> TurnFence<'_> {
        TurnFence { turn: self.turn, fence: self.fence }
    }

    pub(super) fn no_rows(step: &StepContext<'_>) -> Rows {
        Rows::new(&step.estimator.name(), step.context.offset())
    }
}

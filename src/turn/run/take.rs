//! Between two steps, queued messages become one user message of the turn.

use crate::{
    context::{coalesce::coalesce, estimator::Estimator},
    model::{
        AppliedMessage, DropReason, InputMessage, Message, MessageId, Payload, Seq, TurnId, derive, event::StepPosition,
    },
    session::{
        queue::MessageSelection,
        queue_rows::Withdrawal,
        rows::{NewMessage, Rows},
        take::Advance,
    },
    store::{
        owned::Revision,
        queue::QueueSnapshot,
        written::{ConditionalWriteOutcome, WriteOutcome},
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            prompt_call::PromptCall,
            size::{Excerpt, PromptMessage, size_with},
            window::{budget, known_window},
        },
        opening::step_started,
        queue::take::{Ends, choose, fits, user_message},
        run::state::{Flow, Run, StepContext},
    },
};

/// Takes that require the whole session to be unchanged. After these, the session row is locked
/// first.
const OPTIMISTIC_TAKES: u32 = 2;

impl Run<'_> {
    /// Takes queued messages into the transcript, all in one statement. `advance`: also begins the
    /// next step.
    pub(in crate::turn) async fn take(
        &mut self,
        step: &StepContext<'_>,
        messages: &[Message],
        advance: bool,
    ) -> Result<Flow, Error> {
        let Some(look) = self.waiting().await? else {
            return Ok(Flow::Stop);
        };
        let revision = if advance { step.owned.in_force() } else { &step.owned.prepared_for };
        let Revision { number, config } = revision;
        let request = &step.owned.request;
        let model = self.engine.model(request.model.as_ref().unwrap_or(&config.model))?;
        let at = step.at.step + u32::from(advance);
        let call = PromptCall::new(config, request, at, false, &model);
        let size = call.size_of_all(step.owned.into());
        let policy = self.engine.policy(config)?;
        let window = known_window(&policy.context, &model);
        let non_transcript_tokens = size.non_transcript_tokens();
        let choice = choose(look.waiting, policy.take, |message| fits(message, &model, window, non_transcript_tokens));
        if !choice.expired.is_empty() {
            let expired = MessageSelection::These(&choice.expired);
            self.engine.withdraw(self.key, expired, Withdrawal::Expired, b"").await?;
            return Ok(Flow::Continue);
        }
        if choice.taken.is_empty() && choice.dropped.is_empty() {
            return Ok(Flow::Continue);
        }
        let advance = advance && !choice.taken.is_empty();
        let message = taken_message(self.turn, choice.taken, estimator(&model));
        let following: Vec<PromptMessage<'_>> =
            message.iter().map(|(_, message)| PromptMessage::from(message)).collect();
        let size = size_with(size, call.model, &Excerpt::whole(messages), &following);
        drop(following);
        let started = advance.then(|| {
            let budget = budget(&policy.context, &model).ok();
            step_started(&model, *number, size.size().count, budget)
        });
        let rows = Rows::new(&estimator(&model).name(), size.offset());
        let (rows, ends) = take_rows(rows, step.at, choice.dropped, started, message);
        let step = match advance {
            false => Advance::Stay,
            true if self.begins_in_any_case() => Advance::AnyRevision,
            true => Advance::IfRevision(*number),
        };
        self.write_take(look.last_seq, &rows, &ends, step).await
    }

    /// The queue of this turn. Returns `None` if the turn has another owner, or is over.
    async fn waiting(&self) -> Result<Option<QueueSnapshot>, Error> {
        let look = self.retry_transient(|| self.engine.store.queue_snapshot(self.key)).await?;
        let is_owned =
            |look: &QueueSnapshot| look.fence.epoch == self.fence.epoch && look.turn.as_ref() == Some(self.turn);
        Ok(look.filter(is_owned))
    }

    /// Commits a take, unless the session has changed since it was read.
    async fn write_take(&mut self, last_seq: Seq, rows: &Rows, ends: &Ends, step: Advance) -> Result<Flow, Error> {
        let seen = (self.conflicts < OPTIMISTIC_TAKES).then_some(last_seq);
        let taken = self.engine.store.take(self.key, self.turn_fence(), seen, rows, &ends.taken(), step).await?;
        match taken {
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
}

/// The message that the taken ones are merged into. Returns `None` if no message is taken.
fn taken_message(
    turn: &TurnId,
    taken: Vec<(AppliedMessage, InputMessage)>,
    estimator: Estimator,
) -> Option<(Vec<AppliedMessage>, NewMessage)> {
    let (applied, inputs): (Vec<AppliedMessage>, Vec<InputMessage>) = taken.into_iter().unzip();
    let id = derive::taken(turn, &applied.first()?.message);
    let message = user_message(id, coalesce(inputs)?, &applied, estimator);
    Some((applied, message))
}

/// The rows of a take. `started`: the event of the next step, if the take begins it.
fn take_rows(
    mut rows: Rows,
    at: StepPosition,
    dropped: Vec<(MessageId, DropReason)>,
    started: Option<Payload>,
    message: Option<(Vec<AppliedMessage>, NewMessage)>,
) -> (Rows, Ends) {
    let at = match started {
        Some(_) => StepPosition { step: at.step + 1, attempt: 1 },
        None => at,
    };
    let mut ends = Ends::default();
    ends.drop(dropped, &mut rows, at);
    if let Some(started) = started {
        rows.event(started, at);
    }
    if let Some((applied, message)) = message {
        ends.apply(applied, message, &mut rows, at);
    }
    (rows, ends)
}

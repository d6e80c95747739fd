//! Between two steps, queued messages become one user message of the turn.

use crate::{
    model::{Message, derive},
    session::{queue::MessageSelection, queue_rows::Withdrawal, rows::Rows, take::Advance},
    store::{owned::Revision, queue::QueueSnapshot},
    turn::{
        Error,
        context::{
            estimators::estimator,
            prompt_call::PromptCall,
            size::{Excerpt, PromptMessage, size_with},
            window::{budget, known_window},
        },
        opening::step_started,
        queue::take::{choose, fits, take_rows, taken_message},
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
        let model = self.engine.prompts.model(request.model.as_ref().unwrap_or(&config.model))?;
        let at = step.at.step + u32::from(advance);
        let call = PromptCall::new(config, request, at, false, &model);
        let size = call.size_of_all(step.owned.into());
        let policy = self.engine.prompts.policy(config)?;
        let window = known_window(&policy.context, &model);
        let non_transcript_tokens = size.non_transcript_tokens();
        let choice = choose(look.waiting, policy.take, |message| fits(message, &model, window, non_transcript_tokens));
        if !choice.expired.is_empty() {
            let expired = MessageSelection::These(&choice.expired);
            self.engine.sessions.withdraw(self.key, expired, Withdrawal::Expired, b"").await?;
            return Ok(Flow::Continue);
        }
        if choice.taken.is_empty() && choice.dropped.is_empty() {
            return Ok(Flow::Continue);
        }
        let advance = advance && !choice.taken.is_empty();
        let message = taken_message(choice.taken, |first| derive::taken(self.turn, first), estimator(&model));
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
        let seen = (self.conflicts < OPTIMISTIC_TAKES).then_some(look.last_seq);
        let taken = self.engine.store.take(self.key, self.turn_fence(), seen, &rows, &ends.taken(), step).await?;
        self.apply_conditional(taken)
    }

    /// The queue of this turn. Returns `None` if the turn has another owner, or is over.
    async fn waiting(&self) -> Result<Option<QueueSnapshot>, Error> {
        let look = self.retry_transient(|| self.engine.store.queue_snapshot(self.key)).await?;
        let is_owned =
            |look: &QueueSnapshot| look.fence.epoch == self.fence.epoch && look.turn.as_ref() == Some(self.turn);
        Ok(look.filter(is_owned))
    }
}

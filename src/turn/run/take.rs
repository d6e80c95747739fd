//! Between two steps, queued messages become one user message of the turn.

use crate::{
    codec,
    context::{coalesce::coalesce, estimator::Estimator},
    model::{
        AppliedMessage, DropReason, InputMessage, Message, MessageId, Payload, Seq, TakeMode,
        TurnId, derive, event::StepPosition,
    },
    provider::registry::ResolvedModel,
    session::{
        queue::MessageSelection,
        queue_rows::Withdrawal,
        rows::{NewMessage, Rows},
        take::{Advance, TakenMessage},
    },
    store::{
        owned::Revision,
        queue::{QueueSnapshot, QueuedMessage},
        take::TakeOutcome,
        written::WriteOutcome,
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            size::{Excerpt, PromptCall, PromptMessage, size_with},
            stats::{budget, known_window},
        },
        run::{
            measured::host_message,
            opening::step_started,
            state::{Flow, Run, StepContext},
            step_tools::tools_in_force,
        },
    },
};

/// Takes that require the whole session to be unchanged. After these, the session row is locked
/// first.
const OPTIMISTIC_TAKES: u32 = 2;

/// What to do with the queued messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::turn) struct Choice {
    pub expired: Vec<MessageId>,
    pub dropped: Vec<(MessageId, DropReason)>,
    pub taken: Vec<(AppliedMessage, InputMessage)>,
}

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
        let revision = if advance {
            step.owned.in_force()
        } else {
            &step.owned.prepared_for
        };
        let Revision { number, config } = revision;
        let request = &step.owned.request;
        let model = self
            .engine
            .model(request.model.as_ref().unwrap_or(&config.model))?;
        let call = PromptCall {
            config,
            tools: tools_in_force(request, config, false),
            request,
            step: step.at.step + u32::from(advance),
            model: (&model).into(),
        };
        let size = call.size_of_all(step.owned.into());
        let policy = self.engine.policy(config)?;
        let window = known_window(&policy.context, &model);
        let non_transcript_tokens = size.non_transcript_tokens();
        let choice = choose(look.waiting, policy.take, |message| {
            fits(message, &model, window, non_transcript_tokens)
        });
        if !choice.expired.is_empty() {
            let expired = MessageSelection::These(&choice.expired);
            self.engine
                .withdraw(self.key, expired, Withdrawal::Expired, b"")
                .await?;
            return Ok(Flow::Continue);
        }
        if choice.taken.is_empty() && choice.dropped.is_empty() {
            return Ok(Flow::Continue);
        }
        let advance = advance && !choice.taken.is_empty();
        let message = taken_message(self.turn, choice.taken, estimator(&model));
        let following: Vec<PromptMessage<'_>> = message
            .iter()
            .map(|(_, message)| PromptMessage::from(message))
            .collect();
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
        let look = self
            .retry_transient(|| self.engine.store.queue_snapshot(self.key))
            .await?;
        let is_owned = |look: &QueueSnapshot| {
            look.fence.epoch == self.fence.epoch && look.turn.as_ref() == Some(self.turn)
        };
        Ok(look.filter(is_owned))
    }

    /// Commits a take, unless the session has changed since it was read.
    async fn write_take(
        &mut self,
        last_seq: Seq,
        rows: &Rows,
        ends: &Ends,
        step: Advance,
    ) -> Result<Flow, Error> {
        let seen = (self.conflicts < OPTIMISTIC_TAKES).then_some(last_seq);
        let taken = self
            .engine
            .store
            .take(self.key, self.turn_fence(), seen, rows, &ends.taken(), step)
            .await?;
        match taken {
            TakeOutcome::Applied(ack) => {
                self.conflicts = 0;
                self.apply_written(WriteOutcome::Applied(ack))
            }
            TakeOutcome::Fenced => self.apply_written(WriteOutcome::Fenced),
            TakeOutcome::Stale => {
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
        Some(_) => StepPosition {
            step: at.step + 1,
            attempt: 1,
        },
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

/// The queued messages that a take ends, with the numbers of their events among the rows.
#[derive(Debug, Default)]
pub(in crate::turn) struct Ends(Vec<(MessageId, Result<MessageId, DropReason>, i64)>);

impl Ends {
    /// Drops these messages.
    pub(in crate::turn) fn drop(
        &mut self,
        dropped: Vec<(MessageId, DropReason)>,
        rows: &mut Rows,
        at: StepPosition,
    ) {
        for (message, reason) in dropped {
            rows.event(
                Payload::QueuedMessageDropped {
                    message: message.clone(),
                    reason,
                },
                at,
            );
            self.0.push((message, Err(reason), rows.count()));
        }
    }

    /// Merges these messages into `message`.
    pub(in crate::turn) fn apply(
        &mut self,
        applied: Vec<AppliedMessage>,
        message: NewMessage,
        rows: &mut Rows,
        at: StepPosition,
    ) {
        rows.event(
            Payload::MessagesApplied {
                message: message.id.clone(),
                taken: applied.clone(),
            },
            at,
        );
        let event = rows.count();
        self.0.extend(
            applied
                .into_iter()
                .map(|applied| (applied.message, Ok(message.id.clone()), event)),
        );
        rows.message(message, at);
    }

    /// The parameters of the take's statement.
    pub(in crate::turn) fn taken(&self) -> Vec<TakenMessage<'_>> {
        let ends = self.0.iter();
        ends.map(|(message, end, event)| TakenMessage {
            message,
            end: end.as_ref().map_err(|reason| *reason),
            event: *event,
        })
        .collect()
    }
}

/// Decides about the messages queued for a turn, in their order.
pub(in crate::turn) fn choose(
    waiting: Vec<QueuedMessage>,
    mode: TakeMode,
    fits: impl Fn(&InputMessage) -> bool,
) -> Choice {
    let mut choice = Choice::default();
    for queued in waiting {
        if queued.expired {
            choice.expired.push(queued.message);
            continue;
        }
        match codec::queue::decode(&queued.body) {
            Ok(message) if fits(&message) => {
                let QueuedMessage {
                    message: id,
                    enqueued_at,
                    ..
                } = queued;
                let applied = AppliedMessage {
                    message: id,
                    queued_at: enqueued_at,
                    metadata: message.metadata.clone(),
                };
                choice.taken.push((applied, message));
            }
            Ok(_) => choice.dropped.push((queued.message, DropReason::TooLarge)),
            Err(error) => {
                tracing::error!(message.id = %queued.message, %error, "cannot decode a queued message; dropping it");
                choice
                    .dropped
                    .push((queued.message, DropReason::Unreadable));
            }
        }
    }
    match mode {
        TakeMode::All => {}
        TakeMode::OneAtATime => choice.taken.truncate(1),
        TakeMode::Latest => {
            let older = choice.taken.drain(..choice.taken.len().saturating_sub(1));
            choice
                .dropped
                .extend(older.map(|(applied, _)| (applied.message, DropReason::Superseded)));
        }
    }
    choice
}

/// Whether a message, as sent to the model, fits into a window together with the parts of the
/// prompt outside of the transcript.
pub(in crate::turn) fn fits(
    message: &InputMessage,
    model: &ResolvedModel,
    window: Option<u32>,
    non_transcript_tokens: u32,
) -> bool {
    let Some(window) = window else { return true };
    let tokens = PromptMessage::of_input(message, estimator(model)).sent_tokens(model);
    tokens + i64::from(non_transcript_tokens) <= i64::from(window)
}

/// The user message that queued ones are merged into.
pub(in crate::turn) fn user_message(
    id: MessageId,
    input: InputMessage,
    applied: &[AppliedMessage],
    estimator: Estimator,
) -> NewMessage {
    // The labels stay with the queued messages.
    NewMessage {
        queued: applied.to_vec(),
        metadata: [].into(),
        ..host_message(id, input, estimator)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{Delivery, Part, Role},
        store::queue::QueueState,
    };

    fn queued(id: &str) -> QueuedMessage {
        let message = InputMessage::new(Role::User, vec![Part::text(id)]);
        QueuedMessage {
            message: MessageId::new(id),
            state: QueueState::Pending { position: 1 },
            cursor: 1,
            delivery: Delivery::Asap,
            starts_turn: false,
            execute: None,
            body: codec::queue::encode(&message),
            request: None,
            enqueued_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            expired: false,
        }
    }

    fn short(choice: &Choice) -> (Vec<&str>, Vec<(&str, DropReason)>, Vec<&str>) {
        (
            choice
                .taken
                .iter()
                .map(|(applied, _)| applied.message.as_str())
                .collect(),
            choice
                .dropped
                .iter()
                .map(|(message, reason)| (message.as_str(), *reason))
                .collect(),
            choice.expired.iter().map(MessageId::as_str).collect(),
        )
    }

    #[test]
    fn take_mode_decides_how_many_messages_are_taken() {
        let waiting = || ["a", "b", "c"].map(queued).to_vec();
        let superseded = |id| (id, DropReason::Superseded);
        let table = [
            (TakeMode::All, vec!["a", "b", "c"], vec![]),
            (TakeMode::OneAtATime, vec!["a"], vec![]),
            (
                TakeMode::Latest,
                vec!["c"],
                vec![superseded("a"), superseded("b")],
            ),
        ];
        for (mode, taken, dropped) in table {
            assert_eq!(
                short(&choose(waiting(), mode, |_| true)),
                (taken, dropped, vec![]),
                "{mode:?}"
            );
        }
        assert_eq!(
            choose(Vec::new(), TakeMode::Latest, |_| true),
            Choice::default()
        );
    }

    #[test]
    fn expired_undecodable_and_oversized_messages_do_not_block_the_queue() {
        let waiting = vec![
            QueuedMessage {
                expired: true,
                ..queued("late")
            },
            QueuedMessage {
                body: b"\xff".to_vec(),
                ..queued("broken")
            },
            queued("large"),
            queued("fine"),
        ];
        let choice = choose(waiting, TakeMode::All, |message| {
            message.parts[0] != Part::text("large")
        });
        let dropped = vec![
            ("broken", DropReason::Unreadable),
            ("large", DropReason::TooLarge),
        ];
        assert_eq!(short(&choice), (vec!["fine"], dropped, vec!["late"]));
    }
}

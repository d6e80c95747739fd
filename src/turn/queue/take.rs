//! Which queued messages are taken or dropped, and the user message that they become.

use crate::{
    codec,
    context::{coalesce::coalesce, estimator::Estimator},
    model::{AppliedMessage, DropReason, InputMessage, MessageId, Payload, TakeMode, event::StepPosition},
    provider::registry::ResolvedModel,
    session::{
        rows::{NewMessage, Rows},
        take::TakenMessage,
    },
    store::queue::QueuedMessage,
    turn::context::{estimators::estimator, measured::host_message, size::PromptMessage},
};

/// What to do with the queued messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::turn) struct Choice {
    pub expired: Vec<MessageId>,
    pub dropped: Vec<(MessageId, DropReason)>,
    pub taken: Vec<(AppliedMessage, InputMessage)>,
}

/// The queued messages that a take ends, with the numbers of their events among the rows.
#[derive(Debug)]
pub(in crate::turn) struct Ends(Vec<(MessageId, Result<MessageId, DropReason>, i64)>);

impl Ends {
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
                let QueuedMessage { message: id, enqueued_at, .. } = queued;
                let applied =
                    AppliedMessage { message: id, queued_at: enqueued_at, metadata: message.metadata.clone() };
                choice.taken.push((applied, message));
            }
            Ok(_) => choice.dropped.push((queued.message, DropReason::TooLarge)),
            Err(error) => {
                tracing::error!(message.id = %queued.message, %error, "cannot decode a queued message; dropping it");
                choice.dropped.push((queued.message, DropReason::Unreadable));
            }
        }
    }
    match mode {
        TakeMode::All => {}
        TakeMode::OneAtATime => choice.taken.truncate(1),
        TakeMode::Latest => {
            let older = choice.taken.drain(..choice.taken.len().saturating_sub(1));
            choice.dropped.extend(older.map(|(applied, _)| (applied.message, DropReason::Superseded)));
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

/// The message that the taken ones are merged into. Returns `None` if no message is taken.
pub(in crate::turn) fn taken_message(
    taken: Vec<(AppliedMessage, InputMessage)>,
    id: impl Fn(&MessageId) -> MessageId,
    estimator: Estimator,
) -> Option<(Vec<AppliedMessage>, NewMessage)> {
    let (applied, inputs): (Vec<AppliedMessage>, Vec<InputMessage>) = taken.into_iter().unzip();
    let id = id(&applied.first()?.message);
    // The labels stay with the queued messages.
    let merged = host_message(id, coalesce(inputs)?, estimator);
    let message = NewMessage { queued: applied.clone(), metadata: [].into(), ..merged };
    Some((applied, message))
}

/// The rows of a take. `started`: the event of the next step, if the take begins it.
pub(in crate::turn) fn take_rows(
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
    let mut ends = Vec::new();
    for (message, reason) in dropped {
        rows.event(Payload::QueuedMessageDropped { message: message.clone(), reason }, at);
        ends.push((message, Err(reason), rows.count()));
    }
    if let Some(started) = started {
        rows.event(started, at);
    }
    if let Some((applied, message)) = message {
        rows.event(Payload::MessagesApplied { message: message.id.clone(), taken: applied.clone() }, at);
        let event = rows.count();
        ends.extend(applied.into_iter().map(|applied| (applied.message, Ok(message.id.clone()), event)));
        rows.message(message, at);
    }
    (rows, Ends(ends))
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
            choice.taken.iter().map(|(applied, _)| applied.message.as_str()).collect(),
            choice.dropped.iter().map(|(message, reason)| (message.as_str(), *reason)).collect(),
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
            (TakeMode::Latest, vec!["c"], vec![superseded("a"), superseded("b")]),
        ];
        for (mode, taken, dropped) in table {
            assert_eq!(short(&choose(waiting(), mode, |_| true)), (taken, dropped, vec![]), "{mode:?}");
        }
        assert_eq!(choose(Vec::new(), TakeMode::Latest, |_| true), Choice::default());
    }

    #[test]
    fn expired_undecodable_and_oversized_messages_do_not_block_the_queue() {
        let waiting = vec![
            QueuedMessage { expired: true, ..queued("late") },
            QueuedMessage { body: b"\xff".to_vec(), ..queued("broken") },
            queued("large"),
            queued("fine"),
        ];
        let choice = choose(waiting, TakeMode::All, |message| message.parts[0] != Part::text("large"));
        let dropped = vec![("broken", DropReason::Unreadable), ("large", DropReason::TooLarge)];
        assert_eq!(short(&choice), (vec!["fine"], dropped, vec!["late"]));
    }
}

//! Mistakes in requests about the queue.

use contextd::pb::{self, FieldReason as F};
use prost_types::Duration;

use super::{
    rows::{Row, invalid, missing},
    scene::Scene,
};
use crate::harness::requests::input;

pub(super) fn queue(s: &Scene) -> Vec<Row> {
    let ttl = |seconds, nanos| s.enqueue(move |it| it.ttl = Some(Duration { seconds, nanos }));
    vec![
        invalid("a message for no session", s.enqueue(|it| it.session_id.clear()), &[("session_id", F::Required)]),
        invalid("nothing to queue", s.enqueue(|it| it.message = None), &[("message", F::Required)]),
        invalid(
            "a message without parts",
            s.enqueue(|it| it.message = Some(pb::InputMessage::default())),
            &[("message.parts", F::Required)],
        ),
        invalid(
            "an empty text to queue",
            s.enqueue(|it| it.message = Some(input(""))),
            &[("message.parts[0].text", F::Required)],
        ),
        invalid(
            "an answer to queue",
            s.enqueue(|it| it.message.get_or_insert_default().set_role(pb::Role::Assistant)),
            &[("message.role", F::Unsupported)],
        ),
        invalid("a delivery that is not known", s.enqueue(|it| it.delivery = 9), &[("delivery", F::Unknown)]),
        invalid("an action that is not known", s.enqueue(|it| it.on_idle = 9), &[("on_idle", F::Unknown)]),
        invalid("a time to live below 0", ttl(-1, 0), &[("ttl", F::OutOfRange)]),
        invalid("a time to live over 7 days", ttl(604_800, 1), &[("ttl", F::OutOfRange)]),
        invalid("a time to live that is none", ttl(1, -1), &[("ttl", F::Invalid)]),
        invalid(
            "two mistakes in one message",
            s.enqueue(|it| (it.delivery, it.on_idle) = (9, 9)),
            &[("delivery", F::Unknown), ("on_idle", F::Unknown)],
        ),
        invalid(
            "no message to withdraw",
            s.cancel_queued(|it| it.queued_message_id.clear()),
            &[("queued_message_id", F::Required)],
        ),
        missing("a message that never was", s.cancel_queued(|_| ()), "QUEUED_MESSAGE_NOT_FOUND"),
        invalid("a clear of nobody's queue", s.clear(|it| it.session_id.clear()), &[("session_id", F::Required)]),
    ]
}

//! The numbers with which columns of the queue represent enum values.

use super::Error;
use crate::{
    codec::event::kind,
    model::{Delivery, DropReason},
    session::queue_rows::Withdrawal,
};

pub(super) const PENDING: i16 = 0;
pub(super) const APPLIED: i16 = 1;
pub(super) const CANCELLED: i16 = 2;
pub(super) const EXPIRED: i16 = 3;
pub(super) const DROPPED: i16 = 4;

pub(super) fn delivery_number(delivery: Delivery) -> i16 {
    match delivery {
        Delivery::Asap => 1,
        Delivery::WhenIdle => 2,
        Delivery::Interrupt => 3,
    }
}

pub(super) fn delivery(number: i16) -> Result<Delivery, Error> {
    match number {
        1 => Ok(Delivery::Asap),
        2 => Ok(Delivery::WhenIdle),
        3 => Ok(Delivery::Interrupt),
        other => Err(Error::Corrupt(format!("unknown delivery {other}"))),
    }
}

pub(super) fn reason_number(reason: DropReason) -> i16 {
    match reason {
        DropReason::SessionDeleted => 1,
        DropReason::Superseded => 2,
        DropReason::TooLarge => 3,
        DropReason::Unreadable => 4,
    }
}

pub(super) fn reason(number: i16) -> Result<DropReason, Error> {
    match number {
        1 => Ok(DropReason::SessionDeleted),
        2 => Ok(DropReason::Superseded),
        3 => Ok(DropReason::TooLarge),
        4 => Ok(DropReason::Unreadable),
        other => Err(Error::Corrupt(format!("unknown drop reason {other}"))),
    }
}

/// The value of `queue.status` of a withdrawn message.
pub(super) fn withdrawn_status(why: Withdrawal) -> i16 {
    match why {
        Withdrawal::Cancelled => CANCELLED,
        Withdrawal::Expired => EXPIRED,
        Withdrawal::Dropped(_) => DROPPED,
    }
}

/// The kind of the event for a withdrawn message.
pub(super) fn withdrawn_kind(why: Withdrawal) -> &'static str {
    match why {
        Withdrawal::Cancelled => kind::QUEUED_MESSAGE_CANCELLED,
        Withdrawal::Expired => kind::QUEUED_MESSAGE_EXPIRED,
        Withdrawal::Dropped(_) => kind::QUEUED_MESSAGE_DROPPED,
    }
}

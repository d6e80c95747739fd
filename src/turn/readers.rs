//! Readers of sessions, here and on other replicas: they are notified of new events, and receive the
//! text of open messages.

mod notify;
mod poll;
mod share;

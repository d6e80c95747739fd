//! Identifiers: a separate type for each kind, so that they cannot be confused.

use std::fmt;

/// Declares a newtype over `String` for one kind of identifier.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text without validation; requests are validated when they are decoded.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The identifier as an owned `String`.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// The owner of the data. Taken only from the caller's credential.
    TenantId
}
id! {
    /// A session (conversation); chosen by the client or the server, unique in the tenant.
    SessionId
}
id! {
    /// A turn of a session.
    TurnId
}
id! {
    /// A message of a session; assigned before the message is committed.
    MessageId
}
id! {
    /// A tool call, unique in its session.
    CallId
}
id! {
    /// An idempotency key chosen by the client.
    RequestId
}
id! {
    /// A compaction of a session.
    CompactionId
}
id! {
    /// Content, identified by its SHA-256 in lower-case hex.
    BlobId
}

/// A session and its tenant: the first two columns of every primary key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    pub tenant: TenantId,
    pub session: SessionId,
}

impl SessionKey {
    /// Combines the two ids.
    pub fn new(tenant: TenantId, session: SessionId) -> Self {
        Self { tenant, session }
    }
}

/// Position of a durable event in its session: 1, 2, 3 and so on without gaps. 0 is the position before the first
/// event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of an owner. `epoch` changes with every owner, `op` with every statement of the owner. A write
/// with an outdated fence changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// Identifies the owner.
    pub epoch: i64,
    /// Number of the owner's next statement.
    pub op: i64,
}

impl Fence {
    /// The fence after one more statement.
    pub fn next(self) -> Self {
        Self { op: self.op + 1, ..self }
    }
}

/// The fencing token of an owner for one turn. The session row must have this turn, this fence, and the writing replica
/// as its owner: after a failover that lost commits, the same epoch and op may be assigned again, to another replica or
/// for another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnFence<'a> {
    pub turn: &'a TurnId,
    pub fence: Fence,
}

impl TurnFence<'_> {
    /// The fence after one more statement.
    pub fn next(self) -> Self {
        Self { fence: self.fence.next(), ..self }
    }
}

/// A position within a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StepPosition {
    /// The step, from 1; 0 outside of steps.
    pub step: u32,
    /// The attempt at the step, from 1; 0 outside of steps.
    pub attempt: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_fence_keeps_the_epoch() {
        assert_eq!(Fence { epoch: 4, op: 7 }.next(), Fence { epoch: 4, op: 8 });
    }
}

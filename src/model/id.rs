//! Identifiers: one type per thing that is named, so that they cannot be mixed up.

use std::fmt;

/// Declares a newtype over `String` for one kind of identifier.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is; the border has checked it.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The identifier as an owned text.
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
    /// Whose data it is. Comes from the credential only.
    TenantId
}
id! {
    /// A conversation; chosen by the client or the server, unique in the tenant.
    SessionId
}
id! {
    /// A turn of a session.
    TurnId
}
id! {
    /// A message of a session; known before the message is committed.
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
    /// Content by its SHA-256, in lower-case hex.
    BlobId
}

/// The session and whose it is: the first two columns of every key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
}

impl SessionKey {
    /// Joins the two.
    pub fn new(tenant: TenantId, session: SessionId) -> Self {
        Self { tenant, session }
    }
}

/// Position of a durable event in its session: 1, 2, 3 and so on without gaps. 0 is before the
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The owner's right to write: `epoch` changes with every owner, `op` with every statement of the
/// owner. A write that carries an old fence changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// Which owner.
    pub epoch: i64,
    /// Which of its statements comes next.
    pub op: i64,
}

impl Fence {
    /// The fence after one more statement.
    pub fn next(self) -> Self {
        Self {
            op: self.op + 1,
            ..self
        }
    }
}

/// The owner's right to write for one turn. The hot row must have this turn, this fence and the
/// replica that writes as its owner: after a failover that lost commits, the same epoch and op may
/// be granted again, to another replica or for another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnFence<'a> {
    /// Which turn.
    pub turn: &'a TurnId,
    /// Which owner of it, and which of its statements comes next.
    pub fence: Fence,
}

impl TurnFence<'_> {
    /// The fence after one more statement.
    pub fn next(self) -> Self {
        Self {
            fence: self.fence.next(),
            ..self
        }
    }
}

/// Where in a turn something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StepPosition {
    /// The step, from 1; 0 outside of steps.
    pub step: u32,
    /// The attempt at it, from 1; 0 outside of steps.
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

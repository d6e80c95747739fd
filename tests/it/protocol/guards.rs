//! The guards of the protocol, and commits without one of them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// A change is only written if the session has not changed since it was read.
    Version,
    /// The same for a message that joins the queue: it waits in the turn that the response names.
    VersionOfEnqueue,
    /// The record of a request and its effect.
    IdempotencyRow,
    /// The fallback model of a turn is stored with the attempt that calls it.
    FallbackInRetry,
}

/// A commit that writes the session even if it has changed since it was read.
pub(crate) fn without_version(commit: &str) -> String {
    commit.replacen(VERSION, "and -1::bigint <> _version", 1)
}

/// The condition that compares the version.
const VERSION: &str = "and r.version = _version";

impl Guard {
    /// The prefixes of the violations that the checker must find without this guard.
    pub(super) fn missed(self) -> &'static [&'static str] {
        match self {
            Self::Version | Self::VersionOfEnqueue => &[
                "I4 asked twice",
                "I4 results",
                "owners",
                "I4 batch",
                "I4 recount",
                "recount",
                "I2 ",
                "I3 message",
                "message",
                "lost ",
            ],
            Self::IdempotencyRow => &["request"],
            Self::FallbackInRetry => &["I1 model"],
        }
    }

    /// A commit without this guard.
    pub(super) fn off(self, commit: &str) -> String {
        match self {
            Self::Version => without_version(commit),
            Self::VersionOfEnqueue => {
                let blind = "and (r.version = _version or 'queued' = any (_wanted))";
                commit.replacen(VERSION, blind, 1)
            }
            Self::FallbackInRetry => {
                commit.replacen("request = coalesce(_bytes[1], ", "request = coalesce(t.request, ", 1)
            }
            Self::IdempotencyRow => commit.replacen("i.request_id = ", "false and i.request_id = ", 1),
        }
    }
}

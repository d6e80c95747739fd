//! Why a caller is refused, and what can go wrong with credentials.

use std::path::PathBuf;

use super::{key_file::Problem, secret::NoRandomness};
use crate::store;

/// Why no principal was found. For the log only: callers get the same answer for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no credential.
    #[error("no credential")]
    Missing,
    /// It is neither a key nor a token.
    #[error("malformed credential")]
    Malformed,
    /// No key has this hash: it never existed, or was revoked.
    #[error("unknown or revoked key")]
    Unknown,
    /// It has expired.
    #[error("expired credential")]
    Expired,
    /// The token does not verify: its signature, issuer, audience or time of validity is wrong.
    #[error("token that does not verify")]
    Unverified,
    /// The token names no tenant, or no access that is known.
    #[error("token without a tenant or an access that is known")]
    Claims,
    /// The certificate is genuine, but none of its names has a grant in the settings.
    #[error("certificate without a grant")]
    Certificate,
}

impl Denied {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "credential_missing",
            Self::Malformed => "credential_malformed",
            Self::Unknown => "credential_unknown",
            Self::Expired => "credential_expired",
            Self::Unverified => "token_unverified",
            Self::Claims => "token_claims",
            Self::Certificate => "certificate_without_grant",
        }
    }
}

/// Something about credentials failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keys file cannot be read.
    #[error("cannot read the keys file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The keys file is wrong; the keys that were read before stay in force.
    #[error("the keys file {} is wrong: {problem}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: Problem,
    },
    /// The HTTP client that fetches the issuer's keys cannot be made.
    #[error("cannot prepare HTTPS: {0}")]
    Http(reqwest::Error),
    /// The caller named another tenant, or asked for more access than it has.
    #[error("this takes the access `{needed}`")]
    Forbidden {
        /// What would be enough.
        needed: crate::model::Access,
    },
    /// The tenant has as many keys as it may have.
    #[error("the tenant has {limit} live keys, which is the limit; revoke one")]
    TooManyKeys {
        /// The limit.
        limit: i64,
    },
    /// The tenant has no such key.
    #[error("there is no key {0}")]
    KeyNotFound(String),
    /// The system gave no random bytes for a key.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
}

//! The errors of authentication and of API key management.

use std::path::PathBuf;

use super::{key_file::Problem, secret::NoRandomness};
use crate::store;

/// Why a caller was not authenticated. Only for logs and metrics: callers get the same error for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The request has no credential.
    #[error("no credential")]
    Missing,
    /// The credential is neither an API key nor a token.
    #[error("malformed credential")]
    Malformed,
    /// No key has this hash: it never existed, or it was revoked.
    #[error("unknown or revoked key")]
    Unknown,
    /// The credential has expired.
    #[error("expired credential")]
    Expired,
    /// The token is invalid: its signature, issuer, audience or validity period.
    #[error("invalid token")]
    Unverified,
    /// The token has no tenant claim, or no known access.
    #[error("token without a tenant claim or a known access")]
    Claims,
    /// The certificate is valid, but the settings grant none of its names an access.
    #[error("certificate without a grant")]
    Certificate,
}

impl Denied {
    /// The name in metrics.
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

/// An error of reading or managing credentials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keys file cannot be read.
    #[error("cannot read the keys file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The keys file is invalid. The keys read before stay in force.
    #[error("the keys file {} is invalid: {problem}", path.display())]
    KeyFile {
        path: PathBuf,
        /// Does not contain values from the file.
        problem: Problem,
    },
    /// The HTTP client for the issuer's keys cannot be created.
    #[error("cannot create the HTTPS client: {0}")]
    Http(reqwest::Error),
    /// The caller requested another tenant, or more access than it has.
    #[error("the call requires `{needed}` access, which the credential does not grant")]
    Forbidden {
        /// The access that would be sufficient.
        needed: crate::model::Access,
    },
    /// The tenant has reached the maximum number of keys.
    #[error("the tenant has reached its limit of {limit} live keys; revoke one")]
    TooManyKeys {
        /// The maximum number of live keys per tenant.
        limit: i64,
    },
    /// The tenant has no key with this id, or the key has more access than the caller.
    #[error("key {0} not found")]
    KeyNotFound(String),
    /// The system returned no random bytes for a key.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    #[error(transparent)]
    Store(#[from] store::Error),
}

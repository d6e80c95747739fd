//! Who calls: maps credentials to principals. Which RPCs a principal may call is decided in
//! `grpc/guard.rs`.
//!
//! Keys are not looked up in the database with each request: a replica holds the hashes of all live
//! keys and reads them again when their version changes, so that guesses cost no query, and an
//! outage of the database locks no caller out.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::Mutex;

pub mod certificate;
pub mod error;
pub mod key_file;
pub mod manage;
pub mod secret;
pub mod token;

pub use error::{Denied, Error};

use self::{key_file::FileKey, secret::Hash, token::Tokens};
use crate::{
    clock::Clock,
    config::{AuthConfig, GrantConfig},
    model::{Access, Principal, TenantId, access::DEFAULT_TENANT},
    store::{Store, api_key::LiveKey},
};

/// How often a replica asks whether API keys have changed. They are promised to take effect on every
/// replica within 5 s.
pub const KEYS_REFRESH: Duration = Duration::from_secs(2);
/// How old the keys of the issuer of tokens may become before they are read again.
pub const ISSUER_REFRESH: Duration = Duration::from_mins(5);
/// The longest credential that is looked at, in bytes.
const LONGEST_CREDENTIAL: usize = 16 * 1024;
/// The scheme of the `authorization` header, in small letters.
const BEARER: &str = "bearer ";

/// What a request says about who sent it.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The `authorization` header.
    pub authorization: Option<&'a str>,
    /// The client's certificate, in DER, verified by TLS.
    pub certificate: Option<&'a [u8]>,
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Identifies callers, on one replica.
#[derive(Debug)]
pub struct Auth {
    required: bool,
    store: Store,
    clock: Arc<dyn Clock>,
    keys_file: Option<PathBuf>,
    certificates: BTreeMap<String, GrantConfig>,
    tokens: Option<Tokens>,
    /// What is read again and again; one reader at a time.
    sources: Mutex<Sources>,
    /// Every key that is accepted.
    known: RwLock<Arc<Known>>,
}

type Known = HashMap<Hash, Holder>;

/// Whoever holds a key.
#[derive(Debug, Clone)]
struct Holder {
    principal: Principal,
    expires_at: Option<Timestamp>,
}

/// Where keys come from, as they were last read.
#[derive(Debug, Default)]
struct Sources {
    /// The version of the keys in the database, once they were read.
    version: Option<i64>,
    stored: Vec<LiveKey>,
    /// The text of the keys file.
    text: Option<String>,
    listed: Vec<FileKey>,
}

impl Auth {
    /// As the configuration says. No key is known before [`Self::refresh`].
    pub fn new(config: &AuthConfig, store: Store, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Ok(Self {
            required: config.required,
            store,
            clock,
            keys_file: config.keys_file.clone(),
            certificates: config.certificates.clone(),
            tokens: Tokens::new(&config.jwt)?,
            sources: Mutex::default(),
            known: RwLock::default(),
        })
    }

    /// Whether callers have to authenticate.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Who sends these credentials. Without authentication, an operator of the tenant `default`.
    pub async fn identify(&self, credentials: Credentials<'_>) -> Result<Principal, Denied> {
        if !self.required {
            return Ok(anonymous());
        }
        let Some(authorization) = credentials.authorization else {
            let certificate = credentials.certificate.ok_or(Denied::Missing)?;
            return certificate::principal(certificate, &self.certificates);
        };
        let credential = bearer(authorization).ok_or(Denied::Malformed)?;
        match (secret::hash(credential), &self.tokens) {
            (Some(hash), _) => self.holder(hash),
            (None, Some(tokens)) => tokens.verify(credential).await,
            (None, None) => Err(Denied::Malformed),
        }
    }

    fn holder(&self, hash: Hash) -> Result<Principal, Denied> {
        let known = Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner));
        let Holder {
            principal,
            expires_at,
        } = known.get(&hash).ok_or(Denied::Unknown)?;
        if expires_at.is_some_and(|at| at <= self.clock.now()) {
            return Err(Denied::Expired);
        }
        Ok(principal.clone())
    }

    /// Reads again what may have changed. What cannot be read stays as it was.
    pub async fn refresh(&self) -> Result<(), Error> {
        let ((), keys) = tokio::join!(self.refresh_issuer(ISSUER_REFRESH), self.refresh_keys());
        keys
    }

    /// Reads the keys of the issuer of tokens, if they were last asked for longer ago than this.
    pub async fn refresh_issuer(&self, age: Duration) {
        if let Some(tokens) = &self.tokens {
            tokens.refresh(age).await;
        }
    }

    /// Reads the keys in the database and in the file. It waits for no issuer: a revoked key is
    /// refused also while one is silent.
    pub async fn refresh_keys(&self) -> Result<(), Error> {
        if !self.required {
            return Ok(());
        }
        let mut sources = self.sources.lock().await;
        let file = self.read_file(&mut sources).await;
        let database = self.read_database(&mut sources).await;
        if matches!((&file, &database), (Ok(false), Ok(false))) {
            return Ok(());
        }
        let known = Arc::new(sources.known());
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        file.and(database).map(drop)
    }

    /// Whether the file has changed.
    async fn read_file(&self, sources: &mut Sources) -> Result<bool, Error> {
        let Some(path) = &self.keys_file else {
            return Ok(false);
        };
        let text = key_file::read(path).await;
        let text = text.map_err(|source| Error::Unreadable {
            path: path.clone(),
            source,
        })?;
        if sources.text.as_ref() == Some(&text) {
            return Ok(false);
        }
        sources.listed = key_file::parse(&text).map_err(|problem| Error::KeyFile {
            path: path.clone(),
            problem,
        })?;
        tracing::info!(keys = sources.listed.len(), "the keys file was read");
        sources.text = Some(text);
        Ok(true)
    }

    /// Whether the keys in the database have changed.
    async fn read_database(&self, sources: &mut Sources) -> Result<bool, Error> {
        // The version is read first: a change that comes between is seen once more.
        let version = self.store.keys_version().await?;
        if sources.version == Some(version) {
            return Ok(false);
        }
        sources.stored = self.store.live_keys().await?;
        sources.version = Some(version);
        Ok(true)
    }
}

impl Sources {
    fn known(&self) -> Known {
        let stored = self.stored.iter().map(|LiveKey { hash, key }| {
            let principal = Principal {
                tenant: key.tenant.clone(),
                access: key.access,
                subject: format!("key:{}", key.id),
            };
            let expires_at = key.expires_at;
            (
                Hash(*hash),
                Holder {
                    principal,
                    expires_at,
                },
            )
        });
        let listed = self.listed.iter().map(|key| {
            let principal = Principal {
                tenant: key.tenant.clone(),
                access: key.access,
                subject: format!("file:{}", key.name),
            };
            let expires_at = key.expires_at;
            (
                key.hash,
                Holder {
                    principal,
                    expires_at,
                },
            )
        });
        stored.chain(listed).collect()
    }
}

/// Every caller, where none has to authenticate.
pub fn anonymous() -> Principal {
    Principal {
        tenant: TenantId::new(DEFAULT_TENANT),
        access: Access::Operator,
        subject: "anonymous".to_owned(),
    }
}

/// The credential in an `authorization` header.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, credential) = header.split_at_checked(BEARER.len())?;
    let credential = credential.trim();
    let fits = !credential.is_empty() && credential.len() <= LONGEST_CREDENTIAL;
    (scheme.eq_ignore_ascii_case(BEARER) && fits).then_some(credential)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bearer_scheme_is_read_without_regard_to_case() {
        let check = |header: &str, expected: Option<&str>| assert_eq!(bearer(header), expected);
        check("Bearer ctxd_1", Some("ctxd_1"));
        check("bearer  ctxd_1 ", Some("ctxd_1"));
        check("Basic dXNlcg==", None);
        check("Bearer ", None);
        check("ctxd_1", None);
        check(&format!("Bearer {}", "x".repeat(16 * 1024 + 1)), None);
    }
}

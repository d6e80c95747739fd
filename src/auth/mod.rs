//! Authentication: maps credentials to principals. `grpc/guard.rs` decides which RPCs a principal may call.
//!
//! Requests do not look up keys in the database. Each replica holds the hashes of all live keys and reloads
//! them when their version changes. So guessing keys causes no queries, and callers are still authenticated
//! during a short outage of the database.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::{Mutex, watch},
    time::sleep,
};

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
    store::{
        Store,
        admitted::{LastRead, Read},
        api_key::LiveKey,
    },
};

/// How often a replica checks whether API keys have changed. Changes are promised to take effect on every
/// replica within 5 s.
pub const KEYS_REFRESH: Duration = Duration::from_secs(2);
/// Maximum age of the token issuer's keys before they are reloaded.
pub const ISSUER_REFRESH: Duration = Duration::from_mins(5);
/// How often the expiry of a running call's credential is checked again, because the clock may be set.
const CREDENTIAL_RECHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum length of a credential in bytes.
const MAX_CREDENTIAL_BYTES: usize = 16 * 1024;
/// Subject prefix of callers with a key in the database.
const STORED: &str = "key:";
/// The scheme of the `authorization` header, in lower case.
const BEARER: &str = "bearer ";

/// The credentials of a request.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    pub authorization: Option<&'a str>,
    /// The client certificate in DER, verified by TLS.
    pub certificate: Option<&'a [u8]>,
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Authenticates callers on one replica.
#[derive(Debug)]
pub struct Auth {
    required: bool,
    store: Store,
    clock: Arc<dyn Clock>,
    keys_file: Option<PathBuf>,
    certificates: BTreeMap<String, GrantConfig>,
    tokens: Option<Tokens>,
    /// The sources that are reloaded, by one task at a time.
    sources: Mutex<Sources>,
    /// When the keys were last read from the database.
    read: LastRead,
    /// All accepted keys.
    known: RwLock<Arc<Known>>,
    /// Notified when `known` changes.
    changed: watch::Sender<()>,
}

/// An authenticated caller and its credential.
#[derive(Debug, Clone)]
pub struct Identity {
    pub principal: Principal,
    credential: Credential,
}

impl Identity {
    /// Whether the caller was authenticated by an API key in the database.
    pub fn is_of_stored_key(&self) -> bool {
        self.principal.subject.starts_with(STORED)
    }
}

/// What limits the validity of a caller's credential.
#[derive(Debug, Clone)]
enum Credential {
    /// Authentication is disabled.
    Unneeded,
    /// Valid while the key exists and has not expired.
    Key(Hash),
    /// Valid until this time.
    Until(Timestamp),
}

type Known = HashMap<Hash, Holder>;

/// The principal of a key.
#[derive(Debug, Clone)]
struct Holder {
    principal: Principal,
    expires_at: Option<Timestamp>,
}

/// The key sources as they were last read.
#[derive(Debug, Default)]
struct Sources {
    /// The version of the keys in the database. `None` before the first read.
    version: Option<i64>,
    stored: Vec<LiveKey>,
    /// When they were read, until [`Auth::refresh_keys`] has put them in force.
    read: Option<Read>,
    /// The text of the keys file.
    text: Option<String>,
    file_keys: Vec<FileKey>,
}

impl Auth {
    /// Creates the authenticator. It knows no key before [`Self::refresh`].
    pub fn new(config: &AuthConfig, store: Store, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Ok(Self {
            required: config.required,
            store,
            clock,
            keys_file: config.keys_file.clone(),
            certificates: config.certificates.clone(),
            tokens: Tokens::new(&config.jwt)?,
            sources: Mutex::default(),
            read: LastRead::default(),
            known: RwLock::default(),
            changed: watch::Sender::default(),
        })
    }

    /// Whether callers must authenticate.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// When the keys in the database were last read. Returns `None` if callers need not authenticate.
    pub fn last_read(&self) -> Option<&LastRead> {
        self.required.then_some(&self.read)
    }

    /// Authenticates a caller. If authentication is disabled, every caller is an operator of the tenant
    /// `default`.
    pub async fn identify(&self, credentials: Credentials<'_>) -> Result<Identity, Denied> {
        if !self.required {
            return Ok(Identity { principal: anonymous(), credential: Credential::Unneeded });
        }
        let until = |(principal, until)| Identity { principal, credential: Credential::Until(until) };
        let Some(authorization) = credentials.authorization else {
            let certificate = credentials.certificate.ok_or(Denied::Missing)?;
            return certificate::principal(certificate, &self.certificates).map(until);
        };
        let credential = bearer(authorization).ok_or(Denied::Malformed)?;
        match (secret::hash(credential), &self.tokens) {
            (Some(hash), _) => {
                Ok(Identity { principal: self.holder(hash)?.principal, credential: Credential::Key(hash) })
            }
            (None, Some(tokens)) => tokens.verify(credential).await.map(until),
            (None, None) => Err(Denied::Malformed),
        }
    }

    /// Resolves with the reason when a caller's credential is no longer valid: its key was revoked or
    /// changed, or it expired.
    pub async fn credential_ended(&self, identity: &Identity) -> Denied {
        let mut changed = self.changed.subscribe();
        loop {
            let left = match self.left(identity) {
                Ok(left) => left,
                Err(denied) => return denied,
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep(left) => {}
            }
        }
    }

    /// How long to wait before the credential is checked again: until it expires, at most [`CREDENTIAL_RECHECK_INTERVAL`].
    fn left(&self, identity: &Identity) -> Result<Duration, Denied> {
        let Identity { principal, credential } = identity;
        let expires_at = match credential {
            Credential::Unneeded => None,
            Credential::Until(at) => Some(*at),
            Credential::Key(hash) => {
                let holder = self.holder(*hash)?;
                if holder.principal != *principal {
                    return Err(Denied::Unknown);
                }
                holder.expires_at
            }
        };
        let Some(at) = expires_at else {
            return Ok(CREDENTIAL_RECHECK_INTERVAL);
        };
        let left = at.duration_since(self.clock.now());
        if !left.is_positive() {
            return Err(Denied::Expired);
        }
        Ok(left.unsigned_abs().min(CREDENTIAL_RECHECK_INTERVAL))
    }

    fn holder(&self, hash: Hash) -> Result<Holder, Denied> {
        let known = Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner));
        let holder = known.get(&hash).ok_or(Denied::Unknown)?;
        if holder.expires_at.is_some_and(|at| at <= self.clock.now()) {
            return Err(Denied::Expired);
        }
        Ok(holder.clone())
    }

    /// Reloads all credentials. If a source cannot be read, what was read before stays in force.
    pub async fn refresh(&self) -> Result<(), Error> {
        let ((), keys) = tokio::join!(self.refresh_issuer(ISSUER_REFRESH), self.refresh_keys());
        keys
    }

    /// Reloads the keys of the token issuer if the last attempt was longer ago than `age`.
    pub async fn refresh_issuer(&self, age: Duration) {
        if let Some(tokens) = &self.tokens {
            tokens.refresh(age).await;
        }
    }

    /// Reloads the keys in the database and in the file. Does not wait for the token issuer, so that a
    /// revoked key is rejected even if the issuer does not respond.
    pub async fn refresh_keys(&self) -> Result<(), Error> {
        if !self.required {
            return Ok(());
        }
        let mut sources = self.sources.lock().await;
        let file = self.read_file(&mut sources).await;
        let database = self.read_database(&mut sources).await;
        if !matches!((&file, &database), (Ok(false), Ok(false))) {
            let known = Arc::new(sources.known());
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
            self.changed.send_replace(());
        }
        // Only after the keys just read are in force.
        if let Some(read) = sources.read.take() {
            self.read.note(read);
        }
        file.and(database).map(drop)
    }

    /// Reloads the keys file. Returns true if it has changed.
    async fn read_file(&self, sources: &mut Sources) -> Result<bool, Error> {
        let Some(path) = &self.keys_file else {
            return Ok(false);
        };
        let text = key_file::read(path).await;
        let text = text.map_err(|source| Error::Unreadable { path: path.clone(), source })?;
        if sources.text.as_ref() == Some(&text) {
            return Ok(false);
        }
        sources.file_keys = key_file::parse(&text).map_err(|problem| Error::KeyFile { path: path.clone(), problem })?;
        tracing::info!(keys = sources.file_keys.len(), "keys file loaded");
        sources.text = Some(text);
        Ok(true)
    }

    /// Reloads the keys in the database. Returns true if they have changed.
    async fn read_database(&self, sources: &mut Sources) -> Result<bool, Error> {
        // Read the version first: a concurrent change is then read again next time.
        let (version, read) = self.store.keys_version().await?;
        if sources.version == Some(version) {
            sources.read = Some(read);
            return Ok(false);
        }
        sources.stored = self.store.live_keys().await?;
        sources.version = Some(version);
        sources.read = Some(read);
        Ok(true)
    }
}

impl Sources {
    fn known(&self) -> Known {
        let stored = self.stored.iter().map(|LiveKey { hash, key }| {
            let principal =
                Principal { tenant: key.tenant.clone(), access: key.access, subject: format!("{STORED}{}", key.id) };
            let expires_at = key.expires_at;
            (Hash(*hash), Holder { principal, expires_at })
        });
        let listed = self.file_keys.iter().map(|key| {
            let principal =
                Principal { tenant: key.tenant.clone(), access: key.access, subject: format!("file:{}", key.name) };
            let expires_at = key.expires_at;
            (key.hash, Holder { principal, expires_at })
        });
        stored.chain(listed).collect()
    }
}

/// The principal of every caller if authentication is disabled.
pub fn anonymous() -> Principal {
    Principal { tenant: TenantId::new(DEFAULT_TENANT), access: Access::Operator, subject: "anonymous".to_owned() }
}

/// The credential in an `authorization` header. Returns `None` if it is not a bearer credential or is too
/// long.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, credential) = header.split_at_checked(BEARER.len())?;
    let credential = credential.trim();
    let fits = !credential.is_empty() && credential.len() <= MAX_CREDENTIAL_BYTES;
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

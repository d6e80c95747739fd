//! JSON Web Tokens of one issuer (RFC 7519), verified with the keys that it publishes (RFC 7517). Only public
//! keys are used: a token signed with a shared secret is never accepted.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header,
    jwk::{Jwk, JwkSet, KeyAlgorithm, PublicKeyUse},
};
use serde_json::{Map, Value};
use tokio::{sync::Mutex, time::Instant};

use super::error::{Denied, Error};
use crate::{
    config::JwtConfig,
    model::{Access, Principal, TenantId, access::is_tenant},
};

/// Minimum interval at which the keys are reloaded because of a token with an unknown key. This bounds the
/// requests to the issuer that tokens with made-up keys can cause.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout for reading the keys.
const KEYS_FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a key set in bytes.
const MAX_KEY_SET_BYTES: usize = 1 << 20;
/// Allowed clock skew between issuer and server, in seconds.
const LEEWAY_SECONDS: u64 = 30;
/// Maximum length of a subject in logs, in characters.
const MAX_SUBJECT_CHARS: usize = 200;
/// Prefix of contextd's values in a claim shared by all services of the issuer.
const OURS: &str = "contextd:";
/// The shared claims: the name in RFC 8693, and the one that some issuers use.
const SHARED_CLAIMS: [&str; 2] = ["scope", "scp"];

/// Verifies the tokens of one issuer.
#[derive(Debug)]
pub struct Tokens {
    issuer: String,
    audience: String,
    tenant_claim: String,
    access_claim: String,
    source: Source,
    keys: RwLock<Arc<JwkSet>>,
    /// When the keys were last requested. The lock is held while they are read.
    asked: Mutex<Option<Instant>>,
}

/// The source of the issuer's keys.
#[derive(Debug)]
enum Source {
    Url(reqwest::Client, String),
    File(PathBuf),
}

impl Tokens {
    /// Creates the verifier. Returns `None` if no issuer is configured.
    pub fn new(config: &JwtConfig) -> Result<Option<Self>, Error> {
        let (Some(issuer), Some(audience)) = (&config.issuer, &config.audience) else {
            return Ok(None);
        };
        let source = match (&config.jwks_url, &config.jwks_file) {
            (Some(url), _) => {
                let client = reqwest::Client::builder().timeout(KEYS_FETCH_TIMEOUT);
                let client = client.redirect(reqwest::redirect::Policy::none());
                Source::Url(client.build().map_err(Error::Http)?, url.clone())
            }
            (None, Some(path)) => Source::File(path.clone()),
            (None, None) => return Ok(None),
        };
        Ok(Some(Self {
            issuer: issuer.clone(),
            audience: audience.clone(),
            tenant_claim: config.tenant_claim.clone(),
            access_claim: config.access_claim.clone(),
            source,
            keys: RwLock::new(Arc::new(JwkSet { keys: Vec::new() })),
            asked: Mutex::default(),
        }))
    }

    /// Verifies a token. Returns its principal and when it expires.
    pub async fn verify(&self, token: &str) -> Result<(Principal, Timestamp), Denied> {
        let header = decode_header(token).map_err(|_| Denied::Malformed)?;
        // No extension is supported, so none may be critical (RFC 7515, section 4.1.11).
        if header.crit.is_some() {
            return Err(Denied::Unverified);
        }
        let key = match self.key(header.kid.as_deref()) {
            Some(key) => key,
            None => {
                self.read_if_older_than(MIN_RELOAD_INTERVAL).await;
                self.key(header.kid.as_deref()).ok_or(Denied::Unverified)?
            }
        };
        let claims = self.claims(token, header.alg, &key)?;
        let principal = self.principal(&claims).ok_or(Denied::Claims)?;
        Ok((principal, expires_at(&claims)))
    }

    /// Reloads the issuer's keys if the last attempt was longer ago than `age`.
    pub async fn refresh(&self, age: Duration) {
        self.read_if_older_than(age).await;
    }

    fn claims(&self, token: &str, algorithm: Algorithm, key: &Jwk) -> Result<Map<String, Value>, Denied> {
        use jsonwebtoken::errors::ErrorKind;
        let named = key.common.key_algorithm;
        if named.is_some_and(|named| named != KeyAlgorithm::from(algorithm)) {
            return Err(Denied::Unverified);
        }
        let decoding = DecodingKey::from_jwk(key).map_err(|_| Denied::Unverified)?;
        if matches!(decoding.family(), AlgorithmFamily::Hmac) {
            return Err(Denied::Unverified);
        }
        let mut rules = Validation::new_for_family(decoding.family());
        rules.leeway = LEEWAY_SECONDS;
        rules.validate_nbf = true;
        rules.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(str::to_owned));
        rules.set_issuer(&[&self.issuer]);
        rules.set_audience(&[&self.audience]);
        match decode(token, &decoding, &rules) {
            Ok(token) => Ok(token.claims),
            Err(error) if matches!(error.kind(), ErrorKind::ExpiredSignature) => Err(Denied::Expired),
            Err(_) => Err(Denied::Unverified),
        }
    }

    fn principal(&self, claims: &Map<String, Value>) -> Option<Principal> {
        let tenant = claims.get(&self.tenant_claim)?.as_str()?;
        let subject = claims.get("sub").and_then(Value::as_str);
        let subject: String = subject.unwrap_or_default().chars().take(MAX_SUBJECT_CHARS).collect();
        is_tenant(tenant).then_some(())?;
        Some(Principal {
            tenant: TenantId::new(tenant),
            access: access(&self.access_claim, claims)?,
            subject: format!("jwt:{subject}"),
        })
    }

    /// The key with an id. A token without a key id uses the only key, if there is just one.
    fn key(&self, id: Option<&str>) -> Option<Jwk> {
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let key = match (id, keys.keys.as_slice()) {
            (Some(id), _) => keys.find(id),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        key.filter(|key| key.common.public_key_use != Some(PublicKeyUse::Encryption)).cloned()
    }

    /// Reads the keys, unless the last attempt was within `age`. If this fails, the previous keys stay in
    /// force.
    async fn read_if_older_than(&self, age: Duration) {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < age) {
            return;
        }
        *asked = Some(Instant::now());
        match self.read().await {
            Ok(keys) => *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys),
            Err(error) => tracing::warn!(%error, "cannot read the token issuer's keys"),
        }
    }

    async fn read(&self) -> Result<JwkSet, Unread> {
        let bytes = match &self.source {
            Source::File(path) => tokio::fs::read(path).await.map_err(Unread::File)?,
            Source::Url(client, url) => {
                let answer = client.get(url).send().await.map_err(Unread::Http)?;
                let mut answer = answer.error_for_status().map_err(Unread::Http)?;
                let mut bytes = Vec::new();
                while let Some(chunk) = answer.chunk().await.map_err(Unread::Http)? {
                    bytes.extend_from_slice(&chunk);
                    if bytes.len() > MAX_KEY_SET_BYTES {
                        return Err(Unread::TooLarge);
                    }
                }
                bytes
            }
        };
        key_set(&bytes).map_err(Unread::Json)
    }
}

/// When a token expires, including the allowed clock skew.
fn expires_at(claims: &Map<String, Value>) -> Timestamp {
    let seconds = claims.get("exp").and_then(Value::as_f64);
    // Fractions of a second are within the allowed skew.
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    let seconds = seconds.unwrap_or_default() as i64;
    let leeway = i64::try_from(LEEWAY_SECONDS).unwrap_or_default();
    Timestamp::from_second(seconds.saturating_add(leeway)).unwrap_or(Timestamp::MAX)
}

/// Why the issuer's keys cannot be read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("{0}")]
    File(std::io::Error),
    #[error("{0}")]
    Http(reqwest::Error),
    #[error("the key set is larger than {MAX_KEY_SET_BYTES} bytes")]
    TooLarge,
    #[error("invalid JSON Web Key Set: {0}")]
    Json(serde_json::Error),
}

/// Parses a key set, and drops keys of unsupported types.
fn key_set(bytes: &[u8]) -> Result<JwkSet, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Loose {
        keys: Vec<Value>,
    }
    let loose: Loose = serde_json::from_slice(bytes)?;
    let keys = loose.keys.into_iter();
    Ok(JwkSet { keys: keys.filter_map(|key| serde_json::from_value(key).ok()).collect() })
}

/// The highest access in a claim. In a claim shared with other services only values with our prefix count:
/// `admin` may mean an administrator of another service.
fn access(name: &str, claims: &Map<String, Value>) -> Option<Access> {
    let words: Vec<&str> = match claims.get(name)? {
        Value::String(text) => text.split_whitespace().collect(),
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let is_shared = SHARED_CLAIMS.contains(&name);
    let named = |word: &&str| match word.strip_prefix(OURS) {
        Some(access) => Access::from_name(access),
        None if is_shared => None,
        None => Access::from_name(word),
    };
    words.iter().filter_map(named).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_highest_access_of_a_claim_holds() {
        let check = |name: &str, claim: Value, expected: Option<Access>| {
            let claims = Map::from_iter([(name.to_owned(), claim)]);
            assert_eq!(access(name, &claims), expected, "{claims:?}");
        };
        let scope = "openid contextd:read profile";
        check("scope", json!(scope), Some(Access::Read));
        check("scp", json!(["contextd:read", "admin"]), Some(Access::Read));
        check("scope", json!("admin operator write"), None);
        check("roles", json!("write"), Some(Access::Write));
        check("roles", json!(["contextd:read", "admin"]), Some(Access::Admin));
        check("roles", json!("superoperator"), None);
        check("roles", json!({"write": true}), None);
    }

    #[test]
    fn a_key_set_with_kinds_of_keys_that_are_not_known_still_serves() {
        let set = json!({"keys": [{"kty": "FUTURE", "kid": "1"}, {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "2"}]});
        let keys = key_set(set.to_string().as_bytes()).unwrap();
        assert!(keys.find("2").is_some());
    }
}

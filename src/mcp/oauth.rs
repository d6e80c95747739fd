//! Access tokens for an MCP server, from the OAuth 2.1 client credentials grant. The first request fetches a token,
//! which is used until shortly before it expires. Tokens are never logged or stored.

use std::{
    fmt,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::SettingsError;
use crate::config::OauthConfig;

/// Time limit for fetching a token.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of the token response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Maximum time before its expiry at which a token is replaced.
const MARGIN: Duration = Duration::from_mins(1);

/// The lifetime of a token if the issuer does not report one.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_mins(5);

/// Number of replaced tokens that are still removed from the server's texts. A call may outlast its token.
const MAX_RECENT_TOKENS: usize = 8;

/// The tokens of one server.
pub(super) struct Tokens {
    client: reqwest::Client,
    url: Url,
    authorization: HeaderValue,
    form: String,
    /// Locked during a fetch, so that concurrent callers wait for one fetch.
    current: Mutex<Option<Token>>,
    recent: RwLock<Vec<SecretString>>,
}

#[derive(Clone)]
struct Token {
    secret: SecretString,
    until: Instant,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// The tokens for the server at `server_url`.
    pub(super) fn new(
        client: reqwest::Client,
        config: &OauthConfig,
        client_secret: &SecretString,
        server_url: &str,
    ) -> Result<Self, SettingsError> {
        let OauthConfig { token_url, client_id, scope, .. } = config;
        let mut parameters = config.parameters.clone();
        let resource = parameters.entry("resource".to_owned());
        resource.or_insert_with(|| server_url.to_owned());
        parameters.insert("scope".to_owned(), scope.clone());
        parameters.retain(|_, value| !value.is_empty());
        let url: Url = token_url.parse().map_err(|error| SettingsError::Http(format!("{error}")))?;
        let mut pairs = vec![("grant_type", "client_credentials")];
        pairs.extend(parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let form = form(&pairs);
        // Both are form-encoded, RFC 6749 section 2.3.1, so the first `=` is the separator.
        let credentials = self::form(&[(client_id, client_secret.expose_secret())]);
        let credentials = STANDARD.encode(credentials.replacen('=', ":", 1));
        let authorization = HeaderValue::from_str(&format!("Basic {credentials}"));
        let mut authorization = authorization.map_err(|_| SettingsError::Header(header::AUTHORIZATION))?;
        authorization.set_sensitive(true);
        Ok(Self { client, url, authorization, form, current: Mutex::new(None), recent: RwLock::default() })
    }

    /// A valid token. The error says why none is available, without the issuer's response.
    pub(super) async fn get(&self) -> Result<SecretString, String> {
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|it| Instant::now() < it.until) {
            return Ok(token.secret.clone());
        }
        let fetched = timeout(FETCH_TIMEOUT, self.fetch()).await;
        let fetched = fetched.map_err(|_| format!("no response within {} s", FETCH_TIMEOUT.as_secs())).flatten();
        *current = fetched.as_ref().ok().cloned();
        let token = fetched?;
        self.remember(&token.secret);
        Ok(token.secret)
    }

    /// Discards a token that the server rejected, so that the next request fetches another.
    pub(super) async fn forget(&self, refused: &str) {
        let mut current = self.current.lock().await;
        // Another call may have fetched a new one in the meantime.
        if current.as_ref().is_some_and(|token| token.secret.expose_secret() == refused) {
            *current = None;
        }
    }

    /// The tokens that were used recently.
    pub(super) fn recent(&self) -> Vec<SecretString> {
        let recent = self.recent.read();
        recent.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, secret: &SecretString) {
        let recent = self.recent.write();
        let mut recent = recent.unwrap_or_else(PoisonError::into_inner);
        if recent.len() == MAX_RECENT_TOKENS {
            recent.remove(0);
        }
        recent.push(secret.clone());
    }

    async fn fetch(&self) -> Result<Token, String> {
        let asked = Instant::now();
        let request = self
            .client
            .post(self.url.clone())
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(self.form.clone());
        // The error itself is not returned, because its text contains the URL.
        let response = request.send().await;
        let response = response.map_err(|_| "the connection failed".to_owned())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("the token endpoint returned HTTP {status}"));
        }
        let body = bounded(response).await?;
        let answer: TokenResponse =
            serde_json::from_slice(&body).map_err(|_| "the response of the token endpoint is invalid".to_owned())?;
        if !answer.token_type.eq_ignore_ascii_case("bearer") {
            return Err("the token endpoint returned no bearer token".to_owned());
        }
        let secret = SecretString::from(answer.access_token);
        if HeaderValue::from_str(secret.expose_secret()).is_err() {
            return Err("the token contains invalid characters".to_owned());
        }
        let life = answer.expires_in.map_or(DEFAULT_TOKEN_LIFETIME, Duration::from_secs);
        Ok(Token { secret, until: used_until(asked, life) })
    }
}

/// When to stop using a token: a short-lived one after half of its lifetime, others shortly before their expiry.
fn used_until(asked: Instant, life: Duration) -> Instant {
    let used = life - MARGIN.min(life / 2);
    asked.checked_add(used).unwrap_or(asked + DEFAULT_TOKEN_LIFETIME)
}

async fn bounded(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|_| "the connection failed".to_owned())? else {
            return Ok(body);
        };
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err("the response of the token endpoint is too large".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
}

/// Form-encodes the pairs.
fn form(pairs: &[(&str, &str)]) -> String {
    let mut url = Url::parse("http://form").expect("the address is one");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_written_as_issuers_read_it() {
        assert_eq!(form(&[("a b", "c&d=e"), ("f", "ü")]), "a+b=c%26d%3De&f=%C3%BC");
    }

    #[test]
    fn a_token_is_used_until_shortly_before_it_expires() {
        let asked = Instant::now();
        for (life, used) in [(3_600, 3_540), (120, 60), (60, 30), (0, 0)] {
            let until = used_until(asked, Duration::from_secs(life));
            assert_eq!(until - asked, Duration::from_secs(used), "{life}");
        }
    }
}

//! The client of one model service: how it is reached, and what goes wrong on the way.

use std::{fmt, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use reqwest::{RequestBuilder, Response, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

use super::{
    Fault,
    classify::{self, Place},
    lenient,
    said::Said,
    wait,
};
use crate::{
    provider::{Error, error::Kind},
    telemetry::Trace,
};

/// Bytes that are read of an answer that is no stream of events.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Bytes of an answer to a question. A count of tokens may come as a list of them.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Bytes of a list of models, or of one page of it. The longest known has less than 2 MiB.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Connections that are kept open without a use.
const MAX_IDLE_CONNECTIONS: usize = 32;

/// How long they are kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Headers in which services name a request, the usual one first.
const REQUEST_ID_HEADERS: &[&str] = &[
    "x-request-id",
    "request-id",
    "x-generation-id",
    "mistral-correlation-id",
    "cf-ray",
];

/// How a service is reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is, without the path of the single call.
    pub base_url: String,
    /// What every request carries. Those that are secret are in `secrets` too.
    pub headers: Vec<(HeaderName, SecretString)>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long the first byte of an answer may take.
    pub first_byte_timeout: Duration,
    /// How long an answer may be silent between two bytes.
    pub stall_timeout: Duration,
    /// Bytes of a request that the service takes. `None` means that is not known.
    pub max_request_bytes: Option<usize>,
}

#[cfg(test)]
impl Settings {
    /// Of a service that no test calls.
    pub(crate) fn nowhere() -> Self {
        let second = Duration::from_secs(1);
        Self {
            base_url: "http://127.0.0.1:9/v1".to_owned(),
            headers: Vec::new(),
            connect_timeout: second,
            first_byte_timeout: second,
            stall_timeout: second,
            max_request_bytes: None,
        }
    }
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The address is none.
    #[error("the base URL is not a URL: {0}")]
    BaseUrl(String),
    /// The value cannot be sent. It is not shown: it may be a key.
    #[error("the value of the header {0} holds characters that cannot be sent")]
    Header(HeaderName),
    /// A declared model has a name that the protocol does not take.
    #[error("{name:?} is no name of a model: {rule}")]
    ModelName {
        /// The name.
        name: String,
        /// The names that it takes, in words.
        rule: &'static str,
    },
    /// No client could be made.
    #[error("cannot set up HTTP: {0}")]
    Client(String),
}

/// A client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    provider: String,
    http: reqwest::Client,
    base_url: Url,
    headers: HeaderMap,
    secrets: Vec<SecretString>,
    pub(super) first_byte_timeout: Duration,
    pub(super) stall_timeout: Duration,
    max_request_bytes: Option<usize>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the provider of that configured name.
    pub fn new(provider: &str, settings: Settings) -> Result<Self, Unusable> {
        let Settings {
            base_url,
            headers: given,
            connect_timeout,
            first_byte_timeout,
            stall_timeout,
            max_request_bytes,
        } = settings;
        let base_url: Url = base_url
            .parse()
            .map_err(|error| Unusable::BaseUrl(format!("{error}")))?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("contextd/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .http2_keep_alive_interval(KEEPALIVE)
            // A redirect would take the key somewhere else.
            .redirect(redirect::Policy::none())
            .referer(false);
        if base_url.scheme() == "http" {
            // Without TLS the system's authorities are not needed, which may be missing.
            builder = builder.tls_certs_only([]);
        }
        if is_loopback(&base_url) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| Unusable::Client(causes(&error)))?;
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for (name, secret) in given {
            let value = HeaderValue::from_str(secret.expose_secret());
            let mut value = value.map_err(|_| Unusable::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
            secrets.extend(words(secret.expose_secret()));
        }
        let provider = provider.to_owned();
        Ok(Self {
            provider,
            http,
            base_url,
            headers,
            secrets,
            first_byte_timeout,
            stall_timeout,
            max_request_bytes,
        })
    }

    /// The host of the service.
    pub fn host(&self) -> &str {
        self.base_url.host_str().unwrap_or_default()
    }

    /// Whether it is reached without TLS, as servers in one's own network are.
    pub fn is_plain(&self) -> bool {
        self.base_url.scheme() == "http"
    }

    /// The configured name of the provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Sends a body and waits for the head of a good answer.
    pub(super) async fn send(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, Error> {
        let url = self.url(path);
        self.post(url, "text/event-stream", headers, body).await
    }

    /// Asks the service something that it answers at once.
    pub(in crate::provider) async fn question(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<serde_json::Value, Error> {
        self.answered(self.url(path), headers, body).await
    }

    /// A number of tokens in an answer to a question for it.
    pub(in crate::provider) fn counted(&self, tokens: &serde_json::Value) -> Result<u32, Error> {
        let tokens = tokens.as_u64();
        let tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok());
        let unreadable = "its count of tokens cannot be read";
        tokens.ok_or_else(|| Error::new(Kind::Broken, &self.provider, unreadable))
    }

    /// Asks the server that the service runs on, beside its API: what has a version in its address
    /// is left.
    pub(in crate::provider) async fn ask(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<serde_json::Value, Error> {
        let none = HeaderMap::new();
        self.answered(self.beside(path), &none, body).await
    }

    /// Reads something that the service lists.
    pub(in crate::provider) async fn get(&self, path: &str) -> Result<serde_json::Value, Error> {
        self.fetched(self.url(path)).await
    }

    /// Reads something that the server lists beside its API, as [`Client::ask`] does.
    pub(in crate::provider) async fn get_beside(
        &self,
        path: &str,
    ) -> Result<serde_json::Value, Error> {
        self.fetched(self.beside(path)).await
    }

    async fn fetched(&self, url: Url) -> Result<serde_json::Value, Error> {
        let request = self
            .http
            .get(url)
            .headers(self.headers.clone())
            .header(header::ACCEPT, "application/json");
        let mut response = self.sent(request).await?;
        let answer = self.read(&mut response, MAX_LIST_BYTES + 1).await;
        let value = if answer.len() > MAX_LIST_BYTES {
            Err(Fault::broken(format!(
                "its answer has more than {MAX_LIST_BYTES} bytes"
            )))
        } else {
            let text = String::from_utf8_lossy(&answer);
            lenient::value(&text).ok_or_else(|| Fault::broken("its answer is no JSON"))
        };
        let status = response.status().as_u16();
        value.map_err(|fault| self.error(fault, status, request_id(response.headers())))
    }

    async fn answered(
        &self,
        url: Url,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<serde_json::Value, Error> {
        let mut response = self.post(url, "application/json", headers, body).await?;
        let answer = self.read(&mut response, MAX_ANSWER_BYTES).await;
        let unreadable = |_| Fault::broken("its answer is no JSON");
        serde_json::from_slice(&answer)
            .map_err(unreadable)
            .map_err(|fault| {
                self.error(
                    fault,
                    response.status().as_u16(),
                    request_id(response.headers()),
                )
            })
    }

    async fn post(
        &self,
        url: Url,
        accept: &'static str,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, Error> {
        if let Some(most) = self.max_request_bytes.filter(|most| body.len() > *most) {
            return Err(self.error(too_large(body.len(), most), 0, ""));
        }
        let request = self
            .http
            .post(url)
            // First, so that nothing of a caller's trace can take the place of a header of ours.
            .headers(Trace::current().provider_headers())
            .headers(self.headers.clone())
            .headers(headers.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, accept)
            .body(body);
        self.sent(request).await
    }

    /// Sends a request and waits for the head of a good answer.
    async fn sent(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = match timeout(self.first_byte_timeout, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.error(unreachable(&error), 0, "")),
            Err(_) => return Err(self.error(silent(self.first_byte_timeout), 0, "")),
        };
        if response.status() == StatusCode::OK {
            Ok(response)
        } else {
            Err(self.refused(response).await)
        }
    }

    /// The error that an answer stands for which is no stream of events.
    pub(super) async fn refused(&self, mut response: Response) -> Error {
        let body = self.read(&mut response, MAX_BODY_BYTES).await;
        let status = response.status();
        let headers = response.headers();
        let mut said = Said::of_body(&body);
        said.retry_after = wait::asked(status, headers, &said);
        let fault = if status.is_success() {
            unexpected(headers, said)
        } else {
            let fault = classify::fault(Place::Body(status.as_u16()), &said);
            Fault {
                should_retry: wait::should_retry(headers).or(fault.should_retry),
                ..fault
            }
        };
        self.error(fault, status.as_u16(), request_id(headers))
    }

    /// The error with this provider's name, and without its secrets.
    pub(super) fn error(&self, fault: Fault, status: u16, request_id: &str) -> Error {
        let Fault {
            kind,
            message,
            code,
            retry_after,
            should_retry,
        } = fault;
        Error {
            kind,
            provider: self.provider.clone(),
            message: self.scrubbed(message),
            status,
            code: self.scrubbed(code),
            request_id: self.scrubbed(request_id.to_owned()),
            retry_after,
            should_retry,
        }
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        url.set_path(&format!("{base}/{path}"));
        if query.is_some() {
            url.set_query(query);
        }
        url
    }

    fn beside(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!(
            "{}/{path}",
            base.strip_suffix("/v1").unwrap_or(&base)
        ));
        url
    }

    /// The beginning of a body; what came before it broke off or fell silent.
    async fn read(&self, response: &mut Response, most: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < most
            && let Ok(Ok(Some(bytes))) = timeout(self.stall_timeout, response.chunk()).await
        {
            body.extend_from_slice(&bytes);
        }
        body.truncate(most);
        body
    }

    /// A service may repeat what it was sent.
    fn scrubbed(&self, text: String) -> String {
        let hide =
            |text: String, secret: &SecretString| text.replace(secret.expose_secret(), "***");
        self.secrets.iter().fold(text, hide)
    }
}

/// The id under which the service knows the request; empty when it says none.
pub(super) fn request_id(headers: &HeaderMap) -> &str {
    let text = |name: &&str| headers.get(*name).and_then(|value| value.to_str().ok());
    REQUEST_ID_HEADERS.iter().find_map(text).unwrap_or_default()
}

/// A request that the service would not take is not sent.
fn too_large(bytes: usize, most: usize) -> Fault {
    Fault::new(
        Kind::TooLong,
        format!("the request has {bytes} bytes, and the service takes {most}"),
    )
}

/// Nothing came for so long.
pub(super) fn silent(patience: Duration) -> Fault {
    Fault::new(
        Kind::Timeout,
        format!("nothing came for {} seconds", patience.as_secs_f32()),
    )
}

/// The connection failed or broke.
pub(super) fn unreachable(error: &reqwest::Error) -> Fault {
    match error {
        error if error.is_connect() && error.is_timeout() => {
            Fault::new(Kind::Timeout, "no connection was made in time")
        }
        error if error.is_connect() => {
            Fault::broken(format!("cannot be reached: {}", causes(error)))
        }
        error if error.is_timeout() => Fault::new(Kind::Timeout, "no answer came in time"),
        error => Fault::broken(format!("the connection broke: {}", causes(error))),
    }
}

/// A good status, but no events: an error in disguise, or something that is no model service.
fn unexpected(headers: &HeaderMap, said: Said) -> Fault {
    if !said.codes.is_empty() || said.status.is_some() {
        return classify::fault(Place::Stream, &said);
    }
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("nothing");
    let words = if said.message.is_empty() {
        String::new()
    } else {
        format!(": {}", said.message)
    };
    Fault::broken(format!(
        "it answered with {kind} in place of a stream of events{words}"
    ))
}

/// The cause of an error, without the address, which may be private.
fn causes(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback()),
        None => false,
    }
}

/// The words of a header that are worth hiding: not `Bearer`, and nothing so short that it hides
/// ordinary text.
fn words(value: &str) -> impl Iterator<Item = SecretString> {
    const LEAST: usize = 8;
    value
        .split_whitespace()
        .filter(|word| word.len() >= LEAST)
        .map(SecretString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(headers: &[(&'static str, &str)]) -> Result<Client, Unusable> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), SecretString::from(*value)));
        let second = Duration::from_secs(1);
        Client::new(
            "main",
            Settings {
                base_url: "http://127.0.0.1:9/v1/?api-version=2".to_owned(),
                headers: headers.collect(),
                connect_timeout: second,
                first_byte_timeout: second,
                stall_timeout: second,
                max_request_bytes: None,
            },
        )
    }

    #[test]
    fn no_secret_is_shown_by_a_client_or_in_what_it_says() {
        let client = client(&[
            ("authorization", "Bearer sk-very-secret"),
            ("x-extra", "short"),
        ])
        .expect("a client");
        assert_eq!(format!("{client:?}"), "Client { provider: \"main\", .. }");
        assert!(!format!("{:?}", client.headers).contains("secret"));
        let fault = Fault {
            code: "sk-very-secret".to_owned(),
            ..Fault::broken("Wrong key: sk-very-secret, Bearer short")
        };
        let error = client.error(fault, 401, "req sk-very-secret");
        assert_eq!(
            (error.message.as_str(), error.code.as_str()),
            ("Wrong key: ***, Bearer short", "***")
        );
        assert_eq!(error.request_id, "req ***");
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named_without_its_value() {
        let error = client(&[("authorization", "Bearer sk-very\nsecret")])
            .map(drop)
            .expect_err("a line break");
        assert_eq!(
            error.to_string(),
            "the value of the header authorization holds characters that cannot be sent"
        );
    }

    #[test]
    fn paths_are_appended_to_the_base_url_and_its_query_is_kept() {
        let client = client(&[]).expect("a client");
        assert_eq!(
            client.url("chat/completions").as_str(),
            "http://127.0.0.1:9/v1/chat/completions?api-version=2"
        );
        assert_eq!(
            client.beside("tokenize").as_str(),
            "http://127.0.0.1:9/tokenize?api-version=2"
        );
    }

    #[test]
    fn loopback_is_known_by_name_and_number() {
        let table = [
            ("http://localhost:1/v1", true),
            ("http://127.0.0.1/v1", true),
            ("http://[::1]:1/v1", true),
            ("http://10.0.0.1/v1", false),
            ("https://api.openai.com/v1", false),
        ];
        for (url, expected) in table {
            assert_eq!(is_loopback(&url.parse().expect("a URL")), expected, "{url}");
        }
    }
}

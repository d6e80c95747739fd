//! The HTTP client of one model service, and the errors of its requests.

use std::{fmt, net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use reqwest::{RequestBuilder, Response, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    Fault,
    classify::{self, ErrorSource},
    lenient,
    reported_error::ReportedError,
    retry_after,
};
use crate::{
    config::HttpConfig,
    provider::{Error, error::Kind},
    telemetry::Trace,
};

/// Limit on the bytes that are read of a response that is not an event stream.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Limit on the bytes of a JSON response. A token count may be returned as a list of tokens.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Limit on the bytes of a model list, or of one page of it. The longest known list has less than 2
/// MiB.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Limit on idle connections in the pool.
const MAX_IDLE_CONNECTIONS: usize = 32;

/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Interval of keepalive probes (TCP) and pings (HTTP/2).
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Headers with the service's id of a request, the most common first.
const REQUEST_ID_HEADERS: &[&str] =
    &["x-request-id", "request-id", "x-generation-id", "mistral-correlation-id", "cf-ray"];

/// How a service is reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base URL, without the path of a method.
    pub base_url: String,
    /// Headers of every request, in addition to those of `http`. All values of headers are treated as secrets and
    /// redacted from errors.
    pub headers: Vec<(HeaderName, SecretString)>,
    pub http: HttpConfig,
}

#[cfg(test)]
impl Settings {
    /// Settings for a service that no test calls.
    pub(crate) fn nowhere() -> Self {
        Self { base_url: "http://127.0.0.1:9/v1".to_owned(), headers: Vec::new(), http: HttpConfig::default() }
    }
}

/// Why settings or model names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The base URL is invalid.
    #[error("the base URL is invalid: {0}")]
    BaseUrl(String),
    #[error("{0:?} is not a valid header name")]
    HeaderName(String),
    /// The header value cannot be sent. It is not shown, because it may be a key.
    #[error("the value of the header {0} contains invalid characters")]
    Header(HeaderName),
    /// A configured model has a name that the protocol does not accept.
    #[error("{name:?} is not a valid model name: {rule}")]
    ModelName {
        name: String,
        /// The names that the protocol accepts, for the error message.
        rule: &'static str,
    },
    /// The HTTP client could not be created.
    #[error("cannot create the HTTP client: {0}")]
    Client(String),
}

/// An HTTP client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    provider: String,
    http: reqwest::Client,
    base_url: Url,
    headers: HeaderMap,
    secrets: Vec<SecretString>,
    pub(super) config: HttpConfig,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client for the provider with this configured name.
    ///
    /// # Errors
    ///
    /// Returns [`SetupError`] if the settings are invalid or the HTTP client cannot be created.
    pub fn new(provider: &str, settings: Settings) -> Result<Self, SetupError> {
        let Settings { base_url, headers: mut given, http: config } = settings;
        for (name, value) in &config.headers {
            let known = name.parse::<HeaderName>();
            let known = known.map_err(|_| SetupError::HeaderName(name.clone()))?;
            given.push((known, value.clone()));
        }
        let base_url: Url = base_url.parse().map_err(|error| SetupError::BaseUrl(format!("{error}")))?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("contextd/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.connect_timeout)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .http2_keep_alive_interval(KEEPALIVE)
            // A redirect would send the key to another host.
            .redirect(redirect::Policy::none())
            .referer(false);
        if base_url.scheme() == "http" {
            // Without TLS the system's root certificates are not needed, and they may be missing.
            builder = builder.tls_certs_only([]);
        }
        if is_loopback(&base_url) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| SetupError::Client(causes(&error)))?;
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for (name, secret) in given {
            let value = HeaderValue::from_str(secret.expose_secret());
            let mut value = value.map_err(|_| SetupError::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
            secrets.extend(secret_parts(secret.expose_secret()));
        }
        Ok(Self { provider: provider.to_owned(), http, base_url, headers, secrets, config })
    }

    /// The host of the base URL.
    pub fn host(&self) -> &str {
        self.base_url.host_str().unwrap_or_default()
    }

    /// Whether the service is reached without TLS, as servers in a private network are.
    pub fn is_plain(&self) -> bool {
        self.base_url.scheme() == "http"
    }

    /// The configured name of the provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Reads a token count from a response. Returns an error if it is not a valid number.
    pub(crate) fn parse_token_count(&self, tokens: Option<u64>) -> Result<u32, Error> {
        let tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok());
        let unreadable = "it returned an invalid token count";
        tokens.ok_or_else(|| Error::new(Kind::Broken, &self.provider, unreadable))
    }

    /// Sends a request whose response is a single JSON value.
    pub(crate) async fn post_json(&self, path: &str, headers: &HeaderMap, body: Vec<u8>) -> Result<Value, Error> {
        let mut response = self.post(path, "application/json", headers, body).await?;
        let answer = self.read(&mut response, MAX_ANSWER_BYTES).await;
        let value = serde_json::from_slice(&answer);
        value.map_err(|_| self.unreadable("its response is not JSON", &response))
    }

    /// Fetches JSON.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Error> {
        let request = self.http.get(self.url(path)).headers(self.headers.clone());
        let mut response = self.send_request(request.header(header::ACCEPT, "application/json")).await?;
        let answer = self.read(&mut response, MAX_LIST_BYTES + 1).await;
        let value = if answer.len() > MAX_LIST_BYTES {
            Err(format!("its response is larger than {MAX_LIST_BYTES} bytes"))
        } else {
            let text = String::from_utf8_lossy(&answer);
            lenient::value(&text).ok_or_else(|| "its response is not JSON".to_owned())
        };
        value.map_err(|why| self.unreadable(why, &response))
    }

    fn unreadable(&self, why: impl Into<String>, response: &Response) -> Error {
        self.error_in(Fault::broken(why), response)
    }

    /// Sends a request and waits for the head of a successful response.
    pub(super) async fn post(
        &self,
        path: &str,
        accept: &'static str,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response, Error> {
        let most = self.config.max_request_bytes;
        if let Some(most) = most.filter(|most| body.len() as u64 > *most) {
            return Err(self.error(too_large(body.len(), most), 0, ""));
        }
        let request = self
            .http
            .post(self.url(path))
            // First, so that the caller's trace context cannot override other headers.
            .headers(Trace::current().provider_headers())
            .headers(self.headers.clone())
            .headers(headers.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, accept)
            .body(body);
        self.send_request(request).await
    }

    async fn send_request(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = match timeout(self.config.first_byte_timeout, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.error(unreachable(&error), 0, "")),
            Err(_) => {
                return Err(self.error(read_timeout_fault(self.config.first_byte_timeout), 0, ""));
            }
        };
        if response.status() == StatusCode::OK { Ok(response) } else { Err(self.response_error(response).await) }
    }

    /// The error for a response that is not an event stream.
    pub(super) async fn response_error(&self, mut response: Response) -> Error {
        let body = self.read(&mut response, MAX_BODY_BYTES).await;
        let status = response.status();
        let headers = response.headers();
        let mut said = ReportedError::of_body(&body);
        said.retry_after = retry_after::requested_delay(status, headers, &said);
        let fault = if status.is_success() {
            content_type_fault(headers, said)
        } else {
            let fault = classify::fault(ErrorSource::Body(status.as_u16()), &said);
            Fault { should_retry: retry_after::should_retry(headers).or(fault.should_retry), ..fault }
        };
        self.error(fault, status.as_u16(), request_id(headers))
    }

    /// The error for a fault of a response.
    pub(super) fn error_in(&self, fault: Fault, response: &Response) -> Error {
        let id = request_id(response.headers());
        self.error(fault, response.status().as_u16(), id)
    }

    /// Adds the provider name to a fault, and redacts secrets.
    pub(super) fn error(&self, fault: Fault, status: u16, request_id: &str) -> Error {
        Error {
            kind: fault.kind,
            provider: self.provider.clone(),
            message: self.redact(fault.message),
            status,
            code: self.redact(fault.code),
            request_id: self.redact(request_id.to_owned()),
            retry_after: fault.retry_after,
            should_retry: fault.should_retry,
        }
    }

    /// The URL for a path of the versioned API, or for one of the server's root if it starts with `/`.
    fn url(&self, path: &str) -> Url {
        let mut url = self.base_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        let (base, path) = match path.strip_prefix('/') {
            Some(path) => (base.strip_suffix("/v1").unwrap_or(&base), path),
            None => (base.as_str(), path),
        };
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

    /// Reads at most `most` bytes of a body, until it ends, breaks or stalls.
    async fn read(&self, response: &mut Response, most: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < most
            && let Ok(Ok(Some(bytes))) = timeout(self.config.stall_timeout, response.chunk()).await
        {
            body.extend_from_slice(&bytes);
        }
        body.truncate(most);
        body
    }

    /// Redacts secrets, because a service may repeat what it was sent.
    fn redact(&self, text: String) -> String {
        let hide = |text: String, secret: &SecretString| text.replace(secret.expose_secret(), "***");
        self.secrets.iter().fold(text, hide)
    }
}

/// The service's id of the request. Empty if the service returned none.
pub(super) fn request_id(headers: &HeaderMap) -> &str {
    let text = |name: &&str| headers.get(*name).and_then(|value| value.to_str().ok());
    REQUEST_ID_HEADERS.iter().find_map(text).unwrap_or_default()
}

/// The fault for a request that exceeds the service's limit. It is not sent.
fn too_large(bytes: usize, most: u64) -> Fault {
    let message = format!("the request has {bytes} bytes, but the service accepts at most {most}");
    Fault::new(Kind::TooLong, message)
}

/// The fault for a read that timed out after `patience`.
pub(super) fn read_timeout_fault(patience: Duration) -> Fault {
    let seconds = patience.as_secs_f32();
    Fault::new(Kind::Timeout, format!("received no data for {seconds} seconds"))
}

/// The fault for a connection that failed or broke.
pub(super) fn unreachable(error: &reqwest::Error) -> Fault {
    match error {
        error if error.is_connect() && error.is_timeout() => Fault::new(Kind::Timeout, "connecting timed out"),
        error if error.is_connect() => Fault::broken(format!("cannot be reached: {}", causes(error))),
        error if error.is_timeout() => Fault::new(Kind::Timeout, "the request timed out"),
        error => Fault::broken(format!("the connection broke: {}", causes(error))),
    }
}

/// The fault for a successful status without an event stream: an error with the wrong status, or a
/// server that is not a model service.
fn content_type_fault(headers: &HeaderMap, said: ReportedError) -> Fault {
    if !said.codes.is_empty() || said.status.is_some() {
        return classify::fault(ErrorSource::Stream, &said);
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("missing");
    let mut message = format!("the content type of its response is {kind}, not that of an event stream");
    if !said.message.is_empty() {
        message = format!("{message}: {}", said.message);
    }
    Fault::broken(message)
}

/// The root cause of an error, without the URL, which may be private.
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
        Some(host) => {
            let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
            address.is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

/// The parts of a header value to redact: not `Bearer`, nor parts so short that redaction would
/// affect ordinary text.
fn secret_parts(value: &str) -> impl Iterator<Item = SecretString> {
    const LEAST: usize = 8;
    let words = value.split_whitespace();
    words.filter(|word| word.len() >= LEAST).map(SecretString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(headers: &[(&'static str, &str)]) -> Result<Client, SetupError> {
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), SecretString::from(*value)));
        Client::new(
            "main",
            Settings {
                base_url: "http://127.0.0.1:9/v1/?api-version=2".to_owned(),
                headers: headers.collect(),
                http: HttpConfig::default(),
            },
        )
    }

    #[test]
    fn no_secret_is_shown_by_a_client_or_in_what_it_says() {
        let client = client(&[("authorization", "Bearer sk-very-secret"), ("x-extra", "short")]).expect("a client");
        assert_eq!(format!("{client:?}"), "Client { provider: \"main\", .. }");
        assert!(!format!("{:?}", client.headers).contains("secret"));
        let fault =
            Fault { code: "sk-very-secret".to_owned(), ..Fault::broken("Wrong key: sk-very-secret, Bearer short") };
        let error = client.error(fault, 401, "req sk-very-secret");
        assert_eq!((error.message.as_str(), error.code.as_str()), ("Wrong key: ***, Bearer short", "***"));
        assert_eq!(error.request_id, "req ***");
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named_without_its_value() {
        let error = client(&[("authorization", "Bearer sk-very\nsecret")]).map(drop).expect_err("a line break");
        assert_eq!(error.to_string(), "the value of the header authorization contains invalid characters");
    }

    #[test]
    fn paths_are_appended_to_the_base_url_and_its_query_is_kept() {
        let client = client(&[]).expect("a client");
        assert_eq!(client.url("chat/completions").as_str(), "http://127.0.0.1:9/v1/chat/completions?api-version=2");
        assert_eq!(client.url("/tokenize").as_str(), "http://127.0.0.1:9/tokenize?api-version=2");
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

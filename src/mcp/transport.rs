//! The HTTP transport of a session. It differs from the library's only in how a lost session is detected: after a
//! restart, many servers return 400 in place of 404, without the id of the request.

use std::{collections::HashMap, sync::Arc};

use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcError, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::{
        AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        StreamableHttpResponseLimits,
    },
};
use secrecy::ExposeSecret as _;
use sse_stream::Sse;

use super::oauth::Tokens;

pub(super) type Error = StreamableHttpError<reqwest::Error>;

/// Sends requests to one server.
#[derive(Debug, Clone)]
pub(super) struct Http {
    pub(super) client: reqwest::Client,
    /// The source of tokens. `None` if the client sends one in a header, or if the server needs none.
    pub(super) tokens: Option<Arc<Tokens>>,
}

/// The challenge in the error of a request that was not sent, because no token was available.
const NO_TOKEN: &str = "no token";

impl Http {
    /// The token for a request. Fails if a token is needed and not available.
    async fn token(&self) -> Result<Option<String>, Error> {
        let Some(tokens) = &self.tokens else {
            return Ok(None);
        };
        match tokens.get().await {
            Ok(token) => Ok(Some(token.expose_secret().to_owned())),
            Err(error) => {
                tracing::warn!(error, "no access token for an MCP server is available");
                let error = AuthRequiredError::new(NO_TOKEN.to_owned());
                Err(Error::AuthRequired(error))
            }
        }
    }
}

impl StreamableHttpClient for Http {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, token, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let had_session = session.is_some();
        let request = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            ClientJsonRpcMessage::Response(_)
            | ClientJsonRpcMessage::Notification(_)
            | ClientJsonRpcMessage::Error(_) => None,
        };
        let post = async |token| {
            let (uri, message, session) = (Arc::clone(&uri), message.clone(), session.clone());
            let headers = headers.clone();
            let client = &self.client;
            client.post_message_with_response_limits(uri, message, session, token, headers, limits).await
        };
        let token = self.token().await?;
        let mut answer = post(token.clone()).await;
        // The token may have been revoked before its expiry. A request that was refused like this did not run.
        let is_refused = matches!(answer, Err(Error::AuthRequired(_)))
            || matches!(&answer, Err(Error::UnexpectedServerResponse(text)) if text.starts_with("HTTP 401"));
        if let (Some(tokens), Some(token), true) = (&self.tokens, token, is_refused) {
            tokens.forget(&token).await;
            answer = post(self.token().await?).await;
        }
        match answer {
            Err(Error::UnexpectedServerResponse(text))
                if had_session && text.starts_with("HTTP 400") && names_session(&text) =>
            {
                Err(Error::SessionExpired)
            }
            Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)) => {
                if had_session && is_session_lost(&error, request.as_ref()) {
                    return Err(Error::SessionExpired);
                }
                let error = answering(error, request);
                let error = ServerJsonRpcMessage::Error(error);
                Ok(StreamableHttpPostResponse::Json(error, session))
            }
            other => other,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let token = self.token().await?;
        let client = &self.client;
        client.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let token = self.token().await?;
        self.client.get_stream(uri, session, last_event, token, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let token = self.token().await?;
        self.client.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, most).await
    }
}

/// Whether the server no longer has the session, so that the request did not run. An error with the id of the request
/// may be the tool's own error: it must match the text of the transport's error.
fn is_session_lost(error: &JsonRpcError, request: Option<&RequestId>) -> bool {
    let text = &error.error.message;
    let names_request = error.id.is_some() && error.id.as_ref() == request;
    names_session(text) && (!names_request || text.starts_with("Bad Request: "))
}

fn names_session(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("session") || text.contains("server not initialized")
}

/// Turns an error into the response to the request for which it was returned. A server that could not parse the request
/// returns no id, and the request would remain without a response.
fn answering(error: JsonRpcError, request: Option<RequestId>) -> JsonRpcError {
    JsonRpcError::new(request.or(error.id), error.error)
}

/// A description of the error without the address and the server's response.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library may add kinds, and most have texts that are not shown")]
pub(super) fn failure(error: &Error) -> String {
    match error {
        Error::HttpStatus(answer) => format!("it returned HTTP {}", answer.status),
        Error::AuthRequired(error) => unauthorized(Some(&error.www_authenticate_header)),
        Error::InsufficientScope(_) => unauthorized(None),
        Error::SessionExpired | Error::ReinitializationFailed(_) => {
            "it lost the session and did not open a new one".to_owned()
        }
        _ => "the connection failed, or the response is too large".to_owned(),
    }
}

/// Why a request was not authorized, from the server's challenge.
pub(super) fn unauthorized(challenge: Option<&str>) -> String {
    match challenge {
        Some(NO_TOKEN) => "no access token is available".to_owned(),
        Some(_) | None => "it rejected the authorization".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ErrorCode, ErrorData};

    #[test]
    fn m13_a_lost_session_is_recognised_and_a_tools_own_error_is_not() {
        let table = [
            (None, "Bad Request: No valid session ID provided", true),
            (None, "Bad Request: Server not initialized", true),
            (None, "Session not found", true),
            (None, "Parse error", false),
            (Some(7), "Bad Request: No valid session ID provided", true),
            (Some(7), "the browser has no session 4", false),
            (Some(7), "no such city", false),
            (Some(3), "Session not found", true),
        ];
        let request = RequestId::Number(7);
        for (id, text, lost) in table {
            let error = ErrorData::new(ErrorCode(-32000), text, None);
            let error = JsonRpcError::new(id.map(RequestId::Number), error);
            assert_eq!(is_session_lost(&error, Some(&request)), lost, "{text}");
            assert_eq!(answering(error, Some(request.clone())).id, Some(request.clone()));
        }
    }
}

//! Ends calls at the caller's deadline with the status that `error.proto` promises. The framework would
//! return CANCELLED without details, and would let a stream that began in time continue. Work that has begun
//! continues: a turn belongs to the server, not to the call.

use std::time::Duration;

use http::{HeaderMap, Request};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::body::Body;

use super::{
    early_end_body::EarlyEndBody,
    middleware::{Answer, Middleware, Next},
    status,
};

/// The header with the caller's timeout.
const HEADER: &str = "grpc-timeout";
/// Maximum number of digits in that header, by the gRPC protocol.
const MAX_TIMEOUT_DIGITS: usize = 8;

/// Ends calls at their deadline.
#[derive(Debug, Clone, Copy)]
pub struct Deadline;

impl<Q> Middleware<Q> for Deadline {
    fn handle<N: Next<Q>>(&self, mut request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        let Some(patience) = parse_timeout(request.headers()) else {
            return Box::pin(next.call(request));
        };
        // The framework sets its own timer after this one, so this one fires first.
        let deadline = Instant::now() + patience;
        request.extensions_mut().insert(CallDeadline(deadline));
        let answer = next.call(request);
        Box::pin(async move {
            match timeout_at(deadline, answer).await {
                Ok(answer) => Ok(answer?.map(|inner| {
                    Body::new(EarlyEndBody::new(inner, async move {
                        sleep_until(deadline).await;
                        status::deadline_exceeded()
                    }))
                })),
                Err(_) => Ok(status::deadline_exceeded().into_http()),
            }
        })
    }
}

/// The deadline of a call. Travels in the request's extensions.
#[derive(Debug, Clone, Copy)]
struct CallDeadline(Instant);

/// The deadline of the call. Returns `None` if the caller set none.
pub(super) fn of<T>(request: &tonic::Request<T>) -> Option<std::time::Instant> {
    let CallDeadline(deadline) = request.extensions().get()?;
    Some(deadline.into_std())
}

/// The caller's timeout. Returns `None` if it is missing or malformed; the framework ignores a malformed one
/// too.
fn parse_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > MAX_TIMEOUT_DIGITS || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use http::Response;
    use http_body::Frame;
    use http_body_util::BodyExt as _;
    use prost::bytes::Bytes;
    use tokio_stream::StreamExt as _;
    use tonic::{Code, Status};
    use tonic_types::StatusExt as _;
    use tower::{Layer as _, ServiceExt as _, service_fn};

    use super::*;
    use crate::grpc::middleware::With;

    fn asked(timeout: &str) -> Request<()> {
        Request::builder().header(HEADER, timeout).body(()).unwrap()
    }

    fn check_refused(headers: &HeaderMap) {
        let status = Status::from_header_map(headers).unwrap();
        let details = status.get_error_details();
        assert_eq!(
            (status.code(), details.error_info().unwrap().reason.as_str()),
            (Code::DeadlineExceeded, "DEADLINE_EXCEEDED")
        );
    }

    #[tokio::test]
    async fn a_unary_call_past_its_deadline_gets_the_documented_status() {
        let silent = service_fn(|_: Request<()>| pending::<Result<Response<Body>, Infallible>>());
        let begun = Instant::now();
        let response = With(Deadline).layer(silent).oneshot(asked("20m")).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20));
        check_refused(response.headers());
    }

    #[tokio::test]
    async fn a_stream_past_its_deadline_ends_with_the_documented_status() {
        let pieces = || tokio_stream::iter([Ok::<_, Status>(Frame::data(Bytes::from_static(b"piece")))]);
        let answering = service_fn(move |_: Request<()>| async move {
            let stream = pieces().chain(tokio_stream::pending());
            Ok::<_, Infallible>(Response::new(Body::new(http_body_util::StreamBody::new(stream))))
        });
        let begun = Instant::now();
        let response = With(Deadline).layer(answering).oneshot(asked("20m")).await.unwrap();
        assert!(Status::from_header_map(response.headers()).is_none());
        let mut body = response.into_body();
        assert!(body.frame().await.unwrap().unwrap().is_data());
        let end = body.frame().await.expect("it ended without a status").unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20));
        check_refused(&end.into_trailers().expect("more of the stream"));
        assert!(body.frame().await.is_none());
    }

    #[test]
    fn deadlines_are_read_in_every_unit_of_the_protocol() {
        let check = |header: &str, expected: Option<Duration>| {
            assert_eq!(parse_timeout(asked(header).headers()), expected, "{header:?}");
        };
        check("2H", Some(Duration::from_secs(7200)));
        check("3M", Some(Duration::from_secs(180)));
        check("4S", Some(Duration::from_secs(4)));
        check("5m", Some(Duration::from_millis(5)));
        check("6u", Some(Duration::from_micros(6)));
        check("7n", Some(Duration::from_nanos(7)));
        check("99999999H", Some(Duration::from_secs(99_999_999 * 3600)));
        for malformed in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "100000000n", "1 S"] {
            check(malformed, None);
        }
        assert_eq!(parse_timeout(&HeaderMap::new()), None);
    }
}

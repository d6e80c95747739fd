//! Reads from an error response how long to wait and whether a retry is allowed. Only errors are
//! read: some services send `retry-after` with successful responses too.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use regex::Regex;

use super::reported_error::ReportedError;

/// A duration: a number and its unit.
const SPAN: &str = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)";

/// The limits in the headers of OpenAI and of services that copy it.
const OPENAI_LIMITS: [&str; 2] = ["requests", "tokens"];

/// The limits in the headers of Anthropic.
const ANTHROPIC_LIMITS: [&str; 4] = ["requests", "tokens", "input-tokens", "output-tokens"];

/// The wait that the headers specify, or else the body. If neither does and a rate limit was
/// exceeded, the time until the exhausted limit is reset.
pub fn requested_delay(status: StatusCode, headers: &HeaderMap, said: &ReportedError) -> Option<Duration> {
    let text = |name: &str| text(headers, name);
    let milliseconds = || Duration::try_from_secs_f64(text("retry-after-ms")?.parse::<f64>().ok()? / 1000.0).ok();
    let seconds = || Duration::try_from_secs_f64(text(header::RETRY_AFTER.as_str())?.parse().ok()?).ok();
    let date = || text(header::DATE.as_str());
    let until = || from_date(text(header::RETRY_AFTER.as_str())?, date()?);
    milliseconds()
        .or_else(seconds)
        .or_else(until)
        .or(said.retry_after)
        .or_else(|| delay_in_message(&said.message))
        .or_else(|| {
            let is_over = status == StatusCode::TOO_MANY_REQUESTS;
            is_over.then(|| until_reset(headers)).flatten()
        })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.trim())
}

/// The time until all exhausted limits are reset.
fn until_reset(headers: &HeaderMap) -> Option<Duration> {
    let openai = OPENAI_LIMITS.map(|limit| {
        let field = |field| format!("x-ratelimit-{field}-{limit}");
        (field("remaining"), field("reset"))
    });
    let anthropic = ANTHROPIC_LIMITS.map(|limit| {
        let field = |field| format!("anthropic-ratelimit-{limit}-{field}");
        (field("remaining"), field("reset"))
    });
    let now = text(headers, header::DATE.as_str());
    let wait = |(remaining, reset): (String, String)| {
        let remaining: f64 = text(headers, &remaining)?.parse().ok()?;
        let reset = text(headers, &reset).filter(|_| remaining <= 0.0)?;
        spans(reset).or_else(|| from_timestamp(reset, now?))
    };
    openai.into_iter().chain(anthropic).filter_map(wait).max()
}

/// Whether the service states that a retry is useful.
pub fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-should-retry")?.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// The time until an HTTP date, relative to the response's own date, so that it does not depend on
/// the local clock.
fn from_date(until: &str, now: &str) -> Option<Duration> {
    let until = httpdate::parse_http_date(until).ok()?;
    let now = httpdate::parse_http_date(now).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

/// The time until an RFC 3339 timestamp, also relative to the response's date.
fn from_timestamp(until: &str, now: &str) -> Option<Duration> {
    let until: Timestamp = until.parse().ok()?;
    let now = httpdate::parse_http_date(now).ok()?;
    let left = SystemTime::from(until).duration_since(now);
    Some(left.unwrap_or_default())
}

/// Parses "Please try again in 7m12.48s" or "Please retry after 26 seconds", as OpenAI, Azure and
/// services that copy them write it.
pub(super) fn delay_in_message(message: &str) -> Option<Duration> {
    static WORDS: LazyLock<Regex> =
        LazyLock::new(|| compiled(&format!(r"(?i)\b(?:try again|retry) (?:in|after)\s*((?:{SPAN}[\s,]*)+)(?:\W|$)")));
    sum(WORDS.captures(message)?.get(1)?.as_str())
}

/// Parses durations such as "6m0s" or "120ms" without other text.
fn spans(text: &str) -> Option<Duration> {
    static WHOLE: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"(?i)^(?:{SPAN}\s*)+$")));
    WHOLE.is_match(text).then(|| sum(text)).flatten()
}

/// The sum of the durations in a text.
fn sum(spans: &str) -> Option<Duration> {
    static SPANS: LazyLock<Regex> = LazyLock::new(|| compiled(&format!("(?i){SPAN}")));
    let seconds = |found: regex::Captures<'_>| {
        let number: f64 = found[1].parse().ok()?;
        let unit = found[2].to_ascii_lowercase();
        Some(
            number
                * match unit.as_bytes() {
                    [b'm', b's', ..] | [b'm', b'i', b'l', ..] => 0.001,
                    [b's', ..] => 1.0,
                    [b'm', ..] => 60.0,
                    [b'h', ..] => 3_600.0,
                    _ => 86_400.0,
                },
        )
    };
    let total: Option<f64> = SPANS.captures_iter(spans).map(seconds).sum();
    Duration::try_from_secs_f64(total?).ok()
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant, and tested")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Headers = [(&'static str, &'static str)];

    const OVER: StatusCode = StatusCode::TOO_MANY_REQUESTS;

    fn check(headers: &Headers, message: &str, expected: Option<u64>) {
        assert_eq!(wait(OVER, headers, message), expected.map(Duration::from_millis), "{headers:?} {message:?}");
    }

    fn wait(status: StatusCode, headers: &Headers, message: &str) -> Option<Duration> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a header value")))
            .collect();
        let said = ReportedError { message: message.to_owned(), ..ReportedError::default() };
        requested_delay(status, &headers, &said)
    }

    #[test]
    fn retry_delay_is_read_from_headers_or_the_message() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let table: [(&Headers, &str, Option<u64>); 23] = [
            (&[], "", None),
            (&[("retry-after", "2")], "", Some(2_000)),
            (&[("retry-after", "0.25")], "", Some(250)),
            (&[("retry-after-ms", "1500"), ("retry-after", "9")], "", Some(1_500)),
            (&[("retry-after", "-1")], "", None),
            (&[("retry-after", "soon")], "", None),
            (&[("retry-after", "NaN")], "", None),
            (&[("retry-after", "1e300")], "", None),
            (&[date, ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], "", Some(30_000)),
            (&[date, ("retry-after", "Sunday, 06-Nov-94 08:49:38 GMT")], "", Some(1_000)),
            (&[date, ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], "", Some(0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], "", None),
            (&[], "Rate limit reached. Please try again in 1.2s. Visit", Some(1_200)),
            (&[], "Please try again in 20ms.", Some(20)),
            (&[], "Please try again in 7m12.48s.", Some(432_480)),
            (&[], "Try again in a few minutes", None),
            (
                &[],
                "have exceeded token rate limit of your pricing tier. Please retry after 26 seconds. Please go",
                Some(26_000),
            ),
            (&[], "Please retry after 1 second.", Some(1_000)),
            (&[], "Try again in 1h2m3s", Some(3_723_000)),
            (&[], "Please try again in 2 minutes", Some(120_000)),
            (&[], "retry after 1 hour, 30 minutes", Some(5_400_000)),
            (&[], "retry after 5 miles", None),
            (&[], "retry after 2099 requests", None),
        ];
        for (headers, message, expected) in table {
            check(headers, message, expected);
        }
    }

    #[test]
    fn retry_delay_is_the_reset_of_the_limit_that_is_used_up() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let left = ("x-ratelimit-remaining-requests", "59");
        let none = ("x-ratelimit-remaining-tokens", "0");
        let reset = |value| ("x-ratelimit-reset-tokens", value);
        let input = ("anthropic-ratelimit-input-tokens-remaining", "0");
        let until = |value| ("anthropic-ratelimit-input-tokens-reset", value);
        let requests = ("x-ratelimit-reset-requests", "1h");
        let table: [(&Headers, Option<u64>); 12] = [
            (&[none, reset("6m0s")], Some(360_000)),
            (&[none, reset("120ms")], Some(120)),
            (&[none, reset("1s"), left, requests], Some(1_000)),
            (&[none, reset("1s"), (left.0, "0"), requests], Some(3_600_000)),
            (&[("x-ratelimit-remaining-tokens", "1"), reset("1s")], None),
            (&[reset("1s")], None),
            (&[none, reset("soon, in 1s")], None),
            (&[none, reset("1s"), ("retry-after", "2")], Some(2_000)),
            (&[date, input, until("1994-11-06T08:50:07Z")], Some(30_000)),
            (&[date, input, until("1994-11-06T08:00:00Z")], Some(0)),
            (&[input, until("1994-11-06T08:50:07Z")], None),
            (&[date, input, until("at noon")], None),
        ];
        for (headers, expected) in table {
            check(headers, "", expected);
        }
        let headers = [none, reset("6m0s")];
        assert_eq!(wait(StatusCode::BAD_GATEWAY, &headers, ""), None);
        let words = wait(OVER, &headers, "Please try again in 20ms.");
        assert_eq!(words, Some(Duration::from_millis(20)));
    }

    #[test]
    fn retry_delay_of_the_body_is_used_without_headers() {
        let said = ReportedError { retry_after: Some(Duration::from_secs(34)), ..ReportedError::default() };
        assert_eq!(requested_delay(OVER, &HeaderMap::new(), &said), Some(Duration::from_secs(34)));
    }
}

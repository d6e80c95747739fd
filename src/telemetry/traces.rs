//! Trace contexts and spans. The current trace travels with the task. A turn's trace is stored with the turn, so that a
//! replica that takes the turn over continues its trace. Without a collector no spans are made, and the caller's trace
//! context is passed on unchanged.

use std::{borrow::Cow, fmt, future::Future, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{
        SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceState, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::{
    propagation::{BaggagePropagator, TraceContextPropagator},
    trace::{IdGenerator as _, RandomIdGenerator, SdkTracer, SdkTracerProvider},
};

use super::names::{self, attribute};
use crate::config::TracesConfig;

/// The W3C header with the trace id and the span id.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The `tracestate` entry of a trace that exists only to put ids in the log.
const LOG_ONLY_ENTRY: (&str, &str) = ("contextd", "log");
/// Maximum length of a `traceparent`, `tracestate` or `baggage` value in characters; a longer one is dropped.
const MAX_HEADER_CHARS: usize = 1024;

tokio::task_local! {
    static CURRENT: Trace;
}

/// Creates the spans of one replica.
#[derive(Clone, Default)]
pub struct Traces {
    tracer: Option<Arc<SdkTracer>>,
    sends: SentHeaders,
}

/// Which headers are sent to model providers.
#[derive(Debug, Clone, Copy, Default)]
struct SentHeaders {
    traceparent: bool,
    baggage: bool,
}

/// A position in a trace: the context in which spans are created.
#[derive(Clone, Default)]
pub struct Trace {
    traces: Traces,
    context: Context,
}

/// A span. It ends when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct Span {
    trace: Trace,
    /// Whether this created a span. If not, `trace` is the parent's.
    own: bool,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.ids();
        f.debug_tuple("Trace").field(&ids).finish()
    }
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Handles a call.
    Server,
    /// Makes a call.
    Client,
    /// Neither handles nor makes a call.
    Internal,
}

impl Traces {
    pub(super) fn new(provider: Option<&SdkTracerProvider>, config: &TracesConfig) -> Self {
        let tracer = |provider: &SdkTracerProvider| {
            let scope = opentelemetry::InstrumentationScope::builder(names::SCOPE)
                .with_version(env!("CARGO_PKG_VERSION"))
                .with_schema_url(names::SCHEMA_URL)
                .build();
            Arc::new(provider.tracer_with_scope(scope))
        };
        Self {
            tracer: provider.map(tracer),
            sends: SentHeaders { traceparent: config.send_to_providers, baggage: config.send_baggage_to_providers },
        }
    }

    /// The trace of a request, from its headers. Malformed headers are ignored. If nothing is exported and the caller
    /// has no trace, ids are generated for the log only.
    pub fn of_caller(&self, headers: &HeaderMap) -> Trace {
        let mut passed = HeaderMap::new();
        for name in ["traceparent", "tracestate", "baggage"] {
            let value = headers.get(name);
            if let Some(value) = value.filter(|value| value.len() <= MAX_HEADER_CHARS) {
                passed.insert(name, value.clone());
            }
        }
        let trace = self.extracted(&passed);
        if self.tracer.is_none() && trace.ids().is_none() {
            return self.log_only_trace(&trace.context);
        }
        trace
    }

    fn log_only_trace(&self, context: &Context) -> Trace {
        let ids = RandomIdGenerator::default();
        let made = SpanContext::new(
            ids.new_trace_id(),
            ids.new_span_id(),
            TraceFlags::NOT_SAMPLED,
            false,
            TraceState::from_key_value([LOG_ONLY_ENTRY]).unwrap_or_default(),
        );
        Trace { traces: self.clone(), context: context.with_remote_span_context(made) }
    }

    /// The trace of a turn, from the text stored with it.
    pub fn of_stored(&self, stored: Option<&str>) -> Trace {
        let mut headers = HeaderMap::new();
        for (name, line) in
            ["traceparent", "tracestate", "baggage"].into_iter().zip(stored.unwrap_or_default().split('\n'))
        {
            if let Ok(value) = HeaderValue::from_str(line)
                && !line.is_empty()
            {
                headers.insert(name, value);
            }
        }
        self.extracted(&headers)
    }

    fn extracted(&self, headers: &HeaderMap) -> Trace {
        let headers = HeaderExtractor(headers);
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
        let context = BaggagePropagator::new().extract_with_context(&context, &headers);
        let trace = Trace { traces: self.clone(), context };
        if self.tracer.is_some() && trace.is_log_only() {
            // The trace was started by a replica that exports nothing, so it cannot be the parent of an exported span.
            return Trace { traces: self.clone(), context: Context::new() };
        }
        trace
    }
}

impl Trace {
    /// The trace of the current task.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs a future with this as the current trace.
    pub fn scope<F: Future>(self, doing: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, doing)
    }

    /// Starts a span. Its name and attributes should follow the conventions in `names`.
    pub fn span(&self, name: impl Into<Cow<'static, str>>, role: Role, attributes: Vec<KeyValue>) -> Span {
        self.span_since(name, role, attributes, Duration::ZERO)
    }

    /// Starts a span whose start time is `ago` in the past.
    pub fn span_since(
        &self,
        name: impl Into<Cow<'static, str>>,
        role: Role,
        attributes: Vec<KeyValue>,
        ago: Duration,
    ) -> Span {
        let Some(tracer) = &self.traces.tracer else {
            return Span { trace: self.clone(), own: false };
        };
        let kind = match role {
            Role::Server => SpanKind::Server,
            Role::Client => SpanKind::Client,
            Role::Internal => SpanKind::Internal,
        };
        let mut builder = tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        if !ago.is_zero() {
            builder = builder.with_start_time(opentelemetry::time::now() - ago);
        }
        let span = tracer.build_with_context(builder, &self.context);
        Span { trace: Self { traces: self.traces.clone(), context: self.context.with_span(span) }, own: true }
    }

    /// Whether spans created here are exported.
    pub fn is_recorded(&self) -> bool {
        self.traces.tracer.is_some() && self.context.span().span_context().is_sampled()
    }

    /// The trace id and span id, as logs show them. Returns `None` outside of a trace.
    pub fn ids(&self) -> Option<(String, String)> {
        let span = self.context.span();
        let context = span.span_context();
        context.is_valid().then(|| (context.trace_id().to_string(), context.span_id().to_string()))
    }

    /// The text that is stored with a turn. Returns `None` outside of a trace.
    pub fn stored(&self) -> Option<String> {
        let headers = self.headers(SentHeaders { traceparent: true, baggage: self.traces.sends.baggage });
        let line = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default()
        };
        headers.contains_key(TRACEPARENT).then(|| {
            let lines = ["traceparent", "tracestate", "baggage"].map(line);
            lines.join("\n").trim_end().to_owned()
        })
    }

    /// Whether the trace exists only for the log: no other service has seen its ids.
    fn is_log_only(&self) -> bool {
        let (key, value) = LOG_ONLY_ENTRY;
        let span = self.context.span();
        span.span_context().trace_state().get(key) == Some(value)
    }

    /// The trace headers for a request to a model provider, as far as the configuration allows.
    pub fn provider_headers(&self) -> HeaderMap {
        let SentHeaders { traceparent, baggage } = self.traces.sends;
        self.headers(SentHeaders {
            // A log-only trace is not sampled; sending it would stop the provider from recording its own spans.
            traceparent: traceparent && !self.is_log_only(),
            baggage,
        })
    }

    /// The header that reports the trace of a request to its caller. Returns `None` if the caller has no trace to join.
    pub fn traceparent(&self) -> Option<(HeaderName, HeaderValue)> {
        if self.is_log_only() {
            return None;
        }
        let traceparent = self.headers(SentHeaders { traceparent: true, baggage: false });
        let value = traceparent.get(TRACEPARENT)?;
        Some((TRACEPARENT, value.clone()))
    }

    fn headers(&self, sends: SentHeaders) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut injector = HeaderInjector(&mut headers);
        if sends.traceparent {
            TraceContextPropagator::new().inject_context(&self.context, &mut injector);
        }
        if sends.baggage {
            BaggagePropagator::new().inject_context(&self.context, &mut injector);
        }
        let is_empty = |headers: &HeaderMap, name| headers.get(name).is_some_and(HeaderValue::is_empty);
        for name in ["tracestate", "baggage"] {
            if is_empty(&headers, name) {
                headers.remove(name);
            }
        }
        headers
    }
}

impl Span {
    /// The position of this span, for creating child spans.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Sets attributes.
    pub fn set(&self, attributes: impl IntoIterator<Item = KeyValue>) {
        if self.own {
            self.trace.context.span().set_attributes(attributes);
        }
    }

    /// Marks the span as failed with an error type, one of few values.
    pub fn fail(&self, error: &'static str) {
        if self.own {
            let span = self.trace.context.span();
            span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, error));
            span.set_status(Status::error(""));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.own {
            self.trace.context.span().end();
        }
    }
}

//! Spans, and where in a trace something happens. That travels with the task; a turn's is stored with it, so
//! that whoever goes on with the turn goes on with its trace. Without a collector there are no spans,
//! and the context of a caller is passed on as it came.

use std::{borrow::Cow, fmt, future::Future, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{
        SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceState, Tracer as _,
        TracerProvider as _,
    },
};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::{
    propagation::{BaggagePropagator, TraceContextPropagator},
    trace::{IdGenerator as _, RandomIdGenerator, SdkTracer, SdkTracerProvider},
};

use super::names::{self, attribute};
use crate::config::TracesConfig;

/// The W3C header that names the trace and the span.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What the `tracestate` of a trace holds that is there for the log alone.
const FOR_THE_LOG: (&str, &str) = ("contextd", "log");
/// Characters of a `tracestate` or `baggage` that is passed on; a longer one is left out.
const MOST_PASSED_ON: usize = 1024;

tokio::task_local! {
    static CURRENT: Trace;
}

/// Makes the spans of one replica.
#[derive(Clone, Default)]
pub struct Traces {
    tracer: Option<Arc<SdkTracer>>,
    sends: Sends,
}

/// What services that models are called at are sent.
#[derive(Debug, Clone, Copy, Default)]
struct Sends {
    traceparent: bool,
    baggage: bool,
}

/// Where in a trace something happens.
#[derive(Clone, Default)]
pub struct Trace {
    traces: Traces,
    context: Context,
}

/// Something that takes time. It ends when this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Span {
    trace: Trace,
    /// There is a span of its own in the trace.
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

/// What a span is, among those that call each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It answers a call.
    Server,
    /// It calls.
    Client,
    /// Neither.
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
            sends: Sends {
                traceparent: config.send_to_providers,
                baggage: config.send_baggage_to_providers,
            },
        }
    }

    /// Where a caller is, by the headers of its request. What is malformed is ignored. Where nothing is
    /// exported and the caller is in no trace, there are ids all the same: for the log alone.
    pub fn of_caller(&self, headers: &HeaderMap) -> Trace {
        let mut passed = HeaderMap::new();
        for name in ["traceparent", "tracestate", "baggage"] {
            let value = headers.get(name);
            if let Some(value) = value.filter(|value| value.len() <= MOST_PASSED_ON) {
                passed.insert(name, value.clone());
            }
        }
        let trace = self.extracted(&passed);
        if self.tracer.is_none() && trace.ids().is_none() {
            return self.for_the_log(&trace.context);
        }
        trace
    }

    fn for_the_log(&self, context: &Context) -> Trace {
        let ids = RandomIdGenerator::default();
        let made = SpanContext::new(
            ids.new_trace_id(),
            ids.new_span_id(),
            TraceFlags::NOT_SAMPLED,
            false,
            TraceState::from_key_value([FOR_THE_LOG]).unwrap_or_default(),
        );
        Trace {
            traces: self.clone(),
            context: context.with_remote_span_context(made),
        }
    }

    /// Where a turn is, by what was stored with it.
    pub fn of_stored(&self, stored: Option<&str>) -> Trace {
        let mut headers = HeaderMap::new();
        for (name, line) in ["traceparent", "tracestate", "baggage"]
            .into_iter()
            .zip(stored.unwrap_or_default().split('\n'))
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
        let trace = Trace {
            traces: self.clone(),
            context,
        };
        if self.tracer.is_some() && trace.is_for_the_log() {
            // Begun by a replica that exports nothing: no parent of what is exported here.
            return Trace {
                traces: self.clone(),
                context: Context::new(),
            };
        }
        trace
    }
}

impl Trace {
    /// Where this task is.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Does something here.
    pub async fn scope<F: Future>(self, doing: F) -> F::Output {
        CURRENT.scope(self, doing).await
    }

    /// Something that happens here, with its name and attributes of the conventions.
    pub fn span(
        &self,
        name: impl Into<Cow<'static, str>>,
        role: Role,
        attributes: Vec<KeyValue>,
    ) -> Span {
        self.span_since(name, role, attributes, Duration::ZERO)
    }

    /// The same, that began so long ago.
    pub fn span_since(
        &self,
        name: impl Into<Cow<'static, str>>,
        role: Role,
        attributes: Vec<KeyValue>,
        ago: Duration,
    ) -> Span {
        let Some(tracer) = &self.traces.tracer else {
            return Span {
                trace: self.clone(),
                own: false,
            };
        };
        let kind = match role {
            Role::Server => SpanKind::Server,
            Role::Client => SpanKind::Client,
            Role::Internal => SpanKind::Internal,
        };
        let mut builder = tracer
            .span_builder(name)
            .with_kind(kind)
            .with_attributes(attributes);
        if !ago.is_zero() {
            builder = builder.with_start_time(opentelemetry::time::now() - ago);
        }
        let span = tracer.build_with_context(builder, &self.context);
        Span {
            trace: Self {
                traces: self.traces.clone(),
                context: self.context.with_span(span),
            },
            own: true,
        }
    }

    /// Whether spans made here are exported.
    pub fn is_recorded(&self) -> bool {
        self.traces.tracer.is_some() && self.context.span().span_context().is_sampled()
    }

    /// The ids of the trace and the span, as logs show them. `None` outside of every trace.
    pub fn ids(&self) -> Option<(String, String)> {
        let span = self.context.span();
        let context = span.span_context();
        context.is_valid().then(|| {
            (
                context.trace_id().to_string(),
                context.span_id().to_string(),
            )
        })
    }

    /// What is stored with a turn. `None` outside of every trace.
    pub fn stored(&self) -> Option<String> {
        let headers = self.headers(Sends {
            traceparent: true,
            baggage: self.traces.sends.baggage,
        });
        let line = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default()
        };
        headers.contains_key(TRACEPARENT).then(|| {
            let lines = ["traceparent", "tracestate", "baggage"].map(line);
            lines.join("\n").trim_end().to_owned()
        })
    }

    /// Whether it has ids that nobody else knows.
    fn is_for_the_log(&self) -> bool {
        let (key, value) = FOR_THE_LOG;
        let span = self.context.span();
        span.span_context().trace_state().get(key) == Some(value)
    }

    /// The headers that tell a model's service where it is called from, as far as it may know.
    pub fn provider_headers(&self) -> HeaderMap {
        let Sends {
            traceparent,
            baggage,
        } = self.traces.sends;
        self.headers(Sends {
            // It says "not sampled", which would keep the service from recording its part.
            traceparent: traceparent && !self.is_for_the_log(),
            baggage,
        })
    }

    /// The header that tells a caller where its request was answered; `None` where there is no trace
    /// that it could join.
    pub fn traceparent(&self) -> Option<(HeaderName, HeaderValue)> {
        if self.is_for_the_log() {
            return None;
        }
        let traceparent = self.headers(Sends {
            traceparent: true,
            baggage: false,
        });
        let value = traceparent.get(TRACEPARENT)?;
        Some((TRACEPARENT, value.clone()))
    }

    fn headers(&self, sends: Sends) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut injector = HeaderInjector(&mut headers);
        if sends.traceparent {
            TraceContextPropagator::new().inject_context(&self.context, &mut injector);
        }
        if sends.baggage {
            BaggagePropagator::new().inject_context(&self.context, &mut injector);
        }
        let is_empty =
            |headers: &HeaderMap, name| headers.get(name).is_some_and(HeaderValue::is_empty);
        for name in ["tracestate", "baggage"] {
            if is_empty(&headers, name) {
                headers.remove(name);
            }
        }
        headers
    }
}

impl Span {
    /// Where it is: what happens in it happens there.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Adds attributes.
    pub fn set(&self, attributes: impl IntoIterator<Item = KeyValue>) {
        if self.own {
            self.trace.context.span().set_attributes(attributes);
        }
    }

    /// It went wrong, in one of few ways.
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

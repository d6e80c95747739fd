//! Log formats that add the ids of the current trace to each line.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Json, Writer},
    },
    registry::LookupSpan,
};

use super::Trace;

/// The name of the field, also used by lines that set it themselves.
const TRACE_ID: &str = "trace_id";

/// Adds `trace_id` and `span_id` to lines written within a trace.
#[derive(Debug)]
pub(super) struct Traced<F>(pub(super) F);

/// Appends the ids to a formatted line.
pub(super) trait Append {
    fn append(line: &mut String, trace: &str, span: &str);
}

impl<T> Append for Format<Full, T> {
    fn append(line: &mut String, trace: &str, span: &str) {
        line.push_str(&format!(" trace_id={trace} span_id={span}"));
    }
}

impl<T> Append for Format<Json, T> {
    fn append(line: &mut String, trace: &str, span: &str) {
        if line.pop() == Some('}') {
            line.push_str(&format!(r#","trace_id":"{trace}","span_id":"{span}"}}"#));
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Traced<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N> + Append,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let brings_its_own = event.metadata().fields().field(TRACE_ID).is_some();
        let ids = if brings_its_own { None } else { Trace::current().ids() };
        let Some((trace, span)) = ids else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        line.truncate(line.trim_end().len());
        F::append(&mut line, &trace, &span);
        writeln!(writer, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing::Dispatch;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::telemetry::Traces;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Logs one line within a trace and one outside of it, and returns both.
    async fn logged(subscriber: impl FnOnce(Lines) -> Dispatch) -> Vec<String> {
        let lines = Lines::default();
        let dispatch = subscriber(lines.clone());
        // With a single subscriber in the process, threads of other tests may cause log callsites to be disabled.
        let _second = Dispatch::new(tracing_subscriber::registry());
        let _guard = tracing::dispatcher::set_default(&dispatch);
        let mut headers = http::HeaderMap::new();
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        headers.insert("traceparent", parent.parse().unwrap());
        let trace = Traces::default().of_caller(&headers);
        trace.scope(async { tracing::warn!(number = 1, "within") }).await;
        tracing::warn!("outside");
        let bytes = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn a_json_line_within_a_trace_names_it() {
        let lines = logged(|lines| {
            let layer = tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .map_event_format(Traced)
                .with_writer(move || lines.clone());
            Dispatch::new(tracing_subscriber::registry().with(layer))
        })
        .await;
        let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let [within, outside] = [read(&lines[0]), read(&lines[1])];
        assert_eq!((&within["trace_id"], &within["number"]), (&TRACE.into(), &1.into()));
        assert_eq!(outside.get("trace_id"), None);
    }

    #[tokio::test]
    async fn a_line_of_text_within_a_trace_names_it() {
        let lines = logged(|lines| {
            let layer = tracing_subscriber::fmt::layer().map_event_format(Traced).with_writer(move || lines.clone());
            Dispatch::new(tracing_subscriber::registry().with(layer))
        })
        .await;
        let ids = format!(" trace_id={TRACE} span_id=b7ad6b7169203331");
        assert!(lines[0].ends_with(&ids), "{lines:?}");
        assert!(!lines[1].contains("trace_id"), "{lines:?}");
    }
}

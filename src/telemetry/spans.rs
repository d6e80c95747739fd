//! One method for each kind of span, which sets its name and attributes. Spans never contain message content; the only
//! ids are those of the session and the turn.

use std::time::Duration;

use opentelemetry::KeyValue;

use super::{
    label_values::{self, OTHER, ToolCallOutcome},
    metrics::ModelCall,
    names::{attribute, span},
    traces::{Role, Span, Trace},
};
use crate::model::{Compaction, Ending, FinishReason, SessionKey, TurnId, Usage, event::StepPosition};

/// The outcome of a model call.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseAttributes<'a> {
    /// Token usage, as the provider reports it.
    pub usage: Option<&'a Usage>,
    /// The model that the provider reports to have used; empty if unknown.
    pub model: &'a str,
    /// The provider's id of the response; empty if unknown.
    pub id: &'a str,
    pub finish: Option<FinishReason>,
    /// Time to the first chunk of the response.
    pub first: Option<Duration>,
    /// The error type; one of few values.
    pub error: Option<&'static str>,
}

impl Trace {
    /// A span for an RPC; `method` is `None` if it is not one of our RPCs.
    pub fn rpc(&self, method: Option<&'static str>) -> Span {
        let method = method.unwrap_or(OTHER);
        let attributes =
            vec![KeyValue::new(attribute::RPC_SYSTEM, "grpc"), KeyValue::new(attribute::RPC_METHOD, method)];
        self.span(method, Role::Server, attributes)
    }

    /// A span for a turn. It covers the time that the turn runs on one replica.
    pub fn turn(&self, key: &SessionKey, turn: &TurnId) -> Span {
        let attributes = vec![
            KeyValue::new(attribute::OPERATION, span::TURN),
            KeyValue::new(attribute::CONVERSATION, key.session.to_string()),
            KeyValue::new(attribute::TURN, turn.to_string()),
        ];
        self.span(span::TURN, Role::Internal, attributes)
    }

    /// A span for one attempt at a step.
    pub fn step(&self, at: StepPosition) -> Span {
        let attributes = vec![
            KeyValue::new(attribute::STEP, i64::from(at.step)),
            KeyValue::new(attribute::ATTEMPT, i64::from(at.attempt)),
        ];
        self.span(span::STEP, Role::Internal, attributes)
    }

    /// A span for a model call.
    pub fn model_call(&self, call: ModelCall<'_>) -> Span {
        let ModelCall { provider, model, purpose } = call;
        let attributes = vec![
            KeyValue::new(attribute::OPERATION, span::CHAT),
            KeyValue::new(attribute::PROVIDER, provider.to_owned()),
            KeyValue::new(attribute::MODEL, model.to_owned()),
            KeyValue::new(attribute::PURPOSE, label_values::purpose(purpose)),
        ];
        let name = format!("{} {model}", span::CHAT);
        self.span(name, Role::Client, attributes)
    }

    /// A span for a call of an MCP server's tool.
    pub fn tool_call(&self, server: &str, tool: &str) -> Span {
        let attributes = vec![
            KeyValue::new(attribute::OPERATION, span::EXECUTE_TOOL),
            KeyValue::new(attribute::TOOL, tool.to_owned()),
            KeyValue::new(attribute::MCP_SERVER, server.to_owned()),
        ];
        let name = format!("{} {tool}", span::EXECUTE_TOOL);
        self.span(name, Role::Internal, attributes)
    }

    /// A span for a compaction.
    pub fn compaction(&self, key: &SessionKey) -> Span {
        let session = KeyValue::new(attribute::CONVERSATION, key.session.to_string());
        self.span(span::COMPACTION, Role::Internal, vec![session])
    }

    /// A span for the processing of a queued message that this replica starts without a request.
    pub fn queue_start(&self) -> Span {
        self.span(span::QUEUE_START, Role::Internal, Vec::new())
    }

    /// A span that ends now, for the time spent waiting for tool results from the host.
    pub fn tools_waited(&self, waited: Duration) {
        drop(self.span_since(span::TOOL_WAIT, Role::Internal, Vec::new(), waited));
    }

    /// A span that ends now, for a database statement or transaction.
    pub fn database(&self, operation: &'static str, took: Duration, error: Option<&'static str>) {
        if !self.is_recorded() {
            return;
        }
        let attributes =
            vec![KeyValue::new(attribute::DB_SYSTEM, "postgresql"), KeyValue::new(attribute::DB_OPERATION, operation)];
        let span = self.span_since(operation, Role::Client, attributes, took);
        if let Some(error) = error {
            span.fail(error);
        }
    }
}

impl Span {
    /// Sets the status of an RPC. The span fails only if the error is the server's fault.
    pub fn answered(&self, code: &'static str, is_fault: bool) {
        self.set([KeyValue::new(attribute::RPC_STATUS, code)]);
        if is_fault {
            self.fail(code);
        }
    }

    /// Sets the state in which a turn ended on this replica.
    pub fn turn_ended(&self, ending: &Ending) {
        let (state, reason) = label_values::ending(ending);
        self.set([KeyValue::new(attribute::TURN_STATE, state), KeyValue::new(attribute::REASON, reason)]);
        match ending {
            Ending::Failed(_) => self.fail(reason),
            Ending::Completed(_) | Ending::Cancelled { .. } => {}
        }
    }

    /// Sets the outcome of a model call (feature row D23).
    pub fn model_answered(&self, answer: ResponseAttributes<'_>) {
        let ResponseAttributes { usage, model, id, finish, first, error } = answer;
        let texts = [(attribute::RESPONSE_MODEL, model), (attribute::RESPONSE_ID, id)];
        for (name, text) in texts {
            if !text.is_empty() {
                self.set([KeyValue::new(name, text.to_owned())]);
            }
        }
        if let Some(finish) = finish {
            let reasons = opentelemetry::Array::String(vec![label_values::finish(finish).into()]);
            let reasons = opentelemetry::Value::Array(reasons);
            self.set([KeyValue::new(attribute::FINISH_REASONS, reasons)]);
        }
        if let Some(first) = first {
            self.set([KeyValue::new(attribute::FIRST_CHUNK, first.as_secs_f64())]);
        }
        if let Some(usage) = usage {
            let Usage { input, output, reasoning, cache_read, cache_write, provider_tool_calls: _, provider_json: _ } =
                usage;
            let counts = [
                (attribute::INPUT_TOKENS, input),
                (attribute::OUTPUT_TOKENS, output),
                (attribute::REASONING_TOKENS, reasoning),
                (attribute::CACHE_READ_TOKENS, cache_read),
                (attribute::CACHE_WRITE_TOKENS, cache_write),
            ];
            self.set(counts.map(|(name, count)| KeyValue::new(name, i64::from(*count))));
        }
        if let Some(error) = error {
            self.fail(error);
        }
    }

    /// Sets the outcome of a tool call.
    pub fn tool_answered(&self, result: ToolCallOutcome) {
        let label = label_values::tool_result(result);
        self.set([KeyValue::new(attribute::RESULT, label)]);
        match result {
            ToolCallOutcome::Success => {}
            ToolCallOutcome::Error | ToolCallOutcome::Refused | ToolCallOutcome::NotRun | ToolCallOutcome::Unknown => {
                self.fail(label)
            }
        }
    }

    /// Sets the outcome of a compaction.
    pub fn compacted(&self, compaction: &Compaction) {
        let result = label_values::compaction(compaction.state);
        self.set([
            KeyValue::new(attribute::RESULT, result),
            KeyValue::new(attribute::TOKENS_BEFORE, i64::from(compaction.tokens_before.tokens)),
        ]);
        if let Some(after) = &compaction.tokens_after {
            self.set([KeyValue::new(attribute::TOKENS_AFTER, i64::from(after.tokens))]);
        }
    }
}

//! The tool calls of a model response: which are requested at once, which wait for earlier calls,
//! and which are closed without being run.

use std::time::Duration;

use crate::{
    context::{calls::check_executable, estimator::Estimator},
    model::{
        CallId, FinishReason, MessageId, Part, Payload, Role, Tool, ToolCall, ToolExecution, ToolSet,
        event::{CallCancelReason, StepPosition, WaitsFor},
        message::StoredPart,
    },
    session::{
        new_calls::{Batch, CallHandling, NewCall},
        rows::Rows,
    },
    turn::context::{
        measured::{new_message, stored},
        result_texts::not_run,
    },
};

/// How the calls of a response are requested.
pub(super) struct BatchBuilder<'a> {
    pub(super) tools: &'a ToolSet,
    /// In parallel, or one after the other.
    pub(super) execution: ToolExecution,
    /// How long a result or an approval is awaited, if the tool has no timeout.
    pub(super) timeout: Duration,
    /// The message that will contain the results.
    pub(super) results: MessageId,
    /// The turn's time has passed: no call is run.
    pub(super) over: bool,
    pub(super) at: StepPosition,
    /// The estimator for results of calls that are not run.
    pub(super) estimator: Estimator,
}

impl BatchBuilder<'_> {
    /// The batch of calls of a message with this finish reason, and the events that request them.
    /// Calls that cannot be run are closed with a result that contains the reason.
    pub(super) fn batch(self, message: &MessageId, parts: &[Part], finish: FinishReason, rows: &mut Rows) -> Batch {
        let mut out = RequestedCalls::default();
        let calls = parts.iter().enumerate().filter_map(|(position, part)| Some((position, part.content.as_call()?)));
        let calls = calls
            .enumerate()
            .map(|(ord, (part, call))| {
                let tool = self.tools.get(&call.name);
                let timeout = tool.and_then(|tool| tool.timeout).unwrap_or(self.timeout);
                let ended = if self.over { Err(CallCancelReason::TurnEnded) } else { Ok(()) };
                let runs = ended.and_then(|()| check_executable(finish, call, self.tools));
                let fate = match (runs, tool) {
                    (Ok(()), tool) => self.request_call(call, tool, timeout, &mut out, rows),
                    (Err(reason), _) => {
                        let id = call.id.clone();
                        let name = call.name.clone();
                        rows.event(
                            Payload::ToolCallCancelled { call: id.clone(), name: name.clone(), reason },
                            self.at,
                        );
                        out.closed.push((ord, stored(not_run(id, name, reason), Role::Tool, self.estimator)));
                        CallHandling::NotRun
                    }
                };
                NewCall {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    part,
                    handling: fate,
                    timeout,
                    executor: tool.map(Tool::executor).unwrap_or_default(),
                }
            })
            .collect();
        let results = self.results.clone();
        self.close_or_request(out, rows);
        Batch { message: message.clone(), results, calls }
    }

    /// Requests a call that can be run. With sequential execution, only the first call is
    /// requested; the others wait.
    fn request_call(
        &self,
        call: &ToolCall,
        tool: Option<&Tool>,
        timeout: Duration,
        out: &mut RequestedCalls,
        rows: &mut Rows,
    ) -> CallHandling {
        let (waits_for, request) = if tool.is_some_and(|tool| tool.requires_approval) {
            (WaitsFor::Approval, Payload::ApprovalRequested { call: call.clone(), timeout })
        } else {
            let request = Payload::ToolCallRequested {
                call: call.clone(),
                timeout,
                edited: false,
                executor: tool.map(Tool::executor).unwrap_or_default(),
            };
            (WaitsFor::Result { edited: false }, request)
        };
        if self.execution == ToolExecution::Sequential && out.has_requests() {
            return CallHandling::Later { waits_for, request: Box::new(request) };
        }
        rows.event(request, self.at);
        match waits_for {
            WaitsFor::Result { .. } => out.requested.push(call.id.clone()),
            WaitsFor::Approval => out.approvals.push(call.id.clone()),
        }
        CallHandling::Requested(waits_for)
    }

    /// If no call was requested, the batch is complete. Otherwise the results of closed calls wait
    /// for the others.
    fn close_or_request(self, out: RequestedCalls, rows: &mut Rows) {
        if !out.has_requests() {
            let parts = out.closed.into_iter().map(|(_, part)| part).collect();
            rows.message(new_message(self.results, Role::Tool, parts, None, self.estimator), self.at);
            return;
        }
        for (position, part) in out.closed {
            rows.early_part(&self.results, position, part);
        }
        rows.event(Payload::ActionRequired { results: out.requested, approvals: out.approvals }, self.at);
    }
}

/// The calls so far: requested, awaiting approval, and closed with a result.
#[derive(Default)]
struct RequestedCalls {
    requested: Vec<CallId>,
    approvals: Vec<CallId>,
    closed: Vec<(usize, StoredPart)>,
}

impl RequestedCalls {
    fn has_requests(&self) -> bool {
        !self.requested.is_empty() || !self.approvals.is_empty()
    }
}

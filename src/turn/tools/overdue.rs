//! Calls past their deadline: they are closed with an error result that the model reads.

use std::sync::Arc;

use crate::{
    model::{CallId, SessionKey, command::Idempotency},
    session::change::AnswerKind,
    store::tool_call::OpenCall,
    turn::{Error, context::result_texts::overdue, engine::Engine, tools::answers::AnsweredCalls},
};

impl Engine {
    /// Closes the calls whose deadline has passed, and all open calls of a turn that is in its
    /// grace period, with an error result. Returns `false` if there was none.
    pub(in crate::turn) async fn close_overdue(self: &Arc<Self>, key: &SessionKey) -> Result<bool, Error> {
        let open = self.store.open_calls(key).await?;
        let ids: Vec<CallId> = open.iter().map(|open| open.pending.call.id.clone()).collect();
        let known = self.store.calls(key, &ids).await?;
        let Some(call) = known.values().find(|call| call.state.is_open()) else {
            return Ok(false);
        };
        let turn = self.prompts.answered_turn(key, &call.turn).await?;
        let context = self.prompts.answer_context(key, &turn, call.step, call.batch).await?;
        let late: Vec<OpenCall> = open.into_iter().filter(|open| open.overdue || context.is_in_grace).collect();
        if late.is_empty() {
            return Ok(false);
        }
        let asked = AnsweredCalls { store: &self.store, key, known: &known, context: Some(context) };
        let ids: Vec<CallId> = late.iter().map(|open| open.pending.call.id.clone()).collect();
        let mut answers = Vec::with_capacity(late.len());
        for OpenCall { pending, .. } in late {
            answers.push(asked.prepare(overdue(&pending), AnswerKind::Overdue, None).await?);
        }
        let submitted = self.write(&asked, &answers, &[], &ids, &Idempotency::none()).await?;
        Ok(!submitted.accepted.is_empty())
    }
}

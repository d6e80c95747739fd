//! A consistent view of a session, from which its next prompt is built.

use crate::{
    context::{
        budget::Budget,
        compact::trigger,
        prune::{Pruning, choose, is_due},
        size::ContextSize,
    },
    model::{Category, Message, PrepareReport, SessionKey, command::TurnRequest, config::ContextPolicy},
    provider::registry::ResolvedModel,
    session::SessionState,
    store::{session::Session, version::Version},
    turn::{
        Error,
        context::{
            prompt_call::PromptCall,
            prune::report,
            size::{Excerpt, unsupported},
        },
        engine::Prompts,
        optimistic::retry_on_change,
    },
};

/// A consistent view of a session, from which its next prompt is built.
#[derive(Debug, Clone)]
pub(in crate::turn) struct SessionView {
    pub(in crate::turn) session: Session,
    /// Version of the transcript.
    pub(in crate::turn) version: Version,
    /// The settings of the live turn.
    pub(in crate::turn) request: TurnRequest,
    /// The live turn's time has passed: its last step has no tools.
    pub(in crate::turn) late: bool,
    /// The step that the prompt is for.
    pub(in crate::turn) step: u32,
    /// The transcript as the model sees it.
    pub(in crate::turn) messages: Vec<Message>,
}

impl SessionView {
    /// The model to call: the named one, the live turn's, or the session's.
    pub(in crate::turn) fn model<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        named.or(self.request.model.as_deref()).unwrap_or(&self.session.config.model)
    }

    /// The call that the prompt is for.
    pub(in crate::turn) fn call<'a>(&'a self, model: &'a ResolvedModel) -> PromptCall<'a> {
        PromptCall::new(&self.session.config, &self.request, self.step, self.late, model)
    }

    /// The size of the prompt.
    pub(in crate::turn) fn size(&self, model: &ResolvedModel) -> ContextSize<'_> {
        self.size_of(&self.call(model))
    }

    /// The size of the prompt of this call.
    pub(in crate::turn) fn size_of(&self, call: &PromptCall<'_>) -> ContextSize<'_> {
        call.size((&self.session).into(), &self.messages)
    }

    /// The prune that the policy requires, and the report of a preparation that does only that.
    /// Returns `None` if nothing is to be pruned, or the prune does not pay off.
    pub(in crate::turn) fn due(
        &self,
        policy: &ContextPolicy,
        model: &ResolvedModel,
        budget: Budget,
    ) -> Option<(Pruning, PrepareReport)> {
        let pruning = choose(&self.messages, &policy.prune)?;
        let size = self.size(model);
        let before = size.size();
        let at_most = before.at_most();
        let rebilled = pruning.rebilled(size.cached_tokens(), size.non_transcript_tokens());
        let compacts = || trigger::due(&policy.compaction, budget, at_most, model.provider.is_local()).is_some();
        let is_required = budget.overflows(at_most) || compacts();
        if !is_due(policy.prune.mode, &pruning, rebilled, model.info.cache_prices, is_required) {
            return None;
        }
        // The measured size does not apply to a pruned prompt.
        let left = size.with_rewritten_transcript(self.session.context_tokens - i64::from(pruning.saved));
        let left = left.without_unsupported(self.unsupported_without_results(model)).size().count;
        let report = PrepareReport {
            before: before.count,
            pruned: left.clone(),
            compacted: left,
            prune: Some(report(&pruning, rebilled)),
            compaction: None,
            applied: Vec::new(),
        };
        Some((pruning, report))
    }

    /// Tokens of the transcript that are not sent to the model, without tool results: pruned results
    /// lose their media too.
    fn unsupported_without_results(&self, model: &ResolvedModel) -> i64 {
        let unsupported = unsupported(model, &Excerpt::whole(&self.messages)).into_iter();
        unsupported
            .filter(|(category, _)| *category != Category::ToolResults)
            .map(|(_, tokens)| i64::from(tokens))
            .sum()
    }
}

impl Prompts {
    /// A consistent view of a session and its transcript. The version is read before and after the
    /// other reads and must be the same.
    pub(in crate::turn) async fn session_view(&self, key: &SessionKey) -> Result<SessionView, Error> {
        retry_on_change(|| self.try_session_view(key)).await
    }

    /// One attempt. Returns `None` if the session changed during the reads.
    async fn try_session_view(&self, key: &SessionKey) -> Result<Option<SessionView>, Error> {
        let not_found = || Error::SessionNotFound(key.session.clone());
        let version = async || {
            let tail = self.store.tail(key, None).await?;
            tail.map(|tail| tail.version).ok_or_else(not_found)
        };
        let before = version().await?;
        let session = self.store.session(key).await?.ok_or_else(not_found)?;
        let seen = self.store.transcript(key).await?;
        let (request, late, step) = match &session.current_turn {
            Some(turn) => match self.store.turn(key, turn).await? {
                Some(turn) => {
                    // While results are awaited, the next prompt is that of the next step.
                    let next = u32::from(session.state == SessionState::AwaitingTools);
                    let step = turn.so_far.step_count.max(1) + next;
                    (turn.request, turn.late, step)
                }
                None => return Ok(None),
            },
            None => (TurnRequest::default(), false, 1),
        };
        let view = SessionView { session, version: before, request, late, step, messages: seen.messages };
        Ok((version().await? == before).then_some(view))
    }
}

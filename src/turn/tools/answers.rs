//! Prepares the answers to tool calls: truncates results to the limits of their tool and to the room
//! in the context, and turns decisions into requests or denials.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    codec,
    context::{
        budget::Budget,
        estimator::Estimator,
        media,
        room::{fitting_limits, room_for_results, room_per_result},
        size::{ContextSize, clamp_tokens},
        template::ImageCost,
    },
    model::{
        CallId, Content, Limits, Media, OutputPart, Part, Payload, Role, SessionKey, ToolOutcome, ToolResult,
        command::{Decision, SubmittedResult, Verdict},
        config::Policy,
        derive,
        event::WaitsFor,
        media::Source,
    },
    provider::registry::ResolvedModel,
    session::{
        answers::{Approval, NextStep},
        change::{Answer, AnswerKind},
    },
    store::{
        Store,
        known_call::{Batch, StoredCall},
        tool_call::OpenCall,
    },
    turn::{
        Error,
        context::{
            estimators::estimator,
            measured::{count_without_blocking, counted},
            media::cannot_read,
            prompt_call::PromptCall,
            result_texts::{denial, edit_note},
            size::{Excerpt, PromptMessage, size_with},
            tool_output::{blobs_of, cut},
            window::budget,
        },
        engine::Prompts,
        opening::step_started,
        run::decide::after_step,
        tools::{answered_turn::AnsweredTurn, receipts::AnswerContent},
    },
};

/// The turn whose calls are answered, and its step after the last answer.
pub(super) struct AnswerContext<'a> {
    turn: &'a AnsweredTurn,
    /// The model that will read the results. `None` if it is no longer configured: the turn then
    /// fails once it has an owner.
    model: Option<ResolvedModel>,
    /// The estimator for the results.
    pub(super) estimator: Estimator,
    policy: Policy,
    /// The step after the last answer. `None` if the turn takes no further step.
    next: Option<FollowingStep<'a>>,
    /// Tokens that the results of the open calls may have in total.
    room: u32,
    /// The number of open calls.
    open: u32,
    /// The turn is in its grace period: it no longer waits for results.
    pub(super) is_in_grace: bool,
}

/// A step, and the size of its prompt without the new answers.
struct FollowingStep<'a> {
    budget: Option<Budget>,
    size: ContextSize<'a>,
    excerpt: Excerpt<'static>,
}

/// The calls that a submission answers.
pub(super) struct AnsweredCalls<'a> {
    pub(super) store: &'a Store,
    pub(super) key: &'a SessionKey,
    pub(super) known: &'a BTreeMap<CallId, StoredCall>,
    /// `None` if no call is open.
    pub(super) context: Option<AnswerContext<'a>>,
}

impl Prompts {
    /// Prepares for the answers to a step's calls, and the step that follows.
    pub(super) async fn answer_context<'a>(
        &self,
        key: &SessionKey,
        parties: &'a AnsweredTurn,
        step: u32,
        Batch { open, waiting }: Batch,
    ) -> Result<AnswerContext<'a>, Error> {
        let AnsweredTurn { request, elapsed, totals, basis, .. } = parties;
        // The results belong to a step with its own configuration; the next step uses the
        // configuration in force. If its model or policy was removed from the server's
        // configuration, the turn still gets its results, and its owner ends it.
        let policy = self.policy_or_default(parties.made_for())?;
        let config = parties.in_force();
        let Limits { turn_timeout, grace, .. } = self.limits(parties.made_for(), request);
        let model = self.model(request.model.as_ref().unwrap_or(&config.model));
        let mut context = AnswerContext {
            turn: parties,
            model: None,
            estimator: Estimator::Characters,
            policy,
            next: None,
            room: u32::MAX,
            open,
            is_in_grace: (turn_timeout..turn_timeout + grace).contains(elapsed),
        };
        let (Ok(model), Ok(in_force)) = (model, self.policy(config)) else {
            return Ok(context);
        };
        let limits = self.limits(config, request);
        let call = PromptCall::new(config, request, step + 1, false, &model);
        let size = call.size_of_all(basis.into());
        let excerpt = self.excerpt(key, &size, call.model, basis.model_dependent).await?;
        let stored = size_with(size, call.model, &excerpt, &[]).size();
        let budget = budget(&in_force.context, &model).ok();
        context.room = budget.map_or(u32::MAX, |budget| room_for_results(budget, stored.at_most(), waiting));
        let goes_on = after_step(step, totals, &limits).is_none();
        context.next = goes_on.then_some(FollowingStep { budget, size, excerpt });
        context.estimator = estimator(&model);
        context.model = Some(model);
        Ok(context)
    }
}

impl AnswerContext<'_> {
    /// Tokens of an answer as sent to the model.
    fn sent_tokens(&self, answer: &Answer) -> u32 {
        let Some(model) = &self.model else {
            return answer.tokens;
        };
        let sent = PromptMessage::of_answers(std::slice::from_ref(answer), 0).sent_tokens(model);
        clamp_tokens(sent)
    }
}

impl AnsweredCalls<'_> {
    /// The estimator for the results.
    pub(super) fn estimator(&self) -> Estimator {
        self.context.as_ref().map_or(Estimator::Characters, |context| context.estimator)
    }

    /// The turn's next step, if these are the last answers.
    pub(super) fn next(&self, answers: &[Answer]) -> NextStep {
        let Some(AnswerContext { turn, model, next, estimator, .. }) = &self.context else {
            return NextStep { started: None, size_offset: 0, revision: 0 };
        };
        let revision = turn.basis.revision.number;
        let (Some(model), Some(FollowingStep { budget, size, excerpt })) = (model, next) else {
            return NextStep { started: None, size_offset: 0, revision };
        };
        let results = PromptMessage::of_answers(answers, estimator.overhead(Role::Tool, []));
        let size = size_with(*size, model.into(), excerpt, &[results]);
        let started = step_started(model, revision, size.size().count, *budget);
        let started = Some(codec::event::encode(&started).payload);
        NextStep { started, size_offset: size.offset(), revision }
    }

    /// Prepares the results. Each gets an equal share of the room that is left for the open calls.
    /// Small results come first, and leave their unused share to the others.
    pub(super) async fn results(&self, results: Vec<SubmittedResult>) -> Result<Vec<Answer>, Error> {
        let context = self.context.as_ref();
        let mut room = context.map_or(u32::MAX, |context| context.room);
        let is_open = |call: &CallId| self.known.get(call).is_some_and(|it| it.state.is_open());
        let named: BTreeSet<&CallId> = results.iter().map(|result| &result.call).collect();
        let named = named.into_iter().filter(|call| is_open(call)).count();
        let open = context.map_or(0, |context| context.open);
        let others = open.saturating_sub(u32::try_from(named).unwrap_or(u32::MAX));
        let mut left = u32::try_from(results.len()).unwrap_or(u32::MAX);
        let bytes = |result: &SubmittedResult| {
            let texts = result.parts.iter().filter_map(OutputPart::text);
            texts.map(str::len).sum::<usize>()
        };
        let mut by_size: Vec<(usize, SubmittedResult)> = results.into_iter().enumerate().collect();
        by_size.sort_by_key(|(at, result)| (bytes(result), *at));
        let mut answers = Vec::with_capacity(by_size.len());
        for (at, result) in by_size {
            let edited = self.known.get(&result.call).is_some_and(|call| call.edited.is_some());
            let share = room_per_result(room, others.saturating_add(left));
            let answer = self.prepare(result, AnswerKind::Result { edited }, Some(share)).await?;
            let tokens = context.map_or(0, |context| context.sent_tokens(&answer));
            room = room.saturating_sub(tokens);
            left = left.saturating_sub(1);
            answers.push((at, answer));
        }
        answers.sort_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Prepares the decisions: the approvals, and the results of denied calls. Adds their contents
    /// to `sent`.
    pub(super) async fn decide(
        &self,
        decisions: Vec<Decision>,
        sent: &mut Vec<(CallId, AnswerContent)>,
    ) -> Result<(Vec<Approval>, Vec<Answer>), Error> {
        let mut approvals = Vec::new();
        let mut denials = Vec::new();
        if decisions.is_empty() {
            return Ok((approvals, denials));
        }
        let open = self.store.open_calls(self.key).await?;
        for Decision { call, verdict } in decisions {
            match verdict {
                Verdict::Approve { edited } => {
                    approvals.extend(approval(&open, &call, edited.clone()));
                    sent.push((call, AnswerContent::Approval(edited)));
                }
                Verdict::Deny { sanitized, reason } => {
                    let denial = SubmittedResult { sanitized, ..denial(call.clone(), reason) };
                    let answer = self.prepare(denial, AnswerKind::Denial, None).await?;
                    sent.push((call, AnswerContent::Denial(answer.hash.clone())));
                    denials.push(answer);
                }
            }
        }
        Ok((approvals, denials))
    }

    /// Prepares an answer. `room`: truncates it to the limits of the tool and to this many tokens,
    /// and stores the full output as a blob, if the call is open.
    pub(super) async fn prepare(
        &self,
        result: SubmittedResult,
        kind: AnswerKind,
        room: Option<u32>,
    ) -> Result<Answer, Error> {
        let SubmittedResult { call, parts, outcome, sanitized, display_text } = result;
        let estimator = self.estimator();
        let hash = fingerprint(&parts, outcome);
        let known = self.known.get(&call);
        let name = known.map(|call| call.name.clone()).unwrap_or_default();
        let mut result = ToolResult { call: call.clone(), name, parts, outcome, truncation: None, display_text };
        if let (Some(AnswerContext { turn, model, policy, .. }), Some(room)) = (&self.context, room) {
            let tools = turn.request.tools.as_ref().unwrap_or(&turn.made_for().tools);
            let limits = policy.limits_for(&result.name, tools.get(&result.name).and_then(|tool| tool.output_limits));
            let texts: Vec<String> = result.texts().map(str::to_owned).collect();
            let room = room.saturating_sub(model.as_ref().map_or(0, |model| media_tokens(&result, model)));
            let bytes = texts.iter().map(String::len).sum();
            let fits = count_without_blocking(bytes, estimator, || fitting_limits(&texts, &limits, room, estimator));
            cut(self.store, self.key, &mut result, &fits).await?;
            if let Some(truncation) = &mut result.truncation {
                truncation.for_room = fits != limits;
            }
        }
        if let (AnswerKind::Result { .. }, Some(arguments)) = (kind, known.and_then(|call| call.edited.as_deref())) {
            result.parts.insert(0, edit_note(arguments).into());
        }
        let blobs = blobs_of(&result);
        let mut part = Part::new(Content::ToolResult(result));
        part.sanitized = sanitized;
        let tokens = counted(&part, Role::Tool, estimator).tokens;
        Ok(Answer { call, kind, part, tokens, hash, blobs })
    }
}

/// Tokens of the media of a result that are sent to the model. Media are never truncated.
fn media_tokens(result: &ToolResult, model: &ResolvedModel) -> u32 {
    let shown = result.media().filter(|media| cannot_read(model, media, Role::Tool).is_none());
    shown.map(|media| media::tokens(media, ImageCost::default())).fold(0, u32::saturating_add)
}

/// The approval of a call. Returns `None` if the call does not await one.
fn approval(open: &[OpenCall], call: &CallId, edited: Option<String>) -> Option<Approval> {
    let open = open.iter().find(|open| open.pending.call.id == *call)?;
    let mut asked = open.pending.call.clone();
    if let Some(edited) = &edited {
        asked.arguments.clone_from(edited);
    }
    let request = Payload::ToolCallRequested {
        call: asked,
        timeout: open.timeout,
        edited: edited.is_some(),
        executor: open.pending.executor,
    };
    (open.pending.waits_for == WaitsFor::Approval).then(|| Approval {
        call: call.clone(),
        edited,
        request: codec::event::encode(&request).payload,
    })
}

/// The identity of an answer. It is stored and compared across upgrades: its strings must not
/// change, and it must not contain values that the program derives from the content.
fn fingerprint(parts: &[OutputPart], outcome: ToolOutcome) -> String {
    let given = parts.iter().map(|given| match given {
        OutputPart::Text(text) => Cow::Borrowed(text.as_str()),
        OutputPart::Media(media) => Cow::Owned(medium_text(media)),
    });
    let outcome = match outcome {
        ToolOutcome::Success => "Success",
        ToolOutcome::Error => "Error",
        ToolOutcome::Denied => "Denied",
        ToolOutcome::TimedOut => "TimedOut",
        ToolOutcome::Cancelled => "Cancelled",
    };
    let pieces: Vec<_> = std::iter::once(Cow::Borrowed(outcome)).chain(given).collect();
    derive::fingerprint(pieces.iter().map(Cow::as_ref))
}

/// The identity of a medium. Texts of answers contain no NUL, so that no text equals it.
fn medium_text(media: &Media) -> String {
    let Media { media_type, source, filename } = media;
    let (kind, place) = match source {
        Source::Blob(kept) => ("blob", kept.id.as_str()),
        Source::Url(url) => ("url", url.as_str()),
    };
    [kind, place, media_type, filename].map(|field| format!("\0{field}")).concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing::picture;
    use crate::model::media::Pixels;

    /// Stored hashes are compared with hashes that later versions compute.
    #[test]
    fn the_hash_of_a_result_is_the_same_in_every_version() {
        let link = OutputPart::Media(Media {
            media_type: "image/png".to_owned(),
            source: Source::Url("https://a.example/b".to_owned()),
            filename: "b.png".to_owned(),
        });
        let table = [
            (
                fingerprint(&["seen".into()], ToolOutcome::Success),
                "aac19952dcf6bf3da4849d6de5d2615312ebd5600149c7024d8d23f35b0fca22",
            ),
            (
                fingerprint(&[picture("a")], ToolOutcome::Error),
                "3f857561a046b81382030b044355f72231785f24a9ff45f3020a33c0d475c068",
            ),
            (
                fingerprint(&["x".into(), link], ToolOutcome::Success),
                "e1181c1e63d9f00c37d56a23580520753cb6133d67110461ecd3a09adf62be08",
            ),
        ];
        for (hash, expected) in table {
            assert_eq!(hash, expected);
        }
        let mut measured = picture("a");
        if let OutputPart::Media(Media { source: Source::Blob(kept), .. }) = &mut measured {
            kept.pixels = Pixels::new(2, 3);
        }
        let of = |given| fingerprint(&[given], ToolOutcome::Success);
        assert_eq!(of(measured), of(picture("a")), "what is derived does not count");
    }

    #[test]
    fn equal_results_are_the_same_submission() {
        let of = |parts: &[OutputPart]| fingerprint(parts, ToolOutcome::Success);
        assert_eq!(of(&[picture("a")]), of(&[picture("a")]));
        assert_ne!(of(&[picture("a")]), of(&[picture("b")]));
        assert_ne!(of(&["text".into(), picture("a")]), of(&[picture("a"), "text".into()]));
    }
}

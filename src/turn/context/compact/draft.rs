//! The input of a compaction (`CompactionInput`), what was requested (`CompactionRequest`), and the planned or completed
//! compaction (`Draft`).

use crate::{
    context::{
        budget::Budget,
        compact::{
            self, ActiveCompaction, Plan, PlanInput,
            gain::gained_enough,
            ladder::{CompactionMethod, Substitute, Urgency, ladder},
            summary_prompt,
        },
        estimate,
        estimator::Estimator,
        prune,
        size::{ContextSize, EstimateCorrection},
    },
    model::{
        Category, Compaction, CompactionState, Message, MessageId, Part, Role, TokenCount, UsageTotals,
        compaction::{CompactionPolicy, InstructionsMode, Summary, Trigger},
        derive,
    },
    provider::registry::ResolvedModel,
    session::{
        counters::{Counter, TokenCounters},
        rows::NewMessage,
    },
    turn::context::{
        estimators::estimator,
        measured::{count_without_blocking, message_tokens, new_message, stored},
    },
};

/// A summary of fewer tokens has too little content to request one.
const SMALLEST_SUMMARY: u32 = 100;
/// Approximate bytes per token of text.
const BYTES_PER_TOKEN: usize = 4;

/// The input of a compaction.
#[derive(Debug)]
pub(in crate::turn) struct CompactionInput {
    /// The messages that the model sees.
    pub messages: Vec<Message>,
    /// Version of the context with these messages.
    pub version: i64,
    pub in_force: Option<ActiveCompaction>,
    pub model: ResolvedModel,
    /// How the model's context window is divided.
    pub budget: Budget,
    /// Estimated tokens of the prompt outside of the messages.
    pub non_transcript_tokens: u32,
    pub size: TokenCount,
    /// The calibration applied to the sizes of later prompts.
    pub lesson: Option<EstimateCorrection>,
}

/// What is requested of a compaction of this input.
#[derive(Debug)]
pub(in crate::turn) struct CompactionRequest {
    pub input: CompactionInput,
    pub trigger: Trigger,
    /// The session's policy with the overrides of one request.
    pub policy: CompactionPolicy,
    /// Instructions of one request.
    pub instructions: (String, InstructionsMode),
    /// The requested size of the prompt, in tokens. `None` derives it from the window.
    pub target: Option<u32>,
    /// Old tool results were pruned before it.
    pub was_pruned: bool,
    /// How far the context has to become smaller, and at what cost.
    pub need: Urgency,
}

/// A planned compaction with its summary.
pub(super) struct Draft {
    pub compaction: Compaction,
    pub shift: TokenCounters,
    pub summary: Option<NewMessage>,
    /// The estimator that counted the summary.
    pub estimator: Estimator,
    pub plan: Plan,
}

impl CompactionInput {
    /// Messages and their version, and the size of their prompt.
    pub(in crate::turn) fn new(
        (messages, version): (Vec<Message>, i64),
        in_force: Option<ActiveCompaction>,
        (model, budget): (&ResolvedModel, Budget),
        size: &ContextSize<'_>,
    ) -> Self {
        Self {
            messages,
            version,
            in_force,
            model: model.clone(),
            budget,
            non_transcript_tokens: size.non_transcript_tokens(),
            size: size.size().count,
            lesson: size.correction(),
        }
    }

    /// The upper bound of the prompt size, which triggers compare.
    pub(super) fn at_most(&self) -> u32 {
        self.size.at_most()
    }

    /// Whether a prompt of this size exceeds the window. An assumed window is never exceeded: the
    /// actual one may be larger.
    pub(super) fn exceeds(&self, tokens: u32) -> bool {
        !self.budget.assumed && tokens > self.budget.window
    }
}

impl CompactionRequest {
    /// The order for an automatic compaction. Messages that no model has answered yet are removed
    /// only if the prompt cannot be sent otherwise.
    pub(in crate::turn) fn of_policy(
        policy: &CompactionPolicy,
        input: CompactionInput,
        trigger: Trigger,
        target: Option<u32>,
        was_pruned: bool,
    ) -> Self {
        let policy = policy.clone().within(input.budget.window);
        let instructions = (String::new(), InstructionsMode::Append);
        let need = match (trigger, target) {
            (Trigger::Threshold, None) => Urgency::Optional,
            (Trigger::Overflow, None) if !input.exceeds(input.size.tokens) => Urgency::Required,
            (Trigger::Overflow | Trigger::Threshold | Trigger::Manual | Trigger::ProviderOverflow, None | Some(_)) => {
                Urgency::LastResort
            }
        };
        Self { input, trigger, policy, instructions, target, was_pruned, need }
    }

    /// The largest allowed size of the context afterwards, for a requested compaction: a larger
    /// result is not put in force. An automatic compaction accepts any gain.
    pub(super) fn bound(&self) -> Option<u32> {
        self.target.filter(|_| self.trigger == Trigger::Manual)
    }

    pub(super) fn situation(&self) -> PlanInput<'_> {
        PlanInput {
            messages: &self.input.messages,
            active_compaction: self.input.in_force.as_ref(),
            non_transcript_tokens: self.input.non_transcript_tokens,
            size: self.input.at_most(),
            budget: self.input.budget,
            policy: &self.policy,
            target: self.target,
            correction: None,
        }
    }

    /// The first plan that helps.
    pub(in crate::turn) fn plan(&self) -> Option<Plan> {
        self.plans().find(|plan| self.helps(plan))
    }

    /// Whether a plan may gain enough, checked before a model is called.
    pub(super) fn helps(&self, plan: &Plan) -> bool {
        let substituted = self.substituted(plan);
        let least = plan.size_after(&self.shown(), substituted.unwrap_or_default());
        let gained = plan.size_after(&self.situation(), substituted.unwrap_or_default());
        let writable = match plan.method.substitute() {
            Substitute::Summary => self.max_summary_tokens(plan).is_some(),
            Substitute::Excerpt => substituted.is_some(),
            Substitute::ActiveSummary | Substitute::Note => true,
        };
        let is_bounded = plan.strategy().summarises() || self.bound().is_none_or(|bound| least <= bound);
        writable
            && is_bounded
            && gained_enough(self.input.at_most(), gained)
            && !(plan.method.replaces_unanswered() && self.input.exceeds(least))
    }

    /// The text that replaces the compacted messages, if no model writes it.
    pub(super) fn substitute(&self, plan: &Plan) -> Option<String> {
        match plan.method.substitute() {
            Substitute::Summary => None,
            Substitute::ActiveSummary => {
                let summary = self.input.in_force.as_ref().and_then(|it| it.summary.clone());
                summary.filter(|_| plan.carries_summary)
            }
            Substitute::Excerpt => {
                let gone = plan.hidden_messages(&self.input.messages);
                let tokens = gone.map(|message| prune::size(message) as usize);
                let bytes = tokens.sum::<usize>().saturating_mul(BYTES_PER_TOKEN);
                let excerpt = || plan.excerpt(&self.shown());
                count_without_blocking(bytes, estimator(&self.input.model), excerpt)
            }
            Substitute::Note => Some(plan.note(&self.shown())),
        }
    }

    /// Tokens of that text. Returns `None` if there is none.
    fn substituted(&self, plan: &Plan) -> Option<u32> {
        match plan.method.substitute() {
            Substitute::Summary => None,
            Substitute::ActiveSummary => self.carried(plan),
            Substitute::Excerpt | Substitute::Note => {
                let text = self.substitute(plan)?;
                let summary = Summary { text, message: MessageId::new("not-stored"), model: String::new() };
                Some(message_tokens(&summary_message(&summary, estimator(&self.input.model))))
            }
        }
    }

    /// The smallest size that any way reaches without a summary. Returns `None` if no message can
    /// be removed.
    pub(super) fn smallest(&self) -> Option<u32> {
        let after = |plan: Plan| {
            let substituted = self.substituted(&plan);
            plan.size_after(&self.shown(), substituted.unwrap_or_default())
        };
        self.plans().map(after).min()
    }

    /// The ways to try. Pinned messages are removed only if the prompt cannot be sent otherwise.
    pub(super) fn ways(&self) -> impl Iterator<Item = CompactionMethod> + use<> {
        let too_large = self.input.exceeds(self.input.size.tokens) || self.trigger == Trigger::ProviderOverflow;
        ladder(self.policy.strategy, self.need).filter(move |way| too_large || !way.replaces_pinned())
    }

    fn plans(&self) -> impl Iterator<Item = Plan> {
        let situation = self.situation();
        self.ways().filter_map(move |way| compact::plan(way, &situation))
    }

    /// Most tokens of the summary of a plan. Returns `None` if the requested size leaves too little
    /// for a summary.
    pub(super) fn max_summary_tokens(&self, plan: &Plan) -> Option<u32> {
        let most = self.policy.summary_max_tokens;
        if self.bound().is_none() {
            return Some(most);
        }
        let beside = estimate::text(&summary_prompt::message("")).saturating_add(estimate::MESSAGE_OVERHEAD);
        let left = plan.substitute_budget(&self.shown()).saturating_sub(beside).min(most);
        (left >= SMALLEST_SUMMARY.min(most)).then_some(left)
    }

    /// The situation with the reported prompt size instead of its upper bound.
    fn shown(&self) -> PlanInput<'_> {
        PlanInput { size: self.input.size.tokens, correction: self.input.lesson, ..self.situation() }
    }

    /// Tokens of the summary in force, if the plan keeps it.
    fn carried(&self, plan: &Plan) -> Option<u32> {
        self.input.messages.iter().find(|message| plan.carries_summary && message.is_summary).map(prune::size)
    }

    /// The expected outcome of a compaction.
    pub(super) fn forecast(&self, plan: &Plan) -> Compaction {
        if plan.strategy().summarises() {
            let read = plan.hidden_messages(&self.input.messages).map(|message| i64::from(prune::size(message))).sum();
            let usage = UsageTotals { calls: 1, input: read, ..UsageTotals::default() };
            let most = self.max_summary_tokens(plan).unwrap_or(self.policy.summary_max_tokens);
            let most = most.saturating_add(estimate::MESSAGE_OVERHEAD);
            return Compaction { usage, ..self.outlook(plan, Some(most)) };
        }
        self.outlook(plan, self.substituted(plan))
    }

    /// The result of a plan. `written`: the text that replaces the messages, and the model that
    /// wrote it.
    pub(super) fn draft(&self, begun: &Compaction, plan: Plan, written: Option<(String, String)>) -> Draft {
        let named = begun.id.as_ref().zip(written);
        let summary = named.map(|(id, (text, model))| Summary { text, message: derive::summary(id), model });
        let estimator = estimator(&self.input.model);
        let message = summary.as_ref().map(|summary| summary_message(summary, estimator));
        let compaction = Compaction {
            id: begun.id.clone(),
            state: begun.state,
            summary,
            created_at: begun.created_at,
            ..self.outlook(&plan, message.as_ref().map(message_tokens))
        };
        let shift = shift(&self.input.messages, &plan, message.as_ref());
        Draft { compaction, shift, summary: message, estimator, plan }
    }

    /// The outcome of a plan with a summary of this many tokens. `None` means that messages are
    /// only left out.
    fn outlook(&self, plan: &Plan, summary: Option<u32>) -> Compaction {
        let after = plan.size_after(&self.shown(), summary.unwrap_or_default());
        let (referenced_tools, unreferenced_tools) = plan.tools(&self.input.messages);
        Compaction {
            id: None,
            state: CompactionState::Planned,
            trigger: self.trigger,
            strategy: plan.strategy(),
            range: Some((plan.from, plan.to)),
            messages_compacted: plan.stands_for,
            messages_before: number(self.input.messages.len()),
            messages_after: number(self.input.messages.len() - plan.hidden.len() + usize::from(summary.is_some())),
            tokens_before: self.input.size.clone(),
            tokens_after: Some(estimate::count(after)),
            limit: self.target.unwrap_or_else(|| self.input.budget.room()),
            was_pruned: self.was_pruned,
            summary: None,
            usage: UsageTotals::default(),
            predecessor: self.input.in_force.as_ref().map(|in_force| in_force.id.clone()),
            referenced_tools,
            unreferenced_tools,
            failure: None,
            created_at: None,
            ended_at: None,
            reverted_at: None,
        }
    }
}

/// The compaction in force, as input for the next one.
pub(super) fn in_force_of((compaction, hides_pinned): (Compaction, bool)) -> Option<ActiveCompaction> {
    let Compaction { id, range, messages_compacted, summary, .. } = compaction;
    let (from, to) = range?;
    Some(ActiveCompaction {
        id: id?,
        from,
        to,
        messages: messages_compacted,
        summary: summary.map(|summary| summary.text),
        hides_pinned,
    })
}

/// The message that replaces the compacted messages.
fn summary_message(summary: &Summary, estimator: Estimator) -> NewMessage {
    let mut part = stored(Part::text(summary_prompt::message(&summary.text)), Role::User, estimator);
    part.size.category = Category::Summary;
    new_message(summary.message.clone(), Role::User, vec![part], None, estimator)
}

/// The change of the session's counters.
fn shift(messages: &[Message], plan: &Plan, summary: Option<&NewMessage>) -> TokenCounters {
    let mut shift = TokenCounters::default();
    for message in plan.hidden.iter().map(|at| &messages[*at]) {
        shift.messages(-1, -i64::from(message.overhead));
        for part in &message.parts {
            shift.count(part.size.category.into(), -1, -i64::from(part.size.tokens));
            if let Some(pruned) = &part.pruned {
                let saved = i64::from(pruned.original_tokens) - i64::from(part.size.tokens);
                shift.count(Counter::Pruned, -1, -saved);
            }
        }
    }
    if let Some(summary) = summary {
        shift.messages(1, i64::from(summary.overhead));
        for part in &summary.parts {
            shift.count(Counter::Summary, 1, i64::from(part.size.tokens));
        }
    }
    shift
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

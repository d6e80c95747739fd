//! The input of a compaction (`Survey`), what was requested (`Order`), and the computed result
//! (`Draft`): first a forecast, then with the summary that was written.

use crate::{
    context::{
        budget::Budget,
        compact::{self, InForce, Plan, Situation, summary_prompt},
        estimate,
        estimator::Estimator,
        prune,
    },
    model::{
        Category, Compaction, CompactionState, Message, Part, Role, TokenCount, UsageTotals,
        compaction::{CompactionPolicy, InstructionsMode, Summary, Trigger},
        derive,
    },
    provider::registry::Resolved,
    store::{
        NewMessage,
        compaction::{Counter, Shift},
    },
    turn::{
        context::estimators::estimator,
        run::measured::{message_tokens, new_message, stored},
    },
};

/// Tokens below which a summary says too little to be asked for.
const SMALLEST_SUMMARY: u32 = 100;

/// What a compaction is made from.
#[derive(Debug)]
pub(in crate::turn) struct Survey {
    /// What the model sees.
    pub messages: Vec<Message>,
    /// The version of that.
    pub version: i64,
    /// The compaction in force.
    pub in_force: Option<InForce>,
    /// The model that the prompt is for.
    pub model: Resolved,
    /// Its window.
    pub budget: Budget,
    /// Estimated size of the prompt beside the messages.
    pub non_transcript_tokens: u32,
    /// Size of the prompt.
    pub size: TokenCount,
}

/// What is wanted of a compaction.
#[derive(Debug)]
pub(in crate::turn) struct Order {
    /// Why.
    pub trigger: Trigger,
    /// When and how, with what one request wants otherwise.
    pub policy: CompactionPolicy,
    /// Wishes of one request.
    pub instructions: (String, InstructionsMode),
    /// The size that is asked for. `None` means by the room.
    pub target: Option<u32>,
    /// Old tool results were cleared for it.
    pub was_pruned: bool,
    /// It has to become smaller, whatever is lost.
    pub must: bool,
}

/// A compaction that is worked out.
pub(super) struct Draft {
    pub compaction: Compaction,
    pub shift: Shift,
    pub summary: Option<NewMessage>,
    /// Who counted the summary.
    pub estimator: Estimator,
    pub plan: Plan,
}

impl Order {
    /// What only the policy asked for.
    pub(in crate::turn) fn of_policy(
        policy: &CompactionPolicy,
        budget: Budget,
        trigger: Trigger,
        target: Option<u32>,
        was_pruned: bool,
    ) -> Self {
        let policy = policy.clone().within(budget.window);
        let instructions = (String::new(), InstructionsMode::Append);
        let must = trigger != Trigger::Threshold || target.is_some();
        Self {
            trigger,
            policy,
            instructions,
            target,
            was_pruned,
            must,
        }
    }
}

impl Order {
    /// The size that the context has to have at the end; a smaller one will do no harm, a larger
    /// one is not put in force. What makes room for a call of its own accord takes what it
    /// gets.
    pub(super) fn bound(&self) -> Option<u32> {
        self.target.filter(|_| self.trigger == Trigger::Manual)
    }
}

impl Survey {
    pub(super) fn situation<'a>(&'a self, order: &'a Order) -> Situation<'a> {
        Situation {
            messages: &self.messages,
            in_force: self.in_force.as_ref(),
            non_transcript_tokens: self.non_transcript_tokens,
            size: self.at_most(),
            budget: self.budget,
            policy: &order.policy,
            target: order.target,
        }
    }

    /// The size that triggers compare.
    pub(super) fn at_most(&self) -> u32 {
        self.size.at_most()
    }

    /// What the first way that leads anywhere would stand for.
    pub(in crate::turn) fn plan(&self, order: &Order) -> Option<Plan> {
        let most = order.bound().unwrap_or(u32::MAX);
        self.plans(order).find(|plan| {
            if plan.strategy.summarises() {
                self.summary_most(order, plan).is_some()
            } else {
                plan.after(&self.shown(order), self.carried(plan).unwrap_or_default()) <= most
            }
        })
    }

    /// The smallest size that any way leads to without a summary. `None` means nothing may go.
    pub(super) fn smallest(&self, order: &Order) -> Option<u32> {
        let plans = self.plans(order);
        plans
            .map(|plan| plan.after(&self.shown(order), self.carried(&plan).unwrap_or_default()))
            .min()
    }

    fn plans<'a>(&'a self, order: &'a Order) -> impl Iterator<Item = Plan> + 'a {
        let situation = self.situation(order);
        compact::ladder::ladder(order.policy.strategy, order.must)
            .filter_map(move |strategy| compact::plan(strategy, &situation))
    }

    /// Tokens that the model may write as the summary of a plan. `None` means the size that is
    /// asked for leaves too little for one.
    pub(super) fn summary_most(&self, order: &Order, plan: &Plan) -> Option<u32> {
        let most = order.policy.summary_max_tokens;
        if order.bound().is_none() {
            return Some(most);
        }
        let beside =
            estimate::text(&summary_prompt::message("")).saturating_add(estimate::MESSAGE_OVERHEAD);
        let left = plan
            .room(&self.shown(order))
            .saturating_sub(beside)
            .min(most);
        (left >= SMALLEST_SUMMARY.min(most)).then_some(left)
    }

    /// The situation with the size that is reported: triggers look further up.
    fn shown<'a>(&'a self, order: &'a Order) -> Situation<'a> {
        Situation {
            size: self.size.tokens,
            ..self.situation(order)
        }
    }

    /// What the summary in force goes on to cost, if it does.
    fn carried(&self, plan: &Plan) -> Option<u32> {
        self.messages
            .iter()
            .find(|message| plan.carries && message.is_summary)
            .map(prune::size)
    }

    /// What a compaction would do.
    pub(super) fn forecast(&self, order: &Order, plan: &Plan) -> Compaction {
        if plan.strategy.summarises() {
            let read = plan
                .gone(&self.messages)
                .map(|message| i64::from(prune::size(message)))
                .sum();
            let usage = UsageTotals {
                calls: 1,
                input: read,
                ..UsageTotals::default()
            };
            let most = self
                .summary_most(order, plan)
                .unwrap_or(order.policy.summary_max_tokens);
            let most = most.saturating_add(estimate::MESSAGE_OVERHEAD);
            return Compaction {
                usage,
                ..self.outlook(order, plan, Some(most))
            };
        }
        self.outlook(order, plan, self.carried(plan))
    }

    /// A plan with what is to stand there: words, and who wrote them.
    pub(super) fn draft(
        &self,
        order: &Order,
        begun: &Compaction,
        plan: Plan,
        written: Option<(String, String)>,
    ) -> Draft {
        let named = begun.id.as_ref().zip(written);
        let summary = named.map(|(id, (text, model))| Summary {
            text,
            message: derive::summary(id),
            model,
        });
        let estimator = estimator(&self.model);
        let message = summary
            .as_ref()
            .map(|summary| summary_message(summary, estimator));
        let compaction = Compaction {
            id: begun.id.clone(),
            state: begun.state,
            summary,
            created_at: begun.created_at,
            ..self.outlook(order, &plan, message.as_ref().map(message_tokens))
        };
        let shift = shift(&self.messages, &plan, message.as_ref());
        Draft {
            compaction,
            shift,
            summary: message,
            estimator,
            plan,
        }
    }

    /// What a plan comes to with a summary of so many tokens in its place. `None` means messages
    /// are only left out.
    fn outlook(&self, order: &Order, plan: &Plan, summary: Option<u32>) -> Compaction {
        let after = plan.after(&self.shown(order), summary.unwrap_or_default());
        let (referenced_tools, unreferenced_tools) = plan.tools(&self.messages);
        Compaction {
            id: None,
            state: CompactionState::Planned,
            trigger: order.trigger,
            strategy: plan.strategy,
            range: Some((plan.from, plan.to)),
            messages_compacted: plan.stands_for,
            messages_before: number(self.messages.len()),
            messages_after: number(
                self.messages.len() - plan.hidden.len() + usize::from(summary.is_some()),
            ),
            tokens_before: self.size.clone(),
            tokens_after: Some(estimate::count(after)),
            limit: order.target.unwrap_or_else(|| self.budget.room()),
            was_pruned: order.was_pruned,
            summary: None,
            usage: UsageTotals::default(),
            predecessor: self.in_force.as_ref().map(|in_force| in_force.id.clone()),
            referenced_tools,
            unreferenced_tools,
            failure: None,
            created_at: None,
            ended_at: None,
            reverted_at: None,
        }
    }
}

/// The compaction in force, as the next one has to know it.
pub(super) fn in_force_of(compaction: Compaction) -> Option<InForce> {
    let Compaction {
        id,
        range,
        messages_compacted,
        summary,
        ..
    } = compaction;
    let (from, to) = range?;
    Some(InForce {
        id: id?,
        from,
        to,
        messages: messages_compacted,
        summary: summary.map(|summary| summary.text),
    })
}

/// The message that stands for what was compacted.
fn summary_message(summary: &Summary, estimator: Estimator) -> NewMessage {
    let mut part = stored(
        Part::text(summary_prompt::message(&summary.text)),
        Role::User,
        estimator,
    );
    part.size.category = Category::Summary;
    new_message(
        summary.message.clone(),
        Role::User,
        vec![part],
        None,
        estimator,
    )
}

/// What the counters change by.
fn shift(messages: &[Message], plan: &Plan, summary: Option<&NewMessage>) -> Shift {
    let mut shift = Shift::default();
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

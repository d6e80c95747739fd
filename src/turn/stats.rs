//! GetContextStats: what a session's window is spent on, from its counters.

use super::{
    Engine, Error,
    count::estimator,
    media::{unread, unread_new},
    sessions::{definition_bytes, outside},
    written::beside_others,
};
use crate::{
    context::{
        budget::Budget,
        compact, prune,
        size::{Size, size, unseen, usable},
        stats::{Breakdown, Forecast, Whole, breakdown, forecast, largest_tools},
    },
    model::{Anchor, Compaction, Message, Seq, SessionKey, ToolCategory, command::TurnRequest, config::ContextPolicy},
    provider::{ModelInfo, registry::Resolved},
    store::{message::Placed, stats::Stats},
};

/// The statistics of a session.
#[derive(Debug, Clone)]
pub struct ContextStats {
    /// What its ledger says.
    pub stats: Stats,
    /// The model that they are for.
    pub model: String,
    /// Its window.
    pub budget: Budget,
    /// The size of the next prompt.
    pub size: Size,
    /// What it is made of.
    pub breakdown: Breakdown,
    /// The tool definitions that are sent, the largest first.
    pub tools: Vec<(String, ToolCategory, u32)>,
    /// When it will have to be compacted.
    pub forecast: Forecast,
    /// Reported over estimated tokens of the model, learnt from calls, as it was known within the last 30 s. Stored sizes are not
    /// corrected by it.
    pub learnt: f64,
    /// The newest compactions.
    pub compactions: Vec<Compaction>,
}

/// After every message.
pub(super) const LATEST: Seq = Seq(i64::MAX);

/// Messages that are read at once, and in all, to see which of them the last call did not see.
const NEWEST: u32 = 64;
const MOST_NEWEST: usize = 512;
/// Tokens of them that are looked at beyond twice of what is new.
const BEYOND: i64 = 4_096;

/// Compactions that are told with the statistics.
const RECENT: u32 = 10;

impl Engine {
    /// Where a session's tokens are, with this model or its own. One statement, unless there are compactions to list, messages whose size
    /// depends on the model, or the ratio of the model is not known from the last 30 s.
    pub async fn context_stats(&self, key: &SessionKey, model: Option<&str>) -> Result<ContextStats, Error> {
        let stats = self.store().stats(key).await?;
        let mut stats = stats.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let mut request = stats.request.take().unwrap_or_default();
        if let Some(tools) = request.tools.take() {
            stats.config.tools = tools; // whoever names the tools with each turn will name them again
        }
        let step = stats.step.max(1);
        let request = if stats.step == 0 { TurnRequest::default() } else { request };
        let config = &stats.config;
        let model = self.model(model.unwrap_or(&config.model))?;
        let policy = self.policy(config)?;
        let budget = budget(&policy.context, &model)?;
        let supports_tools = model.info.supports_tools;
        let anchor = usable(stats.anchor.as_ref(), &model.reference, stats.version.context);
        let outside = outside(config, &config.tools, (&request, step), Some(&model));
        // Only media, and reasoning where nothing was measured, make it depend on the model what the transcript's estimate comes to.
        let has_media = stats.ledger.media.parts > 0 || stats.has_content;
        let reasons = stats.ledger.reasoning.parts > 0 && model.provider.withholds_reasoning();
        let estimated = stats.context_tokens.saturating_add(i64::from(outside.tokens()));
        let estimator = estimator(&model);
        let messages = match has_media || (reasons && anchor.is_none()) {
            true => self.store().variable(key, reasons, &[LATEST]).await?,
            false => Vec::new(),
        };
        let unread_new = match anchor {
            Some(_) if reasons || messages.iter().any(|message| !message.parts.is_empty()) => {
                let new = size(anchor, estimated, estimator.frame()).new;
                unread_new(&model, anchor, &self.newest(key, anchor, new).await?, estimated)
            }
            Some(_) | None => unread_new(&model, anchor, &messages, estimated),
        };
        let size = size(anchor, estimated - unread_new, estimator.frame());
        let ledger = &stats.ledger.less(&unread(&model, &messages));
        let (queued, used) = (stats.queued, size.count.tokens);
        let whole = Whole { config, supports_tools, estimator, outside, ledger, queued, used };
        // Blocks by themselves and deferred tools are no part of the size, so that they were not counted with it.
        let blocks = config.pinned_blocks.iter().map(|block| block.text.len());
        let deferred = config.tools.tools.iter().filter(|tool| tool.deferred).map(definition_bytes);
        let bytes = blocks.chain(deferred).sum();
        let (breakdown, sized) = beside_others(bytes, estimator, || {
            (breakdown(&whole), largest_tools(&config.tools, supports_tools, estimator))
        });
        let tools = sized.into_iter().map(|(tool, tokens)| (tool.name.clone(), tool.category, tokens)).collect();
        let starts_at = compact::starts_at(&policy.context.compaction, budget, model.provider.is_local());
        let learnt = self.ratio(&model.reference).await;
        let compactions = match stats.has_compactions {
            true => self.store().compactions(key, None, RECENT).await?,
            false => Vec::new(),
        };
        Ok(ContextStats {
            learnt,
            compactions,
            breakdown,
            tools,
            forecast: forecast(budget, starts_at, &size, stats.growth),
            model: model.reference,
            budget,
            size,
            stats,
        })
    }
}

impl Engine {
    /// The newest messages without their text, in order: at least those that the last call did not see, as far as what is `new` since can
    /// tell. Nothing is read if nothing is new.
    pub(super) async fn newest(
        &self,
        key: &SessionKey,
        anchor: Option<&Anchor>,
        new: i64,
    ) -> Result<Vec<Message>, Error> {
        let (mut newest, mut at, mut tokens) = (Vec::new(), LATEST, 0);
        if new <= 0 {
            return Ok(newest);
        }
        loop {
            let read = self.store().newest(key, at, NEWEST).await?;
            let was_last = read.len() < NEWEST as usize;
            for Placed { place, message } in read {
                at = place;
                tokens += i64::from(prune::size(&message));
                newest.push(message);
            }
            newest.reverse();
            let found = unseen(&newest, anchor, i64::MAX).len() < newest.len();
            if found || was_last || tokens > 2 * new + BEYOND || newest.len() >= MOST_NEWEST {
                return Ok(newest);
            }
            newest.reverse();
        }
    }
}

/// The window of a model under a policy; none: nobody said how large it is.
pub(super) fn known_window(policy: &ContextPolicy, model: &Resolved) -> Option<u32> {
    budget(policy, model).ok().filter(|budget| !budget.assumed).map(|budget| budget.window)
}

/// How the window of a model is divided under a policy.
pub(super) fn budget(policy: &ContextPolicy, model: &Resolved) -> Result<Budget, Error> {
    let ModelInfo { context_window, max_output, .. } = &model.info;
    let tokens = |limit: &Option<crate::provider::info::Limit>| limit.map(|limit| limit.tokens);
    Budget::of(policy, tokens(context_window), tokens(max_output))
        .map_err(|_| Error::ContextWindowUnknown(model.reference.clone()))
}

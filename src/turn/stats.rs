//! GetContextStats: what a session's window is spent on, from its counters.

use super::{
    Engine, Error,
    count::estimator,
    media::{unread, unread_new},
    sessions::outside_tokens,
};
use crate::{
    context::{
        budget::Budget,
        compact,
        size::{Size, size, usable},
        stats::{Breakdown, Forecast, Whole, breakdown, forecast, largest_tools},
    },
    model::{Compaction, SessionKey, ToolCategory, config::ContextPolicy},
    provider::{ModelInfo, registry::Resolved},
    store::stats::Stats,
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
    /// The tools that the model is told of, the largest first.
    pub tools: Vec<(String, ToolCategory, u32)>,
    /// When it will have to be compacted.
    pub forecast: Forecast,
    /// Reported over estimated tokens of the model, learnt from calls. Stored sizes are not corrected by it.
    pub learnt: f64,
    /// The newest compactions.
    pub compactions: Vec<Compaction>,
}

/// Compactions that are told with the statistics.
const RECENT: u32 = 10;

impl Engine {
    /// Where a session's tokens are, with this model or its own. One statement, unless there are compactions to list, or the model is
    /// another one than could be guessed.
    pub async fn context_stats(&self, key: &SessionKey, model: Option<&str>) -> Result<ContextStats, Error> {
        let stats = self.store().stats(key, model, &self.rules().default_model).await?;
        let mut stats = stats.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        if let Some(tools) = stats.turn_tools.take() {
            stats.config.tools = tools; // whoever names the tools with each turn will name them again
        }
        let config = &stats.config;
        let model = self.model(model.unwrap_or(&config.model))?;
        let policy = self.policy(config)?;
        let budget = budget(&policy.context, &model)?;
        let supports_tools = model.info.supports_tools;
        let anchor = usable(stats.anchor.as_ref(), &model.reference, stats.version.context);
        let outside = outside_tokens(config, &config.tools, Some(&model));
        // Only media, and reasoning where nothing was measured, make it depend on the model what the transcript's estimate comes to.
        let depends = stats.ledger.media.parts > 0 || (stats.ledger.reasoning.parts > 0 && anchor.is_none());
        let messages = if depends { self.store().transcript(key).await?.messages } else { Vec::new() };
        let estimated = stats.context_tokens.saturating_add(i64::from(outside));
        let estimator = estimator(&model);
        let size = size(anchor, estimated - unread_new(&model, anchor, &messages, estimated), estimator.frame());
        let ledger = &stats.ledger.less(&unread(&model, &messages));
        let whole = Whole { config, supports_tools, estimator, ledger, queued: stats.queued, used: size.count.tokens };
        let sized = largest_tools(&config.tools, supports_tools);
        let tools = sized.into_iter().map(|(tool, tokens)| (tool.name.clone(), tool.category, tokens)).collect();
        let starts_at = compact::starts_at(&policy.context.compaction, budget, model.provider.is_local());
        let learnt = match &stats.learnt {
            (guessed, ratio) if *guessed == model.reference => *ratio,
            _ => self.calibration(&model.reference).await?.ratio,
        };
        let compactions = match stats.has_compactions {
            true => self.store().compactions(key, None, RECENT).await?,
            false => Vec::new(),
        };
        Ok(ContextStats {
            learnt,
            compactions,
            breakdown: breakdown(&whole),
            tools,
            forecast: forecast(budget, starts_at, &size, stats.growth),
            model: model.reference,
            budget,
            size,
            stats,
        })
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

//! GetContextStats: how a session's context window is used, computed from its counters.

use crate::{
    context::{
        budget::Budget,
        compact,
        size::Size,
        stats::{Breakdown, BreakdownInput, Forecast, breakdown, forecast, largest_tools},
    },
    model::{Compaction, SessionKey, Tool, ToolCategory, command::TurnRequest},
    store::stats::Stats,
    turn::{
        Error,
        context::{
            estimators::estimator,
            measured::count_without_blocking,
            prompt_call::PromptCall,
            size::{definition_bytes, size_with, unsupported},
            window::budget,
        },
        engine::Prompts,
    },
};

/// The statistics of a session.
#[derive(Debug, Clone)]
pub struct ContextStats {
    /// Counters of the session's ledger.
    pub stats: Stats,
    /// Reference of the model that they are for.
    pub model: String,
    /// How the model's context window is divided.
    pub budget: Budget,
    /// The size of the next prompt.
    pub size: Size,
    /// The size of the next prompt by category.
    pub breakdown: Breakdown,
    /// The tool definitions that are sent, largest first, with tokens.
    pub tools: Vec<(String, ToolCategory, u32)>,
    /// When a compaction will be needed.
    pub forecast: Forecast,
    /// Ratio of reported to estimated tokens of the model, learnt from calls, at most 30 s old.
    /// Stored sizes are not corrected by it.
    pub learnt: f64,
    /// The newest compactions.
    pub compactions: Vec<Compaction>,
}

/// Compactions listed with the statistics.
const RECENT: u32 = 10;

impl Prompts {
    /// How a session's tokens are distributed, for this model or the session's own. Takes one
    /// statement, unless there are compactions to list, messages whose size depends on the model,
    /// or a ratio that was not read in the last 30 s.
    pub async fn context_stats(&self, key: &SessionKey, model: Option<&str>) -> Result<ContextStats, Error> {
        let stats = self.store.stats(key).await?;
        let mut stats = stats.ok_or_else(|| Error::SessionNotFound(key.session.clone()))?;
        let mut request = stats.request.take().unwrap_or_default();
        if let Some(tools) = request.tools.take() {
            stats.config.tools = tools; // a client that names the tools with each turn will name them again
        }
        let step = stats.step.max(1);
        let request = if stats.step == 0 { TurnRequest::default() } else { request };
        let config = &stats.config;
        let model = model.or(request.model.as_deref());
        let model = self.model(model.unwrap_or(&config.model))?;
        let policy = self.policy(config)?;
        let budget = budget(&policy.context, &model)?;
        let call = PromptCall::new(config, &request, step, false, &model);
        let size = call.size_of_all((&stats).into());
        let excerpt = self.excerpt(key, &size, call.model, stats.model_dependent).await?;
        let context = size_with(size, call.model, &excerpt, &[]);
        let size = context.size();
        let excerpt = match context.is_anchored() && (stats.model_dependent.media || stats.model_dependent.items) {
            // The categories are those of the whole transcript.
            true => self.model_dependent(key, &model, stats.model_dependent).await?,
            false => excerpt,
        };
        let ledger = &stats.ledger.less(&unsupported(&model, &excerpt));
        let estimator = estimator(&model);
        let non_transcript = context.non_transcript();
        let whole = BreakdownInput {
            config,
            supports_tools: model.info.supports_tools,
            provider: &model.provider_name,
            estimator,
            non_transcript,
            ledger,
            queued: stats.queued,
            used: size.count.tokens,
        };
        let (breakdown, tools) = measured(&whole);
        let starts_at = compact::trigger::starts_at(&policy.context.compaction, budget, model.provider.is_local());
        let learnt = self.ratio(&key.tenant, &model.reference).await;
        let compactions = match stats.has_compactions {
            true => self.store.compactions(key, None, RECENT).await?,
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

/// The size of the prompt by category, and the tool definitions that are sent, largest first.
fn measured(whole: &BreakdownInput<'_>) -> (Breakdown, Vec<(String, ToolCategory, u32)>) {
    let config = whole.config;
    let estimator = whole.estimator;
    // The single blocks and the deferred tools are not part of the prompt size, so that they were
    // not counted with it.
    let blocks = config.pinned_blocks.iter().map(|block| block.text.len());
    let tools = config.tools.tools.iter();
    let deferred = tools.filter(|tool| tool.deferred).map(definition_bytes);
    let bytes = blocks.chain(deferred).sum();
    let (breakdown, sized) = count_without_blocking(bytes, estimator, || {
        (breakdown(whole), largest_tools(&config.tools, whole.supports_tools, estimator))
    });
    let named = |(tool, tokens): (&Tool, u32)| (tool.name.clone(), tool.category, tokens);
    (breakdown, sized.into_iter().map(named).collect())
}

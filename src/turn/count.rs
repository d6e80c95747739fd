//! CountTokens: what a prompt would cost, without making it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Once},
};

use super::{Engine, Error, media::cannot_read, reasoning, render::Standing, written::host_part};
use crate::{
    context::{
        count::{Counting, Counts},
        estimate,
        estimator::Estimator,
        media::leave_out,
        predict::Calibration,
        prompt,
        size::Size,
        template::Template,
    },
    model::{
        Generation, Message, MessageId, NewContent, Prompt, Seq, SessionKey, TenantId, Tool, ToolSet, Transcript,
        command::CountTokens, import::Appended,
    },
    provider::registry::Resolved,
};

/// What a session adds to what is counted.
#[derive(Default)]
struct Ground {
    model: String,
    system: String,
    tools: ToolSet,
    generation: Generation,
    messages: Vec<Message>,
    /// The session's size, where a call of its model measured it.
    standing: Option<Standing>,
}

impl Engine {
    /// Counts. Where no provider counts, or the model has no counter, the numbers are predictions and say so.
    pub async fn count_tokens(&self, tenant: TenantId, command: CountTokens) -> Result<Counts, Error> {
        let CountTokens { session, model, messages, contents, system, tools, exact } = command;
        let mut ground = match session {
            Some(session) => self.ground(&SessionKey::new(tenant.clone(), session)).await?,
            None => Ground { model: self.rules.default_model.clone(), system, ..Ground::default() },
        };
        let model = self.model(model.as_ref().unwrap_or(&ground.model))?;
        let measured = ground.standing.as_ref().and_then(|standing| {
            let told = tools.as_ref().unwrap_or(&ground.tools);
            Some(standing.size_with(told, &model)).filter(Size::is_anchored).map(|size| size.count)
        });
        let tools = tools.unwrap_or(ground.tools);
        let told = |tool: &&Tool| model.info.supports_tools && !tool.deferred;
        let single = messages.len();
        ground.messages.extend(messages.into_iter().map(unstored));
        // Counted is what the model would read.
        leave_out(&mut ground.messages, &model.reference, |media, role| cannot_read(&model, media, role));
        let messages = reasoning::as_sent(&model, &ground.messages).into_owned();
        let counting = Counting {
            template: template(&model),
            calibration: self.calibration(&model.reference).await?,
            system: ground.system,
            tools: tools.tools.iter().filter(told).cloned().collect(),
            generation: ground.generation,
            messages,
            single,
            measured,
        };
        let reported = if exact { self.reported(&tenant, &model, &counting, &contents).await? } else { None };
        // A long conversation takes a while to count: others go on meanwhile.
        let counts = tokio::task::spawn_blocking(move || counting.count(reported)).await;
        counts.map_err(|error| Error::Internal(format!("counting failed: {error}")))
    }

    /// What a session's next prompt is made of.
    async fn ground(&self, key: &SessionKey) -> Result<Ground, Error> {
        let standing = self.standing(key).await?;
        let config = standing.session.config.clone();
        Ok(Ground {
            system: prompt::system(&config),
            model: config.model,
            tools: config.tools,
            generation: config.generation,
            messages: standing.messages.clone(),
            standing: Some(standing),
        })
    }

    /// What the provider counts; none: it does not count, or the conversation has open calls, which no model is sent.
    async fn reported(
        &self,
        tenant: &TenantId,
        model: &Resolved,
        counting: &Counting,
        own: &[NewContent],
    ) -> Result<Option<u32>, Error> {
        let Ok(transcript) = Transcript::new(counting.messages.clone()).close() else { return Ok(None) };
        if !model.provider.counts() {
            return Ok(None);
        }
        let (transcript, carried) = self.contents(tenant, model, transcript, own).await?;
        let prompt = Prompt {
            model: model.info.name.clone(),
            system: counting.system.clone(),
            transcript,
            contents: carried.contents(),
            tools: counting.tools.clone(),
            max_output_tokens: None,
            generation: counting.generation.clone(),
            size: estimate::count(0),
        };
        Ok(model.provider.count(Arc::new(prompt)).await?)
    }

    /// What was learnt from the calls of a model.
    pub(super) async fn calibration(&self, reference: &str) -> Result<Calibration, Error> {
        let learnt = self.calibrations(&[reference]).await?.remove(reference);
        Ok(learnt.map_or_else(Calibration::default, |learnt| Calibration { ratio: learnt.ratio, calls: learnt.calls }))
    }
}

/// The template of a model: by its service where that is known, else by the name that the operator gave it.
pub fn template(model: &Resolved) -> &'static Template {
    static TOLD: Once = Once::new();
    let service = model.provider.service().unwrap_or(&model.provider_name);
    let template = Template::of(service, &model.info.name);
    if !template.counts_exactly() {
        let told = || {
            tracing::info!(
                model = %model.reference, estimator = %template.estimator(),
                "the model's vocabulary is not known or not in this build; its tokens are counted with a related vocabulary and a margin"
            );
        };
        TOLD.call_once(told);
    }
    template
}

/// Who counts what is stored for a model.
pub(super) fn estimator(model: &Resolved) -> Estimator {
    Estimator::of(template(model))
}

/// A message that is only counted.
pub(super) fn unstored(appended: Appended) -> Message {
    let Appended { role, parts, pinned, metadata: _, response: _, created_at: _ } = appended;
    let stored = |part| host_part(part, role, pinned, Estimator::Characters);
    Message {
        id: MessageId::new(""),
        turn: None,
        step: 0,
        seq: Seq(0),
        role,
        parts: parts.into_iter().map(stored).collect(),
        overhead: estimate::MESSAGE_OVERHEAD,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        response: None,
        pinned,
        metadata: BTreeMap::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
        queued: Vec::new(),
    }
}

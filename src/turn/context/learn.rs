//! Calibration of token estimates from reported usage. It is collected in memory and written
//! periodically. The unwritten part is lost if the replica dies; later calls replace it.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{Calibration, Prompt, TenantId},
    provider::registry::ResolvedModel,
    turn::{
        Error,
        context::{estimators::template, reasoning},
        engine::Prompts,
    },
};

/// Larger prompts are not used: counting them takes longer than the result is worth.
const MAX_PROMPT_BYTES: usize = 256 << 10;

/// Larger transcripts are not read for calibration: most of them exceed [`MAX_PROMPT_BYTES`].
const MAX_TRANSCRIPT_TOKENS: i64 = 64 << 10;

/// Calls of one model between two writes (`worker/mod.rs`: `CALIBRATION_SAVE_INTERVAL`) after which a transcript is
/// no longer read only for calibration.
const ENOUGH: u32 = 4;

/// Most calls of one model that are used between two writes. Each takes as long as counting its
/// whole prompt; some dozens are as informative as some thousands.
const MAX_CALIBRATION_CALLS: u32 = 64;

impl Prompts {
    /// Compares a prompt's estimate with the reported usage, in the background.
    pub(in crate::turn) fn learn(&self, tenant: &TenantId, model: &ResolvedModel, prompt: Arc<Prompt>, reported: u32) {
        if !teaches(&prompt, reported) || self.quotas.is_deleted(tenant) {
            return;
        }
        let subject = (tenant.clone(), model.reference.clone());
        let known = self.calibration_memory.of(&subject);
        if known.is_some_and(|known| known.calls >= MAX_CALIBRATION_CALLS) {
            return;
        }
        let Ok(place) = Arc::clone(&self.calibration_memory.places).try_acquire_owned() else {
            return;
        };
        let memory = Arc::clone(&self.calibration_memory);
        let model = model.clone();
        self.calibration_memory.counts.spawn_blocking(move || {
            let predicted = predicted(&model, &prompt);
            memory.note(subject, predicted, reported);
            drop(place);
        });
    }

    /// Whether the report of a call justifies reading a transcript of this many tokens for
    /// calibration.
    pub(in crate::turn) fn is_instructive(&self, tenant: &TenantId, model: &ResolvedModel, transcript: i64) -> bool {
        transcript <= MAX_TRANSCRIPT_TOKENS
            && self
                .calibration_memory
                .of(&(tenant.clone(), model.reference.clone()))
                .is_none_or(|known| known.calls < ENOUGH)
    }

    /// Like [`Prompts::learn`], but in the foreground, for a call that a host reports. The result is
    /// written with the others.
    pub(in crate::turn) async fn learn_now(
        &self,
        tenant: &TenantId,
        model: &ResolvedModel,
        prompt: Prompt,
        reported: u32,
    ) -> Result<(), Error> {
        if !teaches(&prompt, reported) || self.quotas.is_deleted(tenant) {
            return Ok(());
        }
        let Ok(place) = Arc::clone(&self.calibration_memory.places).acquire_owned().await else {
            return Ok(());
        };
        let asked = model.clone();
        let predicted = tokio::task::spawn_blocking(move || predicted(&asked, &prompt)).await;
        drop(place);
        let predicted = predicted.map_err(|error| Error::Internal(format!("counting failed: {error}")))?;
        let subject = (tenant.clone(), model.reference.clone());
        self.calibration_memory.note(subject, predicted, reported);
        Ok(())
    }

    /// The calibrations of these models for a tenant: the stored ones, combined with what this
    /// replica has learnt and not yet written. Models without any are omitted.
    pub async fn calibrations(
        &self,
        tenant: &TenantId,
        models: &[&str],
    ) -> Result<BTreeMap<String, Calibration>, Error> {
        let writes = self.calibration_memory.writes();
        let mut stored = self.store.calibrations(tenant, models).await?;
        let known = models.iter().filter_map(|model| {
            let stored = stored.remove(*model);
            let subject = (tenant.clone(), (*model).to_owned());
            self.calibration_memory.remember(&subject, stored, writes);
            self.calibration_memory.added(&subject, stored).map(|known| ((*model).to_owned(), known))
        });
        Ok(known.collect())
    }

    /// The ratio of a model as in [`Prompts::calibrations`], cheap enough for every call: from
    /// memory, if that was read within the last 30 s. If the database does not respond, the ratio
    /// from memory, or 1. It is for display only.
    pub(in crate::turn) async fn ratio(&self, tenant: &TenantId, reference: &str) -> f64 {
        let ratio = |known: Option<Calibration>| known.map_or(1.0, |known| known.ratio);
        let (known, is_fresh) = self.calibration_memory.known(&(tenant.clone(), reference.to_owned()));
        if is_fresh {
            return ratio(known);
        }
        match self.calibration(tenant, reference).await {
            Ok(learnt) => learnt.ratio,
            Err(error) => {
                tracing::debug!(model = reference, %error, "failed to read the calibration ratio");
                ratio(known)
            }
        }
    }

    /// The calibration of a model, learnt from the tenant's calls.
    pub(in crate::turn) async fn calibration(&self, tenant: &TenantId, reference: &str) -> Result<Calibration, Error> {
        let learnt = self.calibrations(tenant, &[reference]).await?;
        let learnt = learnt.get(reference).copied();
        Ok(learnt.unwrap_or_default())
    }

    /// Writes what was learnt since the last write.
    pub async fn save_calibrations(&self) -> Result<(), Error> {
        let taught = self.calibration_memory.take();
        if taught.is_empty() {
            return Ok(());
        }
        let written = self.store.learn(&taught).await;
        self.calibration_memory.settle();
        Ok(written?)
    }
}

/// The estimate for the prompt that is sent.
fn predicted(model: &ResolvedModel, prompt: &Prompt) -> u32 {
    let Prompt { tools, generation, transcript, .. } = prompt;
    let system = &prompt.instructions();
    let messages = reasoning::as_sent(model, transcript.messages());
    let template = template(model);
    let mut terms = template.terms_of(system, tools, &messages, generation);
    terms.add(&template.terms_of_arrangement(&model.provider.arrangement(system, &messages)));
    template.count(&terms).tokens
}

/// Whether a prompt can be used for calibration. The cost of media is known less precisely than
/// that of text, so that media would distort the ratio.
fn teaches(prompt: &Prompt, reported: u32) -> bool {
    let shows = || prompt.transcript.messages().iter().any(|message| message.media().next().is_some());
    reported > 0 && prompt.bytes() <= MAX_PROMPT_BYTES && !shows()
}

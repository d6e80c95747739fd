//! What calls teach about the size of prompts: kept in memory as they come, written now and then. A
//! replica that dies forgets what it has not written; there will be other calls.

pub(in crate::turn) mod memory;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{Calibration, Prompt, TenantId},
    provider::registry::Resolved,
    turn::{
        Error,
        context::{estimators::template, reasoning},
        engine::Engine,
    },
};

/// Longer prompts teach nothing: counting them takes longer than they are worth.
const MOST_BYTES: usize = 256 << 10;

/// Transcripts of more tokens are not read to learn from them: most of them have more bytes than
/// [`MOST_BYTES`].
const MOST_TOKENS: i64 = 64 << 10;

/// Calls of one model between two writes (`worker/mod.rs`: `LESSONS`) from which on the report of a call is not worth the
/// reading of its transcript.
const ENOUGH: u32 = 4;

impl Engine {
    /// Compares a prompt's prediction with what was reported, aside from the turn.
    pub(in crate::turn) fn learn(
        self: &Arc<Self>,
        tenant: &TenantId,
        model: &Resolved,
        prompt: Arc<Prompt>,
        reported: u32,
    ) {
        if !teaches(&prompt, reported) || self.quotas.is_deleted(tenant) {
            return;
        }
        let Ok(place) = Arc::clone(&self.calibration_memory.places).try_acquire_owned() else {
            return;
        };
        let engine = Arc::clone(self);
        let model = model.clone();
        let tenant = tenant.clone();
        self.calibration_memory.counts.spawn_blocking(move || {
            let predicted = predicted(&model, &prompt);
            let subject = (tenant, model.reference);
            engine.calibration_memory.note(subject, predicted, reported);
            drop(place);
        });
    }

    /// Whether the report of a call teaches something that is worth the reading of a transcript of
    /// so many tokens.
    pub(in crate::turn) fn is_instructive(
        &self,
        tenant: &TenantId,
        model: &Resolved,
        transcript: i64,
    ) -> bool {
        transcript <= MOST_TOKENS
            && self
                .calibration_memory
                .of(&(tenant.clone(), model.reference.clone()))
                .is_none_or(|known| known.calls < ENOUGH)
    }

    /// The same while the caller waits, for a call that a host reports. It is written with the
    /// others.
    pub(in crate::turn) async fn learn_now(
        &self,
        tenant: &TenantId,
        model: &Resolved,
        prompt: Prompt,
        reported: u32,
    ) -> Result<(), Error> {
        if !teaches(&prompt, reported) || self.quotas.is_deleted(tenant) {
            return Ok(());
        }
        let Ok(place) = Arc::clone(&self.calibration_memory.places)
            .acquire_owned()
            .await
        else {
            return Ok(());
        };
        let asked = model.clone();
        let predicted = tokio::task::spawn_blocking(move || predicted(&asked, &prompt)).await;
        drop(place);
        let predicted =
            predicted.map_err(|error| Error::Internal(format!("counting failed: {error}")))?;
        let subject = (tenant.clone(), model.reference.clone());
        self.calibration_memory.note(subject, predicted, reported);
        Ok(())
    }

    /// What a tenant's calls taught of these models: what the database holds, with what this replica has learnt
    /// and not yet written; of others nothing yet.
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
            self.calibration_memory
                .added(&subject, stored)
                .map(|known| ((*model).to_owned(), known))
        });
        Ok(known.collect())
    }

    /// The ratio of a model as [`Engine::calibrations`] has it, for each call of the model: from
    /// memory, where what was read is at most 30 s old. Where the database gives no answer it
    /// is what memory has, or 1: it is only shown.
    pub(in crate::turn) async fn ratio(&self, tenant: &TenantId, reference: &str) -> f64 {
        let ratio = |known: Option<Calibration>| known.map_or(1.0, |known| known.ratio);
        let (known, is_fresh) = self
            .calibration_memory
            .known(&(tenant.clone(), reference.to_owned()));
        if is_fresh {
            return ratio(known);
        }
        match self.calibration(tenant, reference).await {
            Ok(learnt) => learnt.ratio,
            Err(error) => {
                tracing::debug!(model = reference, %error, "calibration ratio not read");
                ratio(known)
            }
        }
    }

    /// Writes what was learnt since the last time.
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

/// What is predicted for a prompt as it is sent.
fn predicted(model: &Resolved, prompt: &Prompt) -> u32 {
    let Prompt {
        tools,
        generation,
        transcript,
        ..
    } = prompt;
    let system = &prompt.instructions();
    let messages = reasoning::as_sent(model, transcript.messages());
    let template = template(model);
    let mut terms = template.terms_of(system, tools, &messages, generation);
    terms.add(&template.terms_of_arrangement(&model.provider.arrangement(system, &messages)));
    template.count(&terms).tokens
}

/// Whether there is something to learn from a prompt. What media cost is known far less well than
/// text: it would spoil the ratio of both.
fn teaches(prompt: &Prompt, reported: u32) -> bool {
    let shows = || {
        prompt
            .transcript
            .messages()
            .iter()
            .any(|message| message.media().next().is_some())
    };
    reported > 0 && prompt.bytes() <= MOST_BYTES && !shows()
}

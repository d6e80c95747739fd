//! A provider that replays scripts. It serves as the model of the demo, and hosts use it for tests.
//! `docs/scripted.md` is its manual.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{StreamExt, stream};

use super::{Error, ModelInfo, Provider, ResponseStream, error::Kind};
use crate::model::Prompt;

mod action;
mod echo;
mod file;
mod load;
mod log;
mod play;
mod script;
mod script_context;
mod signals;
mod template;
#[cfg(test)]
mod tests;

pub use load::{LoadError, Problem};
use log::Log;
use play::Player;
use script::Script;
use script_context::ScriptContext;
use signals::Signals;

/// All scripts, each of them a model. Clones share signals and log, so that a test can keep a
/// handle to control the provider.
#[derive(Debug, Clone)]
pub struct Scripted {
    name: String,
    scripts: Arc<BTreeMap<String, Arc<Script>>>,
    signals: Signals,
    log: Option<Log>,
}

impl Scripted {
    /// Creates the provider with this configured name, the built-in script `demo` and the scripts
    /// of a directory, each in a file `NAME.json`. A file `demo.json` replaces the built-in script.
    /// Files are read only here.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`] if a file cannot be read or is invalid.
    pub fn new(name: impl Into<String>, script_dir: Option<&Path>) -> Result<Self, LoadError> {
        let mut scripts = load::built_in()?;
        if let Some(dir) = script_dir {
            scripts.append(&mut load::directory(dir)?);
        }
        Ok(Self { name: name.into(), scripts: Arc::new(scripts), signals: Signals::default(), log: None })
    }

    /// Adds a script from JSON text.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`] if the script is invalid.
    pub fn with_script(mut self, name: &str, json: &str) -> Result<Self, LoadError> {
        let script = load::script(name, json).map_err(LoadError::one)?;
        Arc::make_mut(&mut self.scripts).insert(name.to_owned(), Arc::new(script));
        Ok(self)
    }

    /// Enables the log of prompts for [`Scripted::prompts`].
    #[must_use]
    pub fn with_log(mut self) -> Self {
        self.log = Some(Log::default());
        self
    }

    /// Releases a signal: every `wait_for` with this name continues, now and in future.
    pub fn release(&self, signal: &str) {
        self.signals.release(signal);
    }

    /// The most recent prompts, at most 64, oldest first. Empty unless [`Scripted::with_log`] was
    /// called.
    pub fn prompts(&self) -> Vec<Arc<Prompt>> {
        self.log.as_ref().map(Log::prompts).unwrap_or_default()
    }

    /// Selects the step that answers a prompt.
    fn begin(&self, prompt: Arc<Prompt>) -> Result<Player, Error> {
        if let Some(log) = &self.log {
            log.push(Arc::clone(&prompt));
        }
        let script = self.scripts.get(&prompt.model);
        let script = script.ok_or_else(|| self.refuse(&prompt, "does not exist"))?;
        let context = ScriptContext::new(&prompt, &script.picks);
        let step = script.steps.iter().find(|step| step.when.holds(&context));
        let step = step.ok_or_else(|| self.refuse(&prompt, "has no step for this prompt"))?;
        let earlier = step.prompts_answered.fetch_add(1, Ordering::Relaxed);
        let actions = step.actions.iter();
        let acts = actions.filter_map(|it| it.render(&context, earlier, &self.name));
        Ok(Player::new(acts.collect(), prompt))
    }

    /// The error for a prompt that no script answers.
    fn refuse(&self, prompt: &Prompt, why: &str) -> Error {
        let message = format!("the script {} {why}", prompt.model);
        Error::new(Kind::BadRequest, &self.name, message)
    }
}

impl Provider for Scripted {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        self.scripts.get(name).map(|script| script.info.clone())
    }

    fn models(&self) -> Vec<ModelInfo> {
        let scripts = self.scripts.values();
        scripts.map(|script| script.info.clone()).collect()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let provider = self.clone();
        let answer = async move {
            match provider.begin(prompt) {
                Ok(player) => play::stream(player, provider.signals).left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        };
        Box::pin(stream::once(answer).flatten())
    }
}

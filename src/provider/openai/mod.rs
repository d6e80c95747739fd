//! Chat Completions, as OpenAI defined it and many others speak it. What sets those apart is a table in [`dialect`].

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Answer, ModelInfo, Provider,
    http::{Client, Settings, Unusable},
};
use crate::model::{Generation, Prompt, generation::Unsupported};

mod calls;
pub mod decode;
mod details;
pub mod dialect;
pub mod encode;
mod ids;
mod messages;
mod options;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

use decode::Decoder;
use dialect::Dialect;
use encode::Form;

/// Under this name the wishes and the metadata of this kind of provider stand.
const KIND: &str = "openai";

/// Where calls go, behind the base URL.
const PATH: &str = "chat/completions";

/// What a model is taken for of which nothing is known.
const UNKNOWN_WINDOW: u32 = 16_000;

/// And its longest answer.
const UNKNOWN_MAX_OUTPUT: u32 = 4_096;

/// A service that speaks Chat Completions.
#[derive(Debug, Clone)]
pub struct OpenAi {
    name: String,
    client: Client,
    dialect: &'static Dialect,
    developer: bool,
    declared: BTreeMap<String, ModelInfo>,
}

impl OpenAi {
    /// The provider of that configured name. Without a dialect the host tells it.
    pub fn new(name: &str, settings: Settings, dialect: Option<&'static Dialect>) -> Result<Self, Unusable> {
        let client = Client::new(name, settings)?;
        let dialect = dialect.unwrap_or_else(|| dialect::of_host(client.host()));
        Ok(Self { name: name.to_owned(), client, dialect, developer: false, declared: BTreeMap::new() })
    }

    /// Gives instructions under the role `developer`, where the service knows it.
    #[must_use]
    pub fn with_developer_role(mut self, developer: bool) -> Self {
        self.developer = developer && self.dialect.developer_role;
        self
    }

    /// Declares a model.
    #[must_use]
    pub fn with_model(mut self, model: ModelInfo) -> Self {
        self.declared.insert(model.name.clone(), model);
        self
    }
}

impl Provider for OpenAi {
    fn model(&self, name: &str) -> Option<ModelInfo> {
        (!name.is_empty()).then(|| self.declared.get(name).cloned().unwrap_or_else(|| undeclared(name)))
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.declared.values().cloned().collect()
    }

    fn cannot_take(&self, model: &ModelInfo, wanted: &Generation) -> Vec<Unsupported> {
        options::cannot_take(self.dialect, &model.name, wanted)
    }

    fn call(&self, prompt: Arc<Prompt>) -> Answer {
        let form = Form { dialect: self.dialect, provider: &self.name, developer: self.developer };
        let body = encode::body(&prompt, form);
        self.client.clone().stream(PATH, body, Decoder::new(self.dialect))
    }
}

/// A model that the configuration does not declare: any service may have any.
fn undeclared(name: &str) -> ModelInfo {
    ModelInfo {
        name: name.to_owned(),
        display_name: name.to_owned(),
        context_window: UNKNOWN_WINDOW,
        max_output: UNKNOWN_MAX_OUTPUT,
        supports_tools: true,
    }
}

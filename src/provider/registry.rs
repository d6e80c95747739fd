//! The registry of configured providers, which resolves `PROVIDER/MODEL` references.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream};
use jiff::Timestamp;
use tokio::task::spawn_blocking;

use super::{ModelInfo, Provider, ResponseStream};
use crate::{
    fair::FairSemaphore,
    model::{Prompt, TenantId},
};

/// Requests for prompts of at least this many bytes are encoded on a blocking thread.
const LARGE_PROMPT_BYTES: usize = 512 << 10;

/// Limits encoding of large requests to one at a time, because encoding needs several times the
/// memory of the request.
static ENCODING_GATE: LazyLock<Arc<FairSemaphore>> = LazyLock::new(|| FairSemaphore::new(1));

/// All configured providers, by name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    /// Why configured providers cannot be called, by name.
    unusable: BTreeMap<String, String>,
}

/// A model reference that could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedModel {
    /// The reference as requested.
    pub model: String,
    /// Why its provider cannot be called, if a provider of that name is configured.
    pub unusable: Option<String>,
}

impl std::fmt::Display for UnresolvedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, unusable } = self;
        match unusable {
            None => write!(f, "no configured provider has the model {model}"),
            Some(why) => write!(f, "the provider of the model {model} cannot be called: {why}"),
        }
    }
}

impl From<&str> for UnresolvedModel {
    fn from(model: &str) -> Self {
        Self { model: model.to_owned(), unusable: None }
    }
}

/// A resolved model reference.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// The reference, `PROVIDER/MODEL`. An alias is replaced by the model's name.
    pub reference: String,
    /// Configured name of the provider.
    pub provider_name: String,
    pub provider: Arc<dyn Provider>,
    pub info: ModelInfo,
}

impl ResolvedModel {
    fn new(provider_name: &str, provider: &Arc<dyn Provider>, info: ModelInfo) -> Self {
        Self {
            reference: format!("{provider_name}/{}", info.name),
            provider_name: provider_name.to_owned(),
            provider: Arc::clone(provider),
            info,
        }
    }

    /// Calls the model. The request of a large prompt is encoded on a blocking thread, so that it
    /// does not delay other tasks; tenants take turns.
    pub fn call(&self, tenant: &TenantId, prompt: Arc<Prompt>) -> ResponseStream {
        if prompt.bytes() < LARGE_PROMPT_BYTES {
            return self.provider.call(prompt);
        }
        let provider = Arc::clone(&self.provider);
        let tenant = tenant.clone();
        let writing = async move {
            let place = ENCODING_GATE.acquire(&tenant).await;
            let write = move || {
                let _place = place;
                provider.call(prompt)
            };
            match spawn_blocking(write).await {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The process is shutting down, so the response ends.
                    Err(_) => stream::empty().boxed(),
                },
            }
        };
        stream::once(writing).flatten().boxed()
    }
}

impl Registry {
    /// Adds a provider under its configured name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        self.providers.insert(name.into(), provider);
        self
    }

    /// Adds a configured provider that cannot be called, and the reason. Its models cannot be
    /// resolved.
    #[must_use]
    pub fn with_unusable(mut self, name: impl Into<String>, why: impl Into<String>) -> Self {
        self.unusable.insert(name.into(), why.into());
        self
    }

    /// Why a reference could not be resolved.
    pub fn missing(&self, reference: &str) -> UnresolvedModel {
        let provider = reference.split_once('/').map(|(provider, _)| provider);
        UnresolvedModel {
            model: reference.to_owned(),
            unusable: provider.and_then(|name| self.unusable.get(name)).cloned(),
        }
    }

    /// Resolves a model reference. Returns `None` if no configured provider has the model.
    pub fn resolve(&self, reference: &str) -> Option<ResolvedModel> {
        let (provider_name, model) = reference.split_once('/')?;
        let provider = self.providers.get(provider_name)?;
        let info = provider.model(model)?;
        Some(ResolvedModel::new(provider_name, provider, info))
    }

    /// Refreshes the services' model lists that are older than `interval`, all in parallel.
    pub async fn refresh(&self, now: Timestamp, interval: Duration) {
        let providers = self.providers.values();
        join_all(providers.map(|provider| provider.refresh(now, interval))).await;
    }

    /// The models that providers know by name, ordered by reference.
    pub fn models(&self) -> Vec<ResolvedModel> {
        let models = self.providers.iter().flat_map(|(name, provider)| {
            let models = provider.models().into_iter();
            models.map(move |info| ResolvedModel::new(name, provider, info))
        });
        let mut models: Vec<_> = models.collect();
        models.sort_by(|a, b| a.reference.cmp(&b.reference));
        models
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::{context::testing, model::BlobId, provider::Chunk};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A provider that blocks in `call` until it is released.
    #[derive(Debug)]
    struct Slow(Mutex<mpsc::Receiver<()>>);

    impl Provider for Slow {
        fn kind(&self) -> &'static str {
            "slow"
        }

        fn model(&self, name: &str) -> Option<ModelInfo> {
            Some(ModelInfo::unknown(name))
        }

        fn models(&self) -> Vec<ModelInfo> {
            Vec::new()
        }

        fn call(&self, _: Arc<Prompt>) -> ResponseStream {
            let told = self.0.lock().unwrap();
            told.recv_timeout(PATIENCE).expect("the other task did not run");
            stream::iter([Ok(Chunk::Text("Here.".to_owned()))]).boxed()
        }
    }

    /// A provider that reports the start of each `call` and then blocks until it is released.
    #[derive(Debug)]
    struct Noting {
        begun: mpsc::SyncSender<String>,
        told: Mutex<mpsc::Receiver<()>>,
    }

    impl Provider for Noting {
        fn kind(&self) -> &'static str {
            "noting"
        }

        fn model(&self, name: &str) -> Option<ModelInfo> {
            Some(ModelInfo::unknown(name))
        }

        fn models(&self) -> Vec<ModelInfo> {
            Vec::new()
        }

        fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
            self.begun.send(prompt.model.clone()).unwrap();
            let told = self.told.lock().unwrap();
            told.recv_timeout(PATIENCE).expect("nobody went on");
            stream::empty().boxed()
        }
    }

    fn large(model: &str) -> Arc<Prompt> {
        let prompt = testing::prompt(vec![testing::user("What is this?")]);
        let mut prompt = Prompt { model: model.to_owned(), ..prompt };
        let content = vec![0; LARGE_PROMPT_BYTES].into();
        prompt.contents.insert(BlobId::new("picture"), content);
        Arc::new(prompt)
    }

    #[tokio::test]
    async fn of_large_requests_that_wait_those_of_another_tenant_are_written_first() {
        let (begun, begins) = mpsc::sync_channel(4);
        let (tell, told) = mpsc::sync_channel(4);
        let told = Mutex::new(told);
        let noting: Arc<dyn Provider> = Arc::new(Noting { begun, told });
        let model = Registry::default().with("noting", noting).resolve("noting/m").unwrap();
        let mut calls = Vec::new();
        for whose in ["a", "a", "a", "b"] {
            let mut answer = model.call(&TenantId::new(whose), large(whose));
            let call = tokio::spawn(async move { answer.next().await.is_none() });
            calls.push(call);
            // Lets it run until it encodes or waits.
            tokio::task::yield_now().await;
        }
        for _ in &calls {
            tell.send(()).unwrap();
        }
        for call in calls {
            assert!(call.await.unwrap());
        }
        let order: Vec<String> = begins.try_iter().collect();
        assert_eq!(order, ["a", "b", "a", "a"]);
    }

    #[tokio::test]
    async fn others_run_while_a_large_request_is_written() {
        let (tell, told) = mpsc::sync_channel(1);
        let slow: Arc<dyn Provider> = Arc::new(Slow(Mutex::new(told)));
        let registry = Registry::default().with("slow", slow);
        let model = registry.resolve("slow/m").unwrap();
        let mut answer = model.call(&TenantId::new("t"), large("m"));
        let other = tokio::spawn(async move { tell.send(()).unwrap() });
        assert!(matches!(answer.next().await, Some(Ok(_))));
        other.await.unwrap();
    }
}

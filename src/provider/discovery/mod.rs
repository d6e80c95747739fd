//! Discovers the models of a service from its model list. Each family of services has one file that
//! reads its lists; [`listing`] caches the most recent list.

mod anthropic;
mod compatible;
mod gemini;
mod list;
pub mod listing;
mod llamacpp;
mod lmstudio;
mod mistral;
mod ollama;
mod openrouter;

pub use list::{ModelFacts, ModelList, Thinking};
pub use listing::CachedModelList;

use std::{collections::BTreeMap, time::Duration};

use http::HeaderMap;
use serde_json::{Value, json};

use list::{Page, Unreadable};

use super::{Error, error::Kind, http::Client};

/// Limit on the pages of a list.
const MAX_PAGES: usize = 20;

/// Limit on the Ollama models whose capabilities are queried in one refresh.
const MAX_SHOWN: usize = 64;

/// Minimum interval between two fetches of a list from a hosted service. Such lists change only
/// with releases.
const MIN_HOSTED_INTERVAL: Duration = Duration::from_hours(1);

/// How a service lists its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `GET models`; the facts that are listed depend on the service.
    Compatible,
    /// `GET models` of a self-hosted server. Its context windows change when it restarts.
    Server,
    OpenRouter,
    Mistral,
    LlamaCpp,
    LmStudio,
    Ollama,
    Anthropic,
    /// Gemini, with its own protocol.
    Gemini,
}

impl Family {
    /// The family of a server in a private network. An unknown server there counts as self-hosted.
    fn for_private_network(self) -> Self {
        match self {
            Self::Compatible => Self::Server,
            Self::Server
            | Self::OpenRouter
            | Self::Mistral
            | Self::LlamaCpp
            | Self::LmStudio
            | Self::Ollama
            | Self::Anthropic
            | Self::Gemini => self,
        }
    }

    /// How long a list is valid if those of self-hosted servers are valid for `interval`.
    fn interval(self, interval: Duration) -> Duration {
        match self {
            Self::Server | Self::LlamaCpp | Self::LmStudio | Self::Ollama => interval,
            Self::Compatible | Self::OpenRouter | Self::Mistral | Self::Anthropic | Self::Gemini => {
                interval.max(MIN_HOSTED_INTERVAL)
            }
        }
    }
}

/// Why a list could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Call(#[from] Error),
    #[error(transparent)]
    List(#[from] Unreadable),
}

/// Fetches a service's list. `known` is the previous list: facts that do not change are not queried
/// again.
async fn fetch_list(client: &Client, family: Family, known: Option<&ModelList>) -> Result<ModelList, Error> {
    let fetched = fetch(client, family, known).await;
    fetched.map_err(|error| match error {
        FetchError::Call(error) => error,
        FetchError::List(error) => Error::new(Kind::Broken, client.provider(), error.to_string()),
    })
}

async fn fetch(client: &Client, family: Family, known: Option<&ModelList>) -> Result<ModelList, FetchError> {
    Ok(match family {
        Family::Compatible | Family::Server => compatible::read(&client.get("models").await?)?,
        Family::OpenRouter => openrouter::read(&client.get("models").await?)?,
        Family::Mistral => mistral::read(&client.get("models").await?)?,
        Family::LlamaCpp => llamacpp(client).await?,
        Family::LmStudio => lmstudio(client).await?,
        Family::Ollama => ollama(client, known).await?,
        Family::Anthropic => pages(client, "models?limit=1000", "after_id", anthropic::read).await?,
        Family::Gemini => pages(client, "models?pageSize=1000", "pageToken", gemini::read).await?,
    })
}

/// Fetches all pages, one after another, each with the token from the page before it in the
/// parameter `token`. A repeated token ends the list.
async fn pages(
    client: &Client,
    path: &str,
    token: &str,
    read: impl Fn(&Value) -> Result<Page, Unreadable>,
) -> Result<ModelList, FetchError> {
    let mut whole = ModelList::default();
    let mut after = String::new();
    for _ in 0..MAX_PAGES {
        let path = format!("{path}{}", parameter(token, &after));
        let (page, next) = read(&client.get(&path).await?)?;
        whole.extend(page)?;
        match next {
            Some(next) if next != after => after = next,
            Some(_) | None => break,
        }
    }
    Ok(whole)
}

/// A query parameter, if there is a value.
fn parameter(name: &str, value: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    match value {
        "" => String::new(),
        value => format!("&{name}={}", value.bytes().map(escaped).collect::<String>()),
    }
}

/// Either of the two requests may fail.
async fn llamacpp(client: &Client) -> Result<ModelList, FetchError> {
    let models = client.get("models").await;
    let props = client.get("/props").await;
    match (models, props) {
        (Err(error), Err(_)) => Err(error.into()),
        (models, props) => Ok(llamacpp::read(props.ok().as_ref(), models.ok().as_ref())?),
    }
}

async fn lmstudio(client: &Client) -> Result<ModelList, FetchError> {
    if let Ok(answer) = client.get("/api/v1/models").await
        && let Ok(listed) = lmstudio::read(&answer)
    {
        return Ok(listed);
    }
    let older = client.get("/api/v0/models").await?;
    Ok(lmstudio::read_older(&older)?)
}

/// The capabilities of a model are queried once: they change only with the model's file.
async fn ollama(client: &Client, known: Option<&ModelList>) -> Result<ModelList, FetchError> {
    let models = client.get("models").await?;
    let loaded = client.get("/api/ps").await?;
    let mut listed = ollama::read(&models)?;
    ollama::add_loaded(&mut listed, &loaded)?;
    let mut able = BTreeMap::new();
    let mut shown = 0;
    for (name, model) in listed.models {
        let before = known.and_then(|known| known.models.get(&name));
        let model = match before.filter(|before| before.tools.is_some()) {
            Some(before) => Some(ModelFacts { context_window: model.context_window, ..before.clone() }),
            None if shown < MAX_SHOWN => {
                shown += 1;
                let body = json!({"model": name}).to_string().into_bytes();
                match client.post_json("/api/show", &HeaderMap::new(), body).await {
                    Ok(answer) => ollama::with_abilities(model, &answer),
                    Err(_) => Some(model),
                }
            }
            None => Some(model),
        };
        able.extend(model.map(|model| (name, model)));
    }
    Ok(ModelList { models: able, any: None })
}

/// Applies every reader to one response, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(super) fn read_in_every_way(answer: &Value) -> Vec<ModelList> {
    let first = |page: Page| page.0;
    let mut lists: Vec<ModelList> = [
        compatible::read(answer),
        openrouter::read(answer),
        mistral::read(answer),
        lmstudio::read(answer),
        lmstudio::read_older(answer),
        ollama::read(answer),
        llamacpp::read(Some(answer), None),
        llamacpp::read(Some(answer), Some(answer)),
        anthropic::read(answer).map(first),
        gemini::read(answer).map(first),
    ]
    .into_iter()
    .flatten()
    .collect();
    for list in &mut lists {
        if ollama::add_loaded(list, answer).is_ok() {
            let able = |model| ollama::with_abilities(model, answer);
            list.any = list.any.take().and_then(able);
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_servers_nearby_are_read_more_often_than_those_of_services() {
        let minute = Duration::from_mins(1);
        let day = Duration::from_hours(24);
        assert_eq!(Family::LmStudio.interval(minute), minute);
        assert_eq!(Family::OpenRouter.interval(minute), MIN_HOSTED_INTERVAL);
        assert_eq!(Family::OpenRouter.interval(day), day);
    }

    #[test]
    fn a_token_of_a_page_cannot_change_the_query() {
        assert_eq!(parameter("after", ""), "");
        assert_eq!(parameter("after", "a-b_1"), "&after=a-b_1");
        assert_eq!(parameter("after", "a&b=ü"), "&after=a%26b%3D%C3%BC");
    }
}

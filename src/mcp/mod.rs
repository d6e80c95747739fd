//! MCP servers whose tools contextd itself calls: those that the configuration names, and no other.
//!
//! A call is sent once and never repeated here. Whether one that failed may have run is said by the
//! error.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use http::HeaderName;
use secrecy::SecretString;
use tokio::{sync::Semaphore, time::timeout};

#[cfg(feature = "mcp")]
mod arguments;
#[cfg(feature = "mcp")]
mod client;
#[cfg(not(feature = "mcp"))]
#[path = "absent.rs"]
mod client;
mod tools;

use client::Client;

/// How long a list of tools is used before the server is asked again.
const LIST_TTL: Duration = Duration::from_mins(1);

/// How long a server that could not be asked is not asked again.
const FAILED_TTL: Duration = Duration::from_secs(5);

/// How long a connection and the list of tools may take together.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// Most tools of a server.
const MOST_TOOLS: usize = 512;

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is.
    pub url: String,
    /// What every request carries; all of it is taken for secret.
    pub headers: Vec<(HeaderName, SecretString)>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long a call may take, where the tool set does not say.
    pub call_timeout: Duration,
    /// Calls that run at once.
    pub max_calls: usize,
    /// Bytes of an answer.
    pub max_result_bytes: usize,
}

/// The settings of a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The program has no client.
    #[error("this program was built without the feature mcp")]
    NotBuilt,
    /// The value cannot be sent. It is not shown: it may be a key.
    #[error("the value of the header {0} holds characters that cannot be sent")]
    Header(HeaderName),
    /// No client could be made.
    #[error("cannot set up HTTP: {0}")]
    Http(String),
}

/// The tools of a server cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration has no such server.
    #[error("the configuration has no MCP server {0}")]
    Unknown(String),
    /// It could not be asked.
    #[error("the MCP server {server} cannot be asked for its tools: {reason}")]
    Failed {
        /// The server.
        server: String,
        /// Why, without its address and secrets.
        reason: String,
    },
    /// What it lists cannot be used as the tool set says.
    #[error("the tools of the MCP server {server} cannot be used: {reason}")]
    Tools {
        /// The server.
        server: String,
        /// Why.
        reason: String,
    },
}

/// A call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was not sent.
    #[error("the call was not run: {0}")]
    NotRun(String),
    /// The server refused it.
    #[error("the MCP server refused the call: {0}")]
    Refused(String),
    /// It was sent, and its result is lost: the tool may have run.
    #[error("the outcome of the call is unknown, it may have run: {0}")]
    Unknown(String),
}

/// A tool as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    name: String,
    description: String,
    /// JSON Schema of the arguments as text.
    input_schema: String,
}

/// What a tool gave.
#[derive(Debug)]
pub struct Output {
    /// Its texts in order. What is no text is named in one.
    pub texts: Vec<String>,
    /// The tool says that it failed.
    pub is_error: bool,
}

/// The servers that the configuration names.
#[derive(Debug, Default)]
pub struct Servers {
    by_name: BTreeMap<String, Server>,
}

#[derive(Debug)]
struct Server {
    client: Client,
    call_timeout: Duration,
    slots: Semaphore,
    /// What it listed last, or why it did not. One caller asks, the others wait for the answer.
    listed: tokio::sync::Mutex<Option<Remembered>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    at: Instant,
    list: Result<Arc<[Listed]>, String>,
}

impl Servers {
    /// Servers by name.
    pub fn new(
        settings: impl IntoIterator<Item = (String, Settings)>,
    ) -> Result<Self, (String, Unusable)> {
        let mut by_name = BTreeMap::new();
        for (name, settings) in settings {
            let server = Server {
                call_timeout: settings.call_timeout,
                slots: Semaphore::new(settings.max_calls),
                listed: tokio::sync::Mutex::new(None),
                client: Client::new(&settings).map_err(|error| (name.clone(), error))?,
            };
            by_name.insert(name, server);
        }
        Ok(Self { by_name })
    }

    /// Whether no server is configured.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Calls a tool, which takes a place among the calls of its server. The caller bounds the time;
    /// a call that is dropped is cancelled at the server.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &str,
    ) -> Result<Output, CallError> {
        let Some(found) = self.by_name.get(server) else {
            let error = Error::Unknown(server.to_owned());
            return Err(CallError::NotRun(error.to_string()));
        };
        let _slot = found
            .slots
            .acquire()
            .await
            .map_err(|error| CallError::NotRun(error.to_string()))?;
        found.client.call(tool, arguments).await
    }

    fn server(&self, name: &str) -> Result<&Server, Error> {
        self.by_name
            .get(name)
            .ok_or_else(|| Error::Unknown(name.to_owned()))
    }

    /// What a server lists, at most as old as [`LIST_TTL`], and newer than the last change that the
    /// server announced.
    async fn listed(&self, name: &str) -> Result<Arc<[Listed]>, Error> {
        let server = self.server(name)?;
        let mut listed = server.listed.lock().await;
        let changed = server.client.take_changed();
        let kept = listed.as_ref().filter(|kept| match &kept.list {
            Ok(_) => !changed && kept.at.elapsed() < LIST_TTL,
            Err(_) => kept.at.elapsed() < FAILED_TTL,
        });
        let list = match kept {
            Some(kept) => kept.list.clone(),
            None => {
                let list = match timeout(LIST_TIMEOUT, server.client.list(MOST_TOOLS)).await {
                    Ok(list) => list.map(Arc::from),
                    Err(_) => Err(format!("no answer within {} s", LIST_TIMEOUT.as_secs())),
                };
                *listed = Some(Remembered {
                    at: Instant::now(),
                    list: list.clone(),
                });
                list
            }
        };
        list.map_err(|reason| Error::Failed {
            server: name.to_owned(),
            reason,
        })
    }
}

//! MCP servers whose tools contextd itself calls: those that the configuration names, and no other.
//!
//! A call is sent once, and repeated only where it certainly was not run. Whether one that failed may have
//! run is said by the error.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::HeaderName;
use secrecy::SecretString;

use crate::model::{TenantId, media::NewContent};

#[cfg(feature = "mcp")]
mod arguments;
#[cfg(feature = "mcp")]
mod client;
#[cfg(not(feature = "mcp"))]
#[path = "absent.rs"]
mod client;
#[cfg(feature = "mcp")]
mod listing;
#[cfg(feature = "mcp")]
mod oauth;
#[cfg(feature = "mcp")]
mod output;
mod schemas;
#[cfg(feature = "mcp")]
mod secrets;
mod servers;
#[cfg(feature = "mcp")]
mod session;
mod tools;
#[cfg(feature = "mcp")]
mod transport;

pub use servers::Servers;

/// Most tools of a server.
const MOST_TOOLS: usize = 512;

/// Most characters of a text for people.
#[cfg(feature = "mcp")]
const DISPLAY_CHARS: usize = 1_000;

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
    /// Where its tokens come from. `None` means that the headers hold one, or that it wants none.
    pub oauth: Option<OauthSettings>,
    /// The tenants that may use it. For others it is not configured.
    pub tenants: Tenants,
}

/// How tokens of a server are had, by OAuth 2.1 client credentials.
#[derive(Debug, Clone)]
pub struct OauthSettings {
    /// The token endpoint.
    pub token_url: String,
    /// Who asks.
    pub client_id: String,
    /// The secret of the client.
    pub client_secret: SecretString,
    /// Further parameters of the request.
    pub parameters: BTreeMap<String, String>,
}

/// The tenants that may use a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// Every one.
    All,
    /// These.
    Named(BTreeSet<TenantId>),
}

impl Tenants {
    fn include(&self, tenant: &TenantId) -> bool {
        match self {
            Self::All => true,
            Self::Named(tenants) => tenants.contains(tenant),
        }
    }
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
    /// The configuration has no such server for the tenant.
    #[error("the configuration has no MCP server {0} for this tenant")]
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
    /// What the model reads, in order.
    pub pieces: Vec<Piece>,
    /// What people read, which the model does not; empty where there is no such text.
    pub display_text: String,
    /// The tool says that it failed.
    pub is_error: bool,
}

/// A piece of what a tool gave.
#[derive(Debug)]
pub enum Piece {
    /// Text. What can be given in no other way is named in one.
    Text(String),
    /// An image, a sound or a document.
    Media {
        /// The content, which is stored nowhere yet.
        content: NewContent,
        /// Name of the file; empty when it has none.
        filename: String,
    },
}

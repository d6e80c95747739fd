//! MCP servers whose tools contextd calls: only those that the configuration names.
//!
//! A call is sent once. It is repeated only if it certainly did not run. The error of a failed call says whether the
//! tool may have run.

use std::collections::BTreeSet;

use http::HeaderName;

use crate::{
    config::{EVERY_TENANT, KeyError, McpConfig},
    model::{TenantId, media::NewContent},
};

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

/// Maximum number of tools of a server.
const MAX_TOOLS: usize = 512;

/// Maximum number of characters of a text for display.
#[cfg(feature = "mcp")]
const DISPLAY_CHARS: usize = 1_000;

/// The tenants that may use a server. For others it is not configured.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tenants {
    All,
    Named(BTreeSet<TenantId>),
}

impl Tenants {
    fn of(config: &McpConfig, is_shared: bool) -> Self {
        if !is_shared || config.tenants.iter().any(|tenant| tenant == EVERY_TENANT) {
            Self::All
        } else {
            Self::Named(config.tenants.iter().map(TenantId::new).collect())
        }
    }

    fn include(&self, tenant: &TenantId) -> bool {
        match self {
            Self::All => true,
            Self::Named(tenants) => tenants.contains(tenant),
        }
    }
}

/// Why the settings of a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The program was built without the MCP client.
    #[error("this program was built without the feature mcp")]
    NotBuilt,
    /// The token or the client secret cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No client secret is configured.
    #[error("the OAuth client has no secret")]
    NoClientSecret,
    #[error("{0:?} is not a valid header name")]
    HeaderName(String),
    /// The value cannot be sent. It is not shown, since it may be a key.
    #[error("the value of the header {0} contains invalid characters")]
    Header(HeaderName),
    /// The HTTP client could not be created.
    #[error("cannot create the HTTP client: {0}")]
    Http(String),
}

/// Why the tools of a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The tenant has no such server configured.
    #[error("no MCP server {0} is configured for this tenant")]
    UnknownServer(String),
    /// The server could not be reached, or returned an error.
    #[error("cannot list the tools of the MCP server {server}: {reason}")]
    ListFailed {
        server: String,
        /// The reason, without the server's address and secrets.
        reason: String,
    },
    /// The listed tools do not fit the tool set.
    #[error("the tools of the MCP server {server} cannot be used: {reason}")]
    InvalidTools {
        /// The server's configured name.
        server: String,
        reason: String,
    },
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call was not sent.
    #[error("the call was not run: {0}")]
    NotRun(String),
    /// The server refused the call.
    #[error("the MCP server refused the call: {0}")]
    Refused(String),
    /// The call was sent, and its result was lost: the tool may have run.
    #[error("the outcome of the call is unknown; it may have run: {0}")]
    Unknown(String),
}

/// A tool as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedTool {
    name: String,
    description: String,
    /// The JSON Schema of the arguments, as text.
    input_schema: String,
}

/// The output of a tool.
#[derive(Debug)]
pub struct Output {
    /// The content for the model, in order.
    pub pieces: Vec<Piece>,
    /// Text for display that the model does not read; empty if there is none.
    pub display_text: String,
    /// Whether the tool reports a failure.
    pub is_error: bool,
}

/// A part of the output of a tool.
#[derive(Debug)]
pub enum Piece {
    /// Text. Content that cannot be passed on in another way is described in a text.
    Text(String),
    /// An image, an audio recording or a document.
    Media {
        /// The content, which is not stored yet.
        content: NewContent,
        /// The file name; empty if it has none.
        filename: String,
    },
}

//! MCP servers whose tools contextd itself calls: those that the configuration names, and no other.
//!
//! A call is sent once and never repeated here. Whether one that failed may have run is said by the
//! error.

use std::time::Duration;

use http::HeaderName;
use secrecy::SecretString;

#[cfg(feature = "mcp")]
mod arguments;
#[cfg(feature = "mcp")]
mod client;
#[cfg(not(feature = "mcp"))]
#[path = "absent.rs"]
mod client;
mod servers;
mod tools;

pub use servers::Servers;

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

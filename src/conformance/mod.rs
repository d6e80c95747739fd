//! A conformance kit for hosts: runs a host's driver against a real server behind a proxy that fails as the protocol
//! allows, and reports what the host did wrong. docs/conformance.md describes it to the authors of hosts.

use std::{ffi::OsString, path::PathBuf, time::Duration};

mod check;
mod fault;
mod frames;
mod host;
mod kit;
mod proxy;
mod record;
mod scenario;
mod server;

pub use self::check::Finding;
pub use self::kit::{Kit, Outcome};
pub use self::scenario::{Scenario, scenarios};

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// The driver and its arguments.
    pub command: Vec<OsString>,
    /// Names of the scenarios; empty for all.
    pub scenarios: Vec<String>,
    /// How long one run may take.
    pub timeout: Duration,
    /// Runs at the same time.
    pub parallel: usize,
}

/// What the servers are made of.
#[derive(Debug)]
pub struct Setup {
    /// The contextd program.
    pub program: PathBuf,
    /// Where temporary files go.
    pub temporary: PathBuf,
    /// The environment of the server. Settings of contextd are not among it.
    pub environment: Vec<(String, String)>,
}

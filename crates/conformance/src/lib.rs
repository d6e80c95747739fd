//! A conformance kit for hosts: runs a host's driver against a real server behind a proxy, which injects the faults
//! that the protocol allows, and reports the errors of the host. docs/conformance.md describes it to the authors of hosts.

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
    /// Time limit of one run.
    pub timeout: Duration,
    /// Number of concurrent runs.
    pub parallel: usize,
}

/// How to start the servers.
#[derive(Debug)]
pub struct Setup {
    /// The contextd program.
    pub program: PathBuf,
    /// The directory for temporary files.
    pub temporary: PathBuf,
    /// The environment of the server, without contextd settings.
    pub environment: Vec<(String, String)>,
}

//! A stub of the client for a program that is built without it: no server can be configured.

use super::{CallError, ListedTool, Output, SettingsError};
use crate::config::{Environment, McpConfig};

#[derive(Debug)]
pub(super) enum Client {}

impl Client {
    pub(super) fn new(_: &McpConfig, _: &Environment) -> Result<Self, SettingsError> {
        Err(SettingsError::NotBuilt)
    }

    pub(super) async fn take_changed(&self) -> bool {
        match *self {}
    }

    pub(super) async fn list(&self, _: usize) -> Result<Vec<ListedTool>, String> {
        match *self {}
    }

    pub(super) async fn call(&self, _: &str, _: &str) -> Result<Output, CallError> {
        match *self {}
    }
}

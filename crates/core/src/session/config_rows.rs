//! The rows of a configuration in a change.

use crate::model::SessionConfig;

/// A configuration to be stored, with the size of its tools.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewConfig<'a> {
    pub config: &'a SessionConfig,
    /// Size of its tool definitions in tokens.
    pub tools_tokens: u32,
    /// Name of the estimator that counted them.
    pub estimator: &'a str,
}

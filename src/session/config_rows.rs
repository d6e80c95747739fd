//! What a change writes of a configuration.

use crate::model::SessionConfig;

/// A configuration to be stored, with the size of its tools.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewConfig<'a> {
    /// The configuration.
    pub config: &'a SessionConfig,
    /// Tokens of its tool definitions.
    pub tools_tokens: u32,
    /// Which estimator counted them.
    pub estimator: &'a str,
}

//! How requests of one provider are written.

use super::dialect::Dialect;

/// How requests of one provider are written.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// What the service speaks.
    pub dialect: &'a Dialect,
    /// Configured name of the provider.
    pub provider: &'a str,
    /// Instructions go under the role `developer`.
    pub developer: bool,
}

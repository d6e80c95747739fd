//! How requests of one provider are encoded.

use super::dialect::Dialect;

/// How requests of one provider are encoded.
#[derive(Debug, Clone, Copy)]
pub struct EncodeOptions<'a> {
    /// The dialect of the service.
    pub dialect: &'a Dialect,
    /// Configured name of the provider.
    pub provider: &'a str,
    /// Whether instructions are sent with the role `developer`.
    pub developer: bool,
}

//! Messages of the AI SDK for TypeScript (ModelMessage of versions 5 to 7), in both directions. No
//! service accepts this format: the SDK converts it to requests.

pub(in crate::provider) mod export;
pub(in crate::provider) mod history;
pub(in crate::provider) mod import;

pub(in crate::provider) use export::request;

#[cfg(test)]
mod tests;

/// The version whose format is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum Version {
    /// Version 5. Version 6 accepts the same.
    Five,
    /// Version 7, in which files state the kind of their data. A URL is a string in either version,
    /// because JSON has no form for the URL objects that the SDK expects in `{type: "url"}`.
    Seven,
}

/// Metadata key under which the options of a part are kept unchanged.
const KIND: &str = "ai-sdk";

/// Provider name of items that only the SDK can read: parts of provider-executed tools, whose
/// request format only the SDK knows. No configured provider has this name.
const READER: &str = "AI SDK";

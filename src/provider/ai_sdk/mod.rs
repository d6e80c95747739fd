//! Messages of the AI SDK for TypeScript (ModelMessage of its versions 5 to 7), in both directions.
//! No service speaks it: the SDK makes requests of it.

pub(in crate::provider) mod export;
pub(in crate::provider) mod history;
pub(in crate::provider) mod import;

pub(in crate::provider) use export::request;

#[cfg(test)]
mod tests;

/// Whose form messages are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum Version {
    /// Version 5; 6 takes the same.
    Five,
    /// Version 7: files say what their data is. An address is a text in either, since JSON has no form
    /// for the URL objects that the SDK wants in `{type: "url"}`.
    Seven,
}

/// Under what the options of a part are kept as they came.
const KIND: &str = "ai-sdk";

/// Who alone can read parts of tools that a provider ran: only the SDK knows their form in requests.
/// No configured provider has such a name.
const READER: &str = "AI SDK";

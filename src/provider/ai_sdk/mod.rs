//! Messages of the AI SDK for TypeScript (ModelMessage of its versions 5 and 6), in both directions.
//! No service speaks it: the SDK makes requests of it.

pub(in crate::provider) mod export;
pub(in crate::provider) mod import;

pub use export::request;

#[cfg(test)]
mod tests;

/// Under what the options of a part are kept as they came.
const KIND: &str = "ai-sdk";

/// Who alone can read parts of tools that a provider ran: only the SDK knows their form in requests.
/// No configured provider has such a name.
const READER: &str = "AI SDK";

//! Messages of the AI SDK for TypeScript (ModelMessage of versions 5 to 7), in both directions. No
//! service accepts this format: the SDK converts it to requests.

pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod import;

pub(crate) use export::request;

#[cfg(test)]
mod tests;

/// The version whose format is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
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

/// Metadata of contextd's providers, and the options in which the SDK keeps it: the kind of
/// provider, the name in its metadata, the SDK's names of the provider, and the name of the option.
const OPTIONS: [(&str, &str, &[&str], &str); 6] = [
    ("anthropic", "signature", &["anthropic"], "signature"),
    ("anthropic", "redacted_thinking", &["anthropic"], "redactedData"),
    ("openai-responses", "id", OPENAI, "itemId"),
    ("openai-responses", "encrypted_content", OPENAI, "reasoningEncryptedContent"),
    ("openai-responses", "phase", OPENAI, "phase"),
    ("gemini", "thoughtSignature", &["google", "vertex"], "thoughtSignature"),
];

const OPENAI: &[&str] = &["openai", "azure"];

//! Gemini's generateContent, at Google AI Studio and at Vertex AI.

mod arguments;
mod citations;
pub mod decode;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

/// Under this name the settings and the metadata of this kind of provider stand.
const KIND: &str = "gemini";

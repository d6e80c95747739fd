//! Token counts by the service itself.

use serde_json::Value;

use super::{dialect::Counter, encode, encode_options::EncodeOptions};
use crate::{
    model::Prompt,
    provider::{Error, body::Body, error::Kind, http::Client},
};

/// Requests the token count of a prompt from the service.
pub(super) async fn count(
    client: &Client,
    counter: Counter,
    prompt: &Prompt,
    form: EncodeOptions<'_>,
) -> Result<u32, Error> {
    let content = encode::content(prompt, form);
    let tokens = match counter {
        Counter::Prompt => {
            let answer = client.post_to_root("tokenize", content.bytes()).await?;
            answer["count"].as_u64()
        }
        Counter::Text => {
            let written = client
                .post_to_root("apply-template", content.bytes())
                .await?;
            let Some(text) = written["prompt"].as_str() else {
                return Err(unreadable(form.provider));
            };
            let mut whole = Body::default();
            whole.set("content", text);
            // The special tokens of the template count, and so does the token at the start of every
            // prompt.
            whole.set("add_special", true);
            whole.set("parse_special", true);
            let answer = client.post_to_root("tokenize", whole.bytes()).await?;
            answer["tokens"]
                .as_array()
                .and_then(|tokens: &Vec<Value>| u64::try_from(tokens.len()).ok())
        }
    };
    tokens
        .and_then(|tokens| u32::try_from(tokens).ok())
        .ok_or_else(|| unreadable(form.provider))
}

fn unreadable(provider: &str) -> Error {
    Error::new(Kind::Broken, provider, "it returned an invalid token count")
}

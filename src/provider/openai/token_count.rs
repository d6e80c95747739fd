//! Token counts by the service itself.

use http::HeaderMap;

use super::{dialect::Counter, encode, encode_options::EncodeOptions};
use crate::{
    model::Prompt,
    provider::{Error, body::Body, http::Client},
};

/// Requests the token count of a prompt from the service.
pub(super) async fn count(
    client: &Client,
    counter: Counter,
    prompt: &Prompt,
    form: EncodeOptions<'_>,
) -> Result<u32, Error> {
    let none = HeaderMap::new();
    let (body, ..) = encode::content(prompt, form);
    let content = body.bytes();
    match counter {
        Counter::Prompt => {
            let answer = client.post_json("/tokenize", &none, content).await?;
            client.parse_token_count(answer["count"].as_u64())
        }
        Counter::Text => {
            let written = client.post_json("/apply-template", &none, content).await?;
            let Some(text) = written["prompt"].as_str() else {
                return client.parse_token_count(None);
            };
            let mut whole = Body::default();
            whole.set("content", text);
            // The special tokens of the template count, and so does the token at the start of every
            // prompt.
            whole.set("add_special", true);
            whole.set("parse_special", true);
            let answer = client.post_json("/tokenize", &none, whole.bytes()).await?;
            let tokens = answer["tokens"].as_array();
            client.parse_token_count(tokens.map(|tokens| tokens.len() as u64))
        }
    }
}

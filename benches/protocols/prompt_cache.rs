//! Measures the hit rate of Anthropic's prompt cache over a conversation, step by step with prunes of the default
//! policy, compared with a cache of every prefix.

use contextd::{
    context::prune::{choose, is_due, size},
    model::{
        CachePrices, Message, Prompt, Role, Seq, Transcript,
        config::PrunePolicy,
        message::{Pruned, StoredPart},
    },
    provider::Provider,
};

#[path = "../../src/provider/anthropic/tests/simulated_cache.rs"]
mod simulated_cache;

use simulated_cache::{Caches, Request};

/// Maximum difference to the hit rate of a cache of every prefix.
const AIM: f64 = 0.02;

/// Calls the service before each assistant message of a conversation, and prints what it read from its cache.
pub(super) fn report(provider: &dyn Provider, prompt: &Prompt) {
    let whole = prompt.transcript.messages();
    let (mut caches, mut prunes, mut cached) = (Caches::default(), 0, 0);
    let mut messages: Vec<Message> = Vec::new();
    for (at, message) in (1..).zip(whole) {
        if message.role == Role::Assistant {
            prunes += u32::from(prune(&mut messages, cached));
            let transcript = Transcript::new(messages.clone()).close().unwrap();
            let request = provider.request(&Prompt { transcript, ..prompt.clone() });
            let body = serde_json::from_slice(&request.unwrap().body).unwrap();
            caches.call(&Request::of(body));
            cached = messages.iter().map(size).sum();
        }
        messages.push(Message { seq: Seq(10 * at), ..message.clone() });
    }
    let (read, ideal) = caches.shares();
    println!("\nAnthropic's prompt cache over {} messages", whole.len());
    println!(
        "  read {read:.3} of what is sent, a cache of every prefix {ideal:.3}, {prunes} prunes   aim: within {AIM}"
    );
}

/// Clears old results if the default policy does, with `cached` tokens of the prompt in the cache. Returns whether it
/// cleared any.
fn prune(messages: &mut [Message], cached: u32) -> bool {
    let policy = PrunePolicy::default();
    let Some(pruning) = choose(messages, &policy) else {
        return false;
    };
    let prices = CachePrices::new(10, Some(125));
    let rebilled = pruning.rebilled(cached, 0);
    if !is_due(policy.mode, &pruning, rebilled, Some(prices), false) {
        return false;
    }
    let at = Seq(messages.last().map_or(0, |last| last.seq.0) + 1);
    for output in &pruning.outputs {
        let mut parts = messages.iter_mut().flat_map(|message| &mut message.parts);
        let stored = parts.find(|stored| answers(stored, &output.call)).unwrap();
        stored.pruned = Some(Pruned { at, time: None, original_tokens: stored.size.tokens });
        stored.size.tokens = contextd::context::prune::placeholder_tokens();
        *stored = stored.clone().as_sent_to_model();
    }
    true
}

fn answers(stored: &StoredPart, call: &contextd::model::CallId) -> bool {
    let result = stored.part.content.as_result();
    result.is_some_and(|result| result.call == *call)
}

//! Simulates how much of a long conversation with prunes is read from the service's prompt cache,
//! compared with an ideal cache of every prefix.

use super::{
    super::simulated_cache::{Caches, Request},
    OLD, call, json_of, manner, prompt, said,
};
use crate::{
    config::PromptCache,
    context::testing::{assistant, results, tool, user},
    model::{Message, Part, Prompt, Role, Seq, message::Pruned},
    provider::anthropic::encode,
};

/// Bytes of the newest results, which no prune clears, and the minimum number of bytes that a prune
/// must clear.
const PROTECTED: usize = 120_000;
const WORTH: usize = 60_000;

/// The request for a prompt, with cache markers.
fn sent(prompt: &Prompt) -> Request {
    let manner = encode::EncodeOptions { cache: PromptCache::FiveMinutes.marker(), ..manner(OLD) };
    Request::of(json_of(&encode::request(prompt, &manner)))
}

/// Clears the results before the newest ones if enough bytes would be cleared.
fn prune(messages: &mut [Message], at: Seq) {
    let mut newest = 0;
    let mut cleared = Vec::new();
    for (message, stored) in messages.iter().enumerate().rev() {
        for (part, stored) in stored.parts.iter().enumerate().rev() {
            let Some(result) = stored.part.content.as_result() else {
                continue;
            };
            let bytes: usize = result.texts().map(str::len).sum();
            newest += bytes;
            if newest > PROTECTED && stored.pruned.is_none() {
                cleared.push((message, part, bytes));
            }
        }
    }
    if cleared.iter().map(|(_, _, bytes)| bytes).sum::<usize>() < WORTH {
        return;
    }
    for (message, part, _) in cleared {
        let stored = &mut messages[message].parts[part];
        stored.pruned = Some(Pruned { at, time: None, original_tokens: 0 });
        *stored = stored.clone().as_sent_to_model();
    }
}

/// The same messages without prune marks, so that the encoder does not know what is pruned.
fn without_marks(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    let parts = messages.iter_mut().flat_map(|message| &mut message.parts);
    parts.for_each(|stored| stored.pruned = None);
    messages
}

fn push(messages: &mut Vec<Message>, message: Message) {
    let seq = Seq(messages.last().map_or(0, |last| last.seq.0) + 10);
    messages.push(Message { seq, ..message });
}

/// Row P6
#[test]
fn p6_a_prune_costs_no_more_of_the_prompt_cache_than_it_changes() {
    let mut messages = Vec::new();
    push(&mut messages, user("Find out why the build is slow."));
    let (mut caches, mut unmarked, mut prunes) = (Caches::default(), Caches::default(), 0);
    for step in 0..160_usize {
        if messages.last().is_some_and(|last| last.role == Role::Assistant) {
            push(&mut messages, user(&format!("And what about part {step}?")));
        }
        let before = messages.clone();
        let now = messages.last().map_or(0, |last| last.seq.0) + 1;
        prune(&mut messages, Seq(now));
        prunes += usize::from(before != messages);
        let request = |messages: Vec<Message>| {
            sent(&Prompt {
                system: vec!["Be brief. ".repeat(200), "# notes\nTea.".to_owned()],
                tools: vec![tool("look")],
                ..prompt(OLD, messages)
            })
        };
        let marked = request(messages.clone());
        assert!(marked.marked.len() <= 4, "{:?}", marked.marked);
        caches.call(&marked);
        unmarked.call(&request(without_marks(&messages)));
        if step % 10 == 9 {
            push(&mut messages, assistant(&"That is why. ".repeat(90)));
            continue;
        }
        let ids: Vec<String> = (0..=step % 3).map(|at| format!("call-{step}-{at}")).collect();
        let mut answer = vec![Part::text("Let me look. ".repeat(90))];
        answer.extend(ids.iter().map(|id| call(id, r#"{"at":"src"}"#)));
        push(&mut messages, said(OLD, None, answer));
        let output = "some output ".repeat(400 + step * 37 % 500);
        let given = ids.iter().map(|id| (id.as_str(), output.as_str()));
        push(&mut messages, results(&given.collect::<Vec<_>>()));
    }
    let ((read, ideal), (without, _)) = (caches.shares(), unmarked.shares());
    eprintln!(
        "read {read:.3} of what is sent, an ideal prefix cache {ideal:.3}, \
         without the marker {without:.3}; {prunes} prunes"
    );
    assert!(prunes >= 10, "{prunes}");
    assert!(read >= ideal - 0.02, "{read:.3}, ideal {ideal:.3}");
    assert!(without < ideal - 0.02, "the marker is what does it: {without:.3}");
}

//! Tests of which results are pruned and which are kept, at the limits.

use proptest::prelude::*;

use super::*;
use crate::{
    context::testing,
    model::{Content, Seq, TurnId, message::Pruned},
};

/// A turn with a user message and results of these sizes, one step each.
fn turn(name: &str, sizes: &[u32]) -> Vec<Message> {
    let mut messages = vec![testing::user("go on")];
    for (n, size) in sizes.iter().enumerate() {
        let call = format!("{name}-{n}");
        messages.push(testing::calls(&[&call]));
        let mut results = testing::results(&[(&call, "output")]);
        results.parts[0].size.tokens = *size;
        results.id = MessageId::new(format!("{call}-result"));
        messages.push(results);
    }
    for message in &mut messages {
        message.turn = Some(TurnId::new(name));
    }
    messages
}

fn turns_of(sizes: &[&[u32]]) -> Vec<Message> {
    sizes.iter().enumerate().flat_map(|(n, sizes)| turn(&format!("t{n}"), sizes)).collect()
}

fn cleared(messages: &[Message], policy: &PrunePolicy) -> Vec<String> {
    let chosen = choose(messages, policy).map(|pruning| pruning.outputs).unwrap_or_default();
    chosen.into_iter().map(|output| output.call.into_string()).collect()
}

/// Marks the chosen results as pruned, as the store does.
fn clear(messages: &mut [Message], pruning: &Pruning) {
    for output in &pruning.outputs {
        let message = messages.iter_mut().find(|message| message.id == output.message).unwrap();
        let part = &mut message.parts[output.position];
        part.pruned = Some(Pruned { at: Seq(1), time: None, original_tokens: part.size.tokens });
        part.size.tokens = placeholder_tokens();
    }
}

fn shipped() -> PrunePolicy {
    PrunePolicy::default()
}

#[test]
fn pruned_results_become_placeholders_and_other_messages_are_unchanged() {
    let mut messages = turn("t", &[30_000, 30_000]);
    let whole = messages.clone();
    let pruned = Pruned { at: Seq(1), time: None, original_tokens: 30_000 };
    messages[2].parts[0].pruned = Some(pruned);
    let seen: Vec<Message> = messages.into_iter().map(Message::as_sent_to_model).collect();
    let texts = |message: &Message| match &message.parts[0].part.content {
        Content::ToolResult(result) => result.texts().map(str::to_owned).collect(),
        Content::Text(_)
        | Content::Refusal(_)
        | Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => Vec::new(),
    };
    assert_eq!((texts(&seen[2]), texts(&seen[4])), (vec![PRUNED_TEXT.to_owned()], vec!["output".to_owned()]));
    assert_eq!((&seen[..2], &seen[3..]), (&whole[..2], &whole[3..]));
}

/// Rows D17 and S2
#[test]
fn results_beyond_the_protected_tokens_are_pruned() {
    let newest: [&[u32]; 2] = [&[1], &[1]];
    let with = |older: &[u32]| turns_of(&[older, newest[0], newest[1]]);
    assert_eq!(cleared(&with(&[30_000, 40_000]), &shipped()), ["t0-0"]);
    assert_eq!(cleared(&with(&[30_000, 20_000, 20_000]), &shipped()), ["t0-0"]);
    assert_eq!(cleared(&with(&[30_000, 20_000, 20_001]), &shipped()), ["t0-0", "t0-1"]);
    assert_eq!(cleared(&with(&[40_000]), &shipped()), [""; 0]);
    assert_eq!(cleared(&with(&[40_001]), &shipped()), ["t0-0"]);
}

/// Rows D17 and S7
#[test]
fn nothing_is_pruned_below_the_minimum_tokens() {
    let saving = |saved: u32| turns_of(&[&[saved + placeholder_tokens(), 40_000], &[1], &[1]]);
    assert_eq!(choose(&saving(19_999), &shipped()), None);
    assert_eq!(choose(&saving(20_000), &shipped()).unwrap().saved, 20_000);
    let two = turns_of(&[&[10_000 + placeholder_tokens(), 10_000 + placeholder_tokens(), 40_000], &[1], &[1]]);
    assert_eq!(choose(&two, &shipped()).unwrap().saved, 20_000, "each placeholder is taken off");
}

/// Row D17
#[test]
fn protected_turns_are_not_pruned_and_not_counted() {
    assert_eq!(cleared(&turns_of(&[&[60_000], &[20_000], &[20_000]]), &shipped()), ["t0-0"]);
    assert_eq!(cleared(&turns_of(&[&[60_000], &[20_000]]), &shipped()), ["t0-0"], "they hold more than is protected");
    assert_eq!(cleared(&turns_of(&[&[30_000], &[10_000]]), &shipped()), [""; 0], "there are but two");
    let none = PrunePolicy { protect_turns: 0, ..shipped() };
    assert_eq!(cleared(&turns_of(&[&[60_000], &[20_000], &[20_000]]), &none), ["t0-0"]);
    assert_eq!(cleared(&turns_of(&[&[30_000], &[20_000], &[20_000]]), &none), ["t0-0"]);
}

/// Row D17
#[test]
fn protect_tokens_limits_what_protect_turns_keeps() {
    let long = turns_of(&[&[1_000; 300]]);
    let cleared = cleared(&long, &shipped());
    assert_eq!((cleared.len(), cleared.first().unwrap().as_str()), (260, "t0-0"));
    let short = turns_of(&[&[1_000; 40]]);
    assert_eq!(choose(&short, &PrunePolicy { minimum_tokens: 0, ..shipped() }), None, "exactly as much is no more");
}

/// Row D17
#[test]
fn pruning_is_idempotent() {
    let mut messages = turns_of(&[&[30_000, 20_000, 40_000], &[1], &[1]]);
    let first = choose(&messages, &shipped()).unwrap();
    assert_eq!(first.outputs.len(), 2);
    clear(&mut messages, &first);
    assert_eq!(choose(&messages, &PrunePolicy { minimum_tokens: 0, ..shipped() }), None);
}

/// Row D17
#[test]
fn summarised_protected_and_pinned_results_are_not_pruned() {
    let mut messages = turns_of(&[&[50_000, 50_000, 40_000], &[1], &[1]]);
    messages[3].is_summary = true;
    assert_eq!(cleared(&messages, &shipped()), ["t0-1"]);
    let mut messages = turns_of(&[&[50_000, 50_000, 40_000], &[1], &[1]]);
    let keep = PrunePolicy { protected_tools: vec!["t0-0".to_owned()], ..shipped() };
    assert_eq!(cleared(&messages, &keep), ["t0-1"]);
    messages[4].pinned = true;
    assert_eq!(cleared(&messages, &keep), [""; 0]);
}

/// Row D17
#[test]
fn messages_that_the_model_has_not_read_are_kept() {
    let mut messages = turns_of(&[&[30_000, 30_000]]);
    let batch = ["a", "b", "c"];
    messages.push(testing::calls(&batch));
    let mut results = testing::results(&batch.map(|call| (call, "output")));
    for part in &mut results.parts {
        part.size.tokens = 50_000;
    }
    messages.push(results);
    for message in &mut messages {
        message.turn = Some(TurnId::new("t0"));
    }
    assert_eq!(cleared(&messages, &shipped()), ["t0-0", "t0-1"]);
    messages.push(testing::assistant("I see."));
    messages.last_mut().unwrap().turn = Some(TurnId::new("t0"));
    assert_eq!(cleared(&messages, &shipped()), ["t0-0", "t0-1", "a", "b", "c"]);
}

/// Cases U17 and U18
#[test]
fn without_protection_every_result_of_an_idle_session_is_cleared() {
    let mut messages = turns_of(&[&[30_000], &[100]]);
    let summary = Message { is_summary: true, ..testing::user("In short.") };
    messages.insert(messages.len() / 2, summary);
    messages.push(testing::calls(&["a"]));
    messages.push(testing::results(&[("a", &"output ".repeat(100))]));
    let none = PrunePolicy { minimum_tokens: 0, protect_tokens: 0, protect_turns: 0, ..shipped() };
    let calls = |pruning: Option<Pruning>| {
        let outputs = pruning.map(|it| it.outputs).unwrap_or_default();
        outputs.into_iter().map(|output| output.call.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(calls(choose(&messages, &none)), ["t1-0"]);
    assert_eq!(calls(choose_all(&messages, &none)), ["t0-0", "t1-0", "a"]);
}

#[test]
fn appended_messages_count_as_turns_for_pruning() {
    let mut messages = turns_of(&[&[60_000], &[20_000], &[10_000]]);
    for message in &mut messages {
        message.turn = None;
    }
    assert_eq!(cleared(&messages, &shipped()), ["t0-0"]);
}

/// Row D17
#[test]
fn pruning_pays_if_it_saves_more_than_the_lost_cache_costs() {
    let pruning = Pruning { outputs: Vec::new(), saved: 60_000, before: 8_000 };
    // 100,000 tokens are cached: 10,000 before the first result stay cached, 60,000 are pruned, and 30,000 are billed
    // again.
    assert_eq!(pruning.rebilled(100_000, 2_000), 30_000);
    assert_eq!(pruning.rebilled(0, 2_000), 0);
    assert_eq!(pruning.rebilled(9_999, 2_000), 0);
    let table = [
        (PruneMode::Always, 99_999, false, true),
        (PruneMode::WhenItPays, 59_999, false, true),
        (PruneMode::WhenItPays, 60_000, false, false),
        (PruneMode::WhenItPays, 99_999, true, true),
        (PruneMode::OnOverflow, 0, false, false),
        (PruneMode::OnOverflow, 99_999, true, true),
    ];
    for (mode, rebilled, overflows, due) in table {
        assert_eq!(is_due(mode, &pruning, rebilled, None, overflows), due, "{mode:?} {rebilled} {overflows}");
    }
}

/// Row D17
#[test]
fn pruning_pays_by_the_prices_of_the_provider_where_they_are_known() {
    let due = |prices: Option<(u32, Option<u32>)>, rebilled| {
        let pruning = Pruning { outputs: Vec::new(), saved: 60_000, before: 0 };
        let prices = prices.map(|(read, write)| CachePrices::new(read, write));
        is_due(PruneMode::WhenItPays, &pruning, rebilled, prices, false)
    };
    // The maximum of rebilled tokens for which saving 60,000 tokens in each of ten calls pays.
    let table = [
        (None, 59_999),
        // A tenth for reading; writing at a surcharge of a quarter, at twice the price for an hour, or without a
        // surcharge.
        (Some((10, Some(125))), 52_173),
        (Some((10, Some(200))), 31_578),
        (Some((10, None)), 66_666),
        // Half the price for reading, as for older models.
        (Some((50, None)), 599_999),
        // If reading from the cache is free, pruning never pays.
        (Some((0, None)), 0),
    ];
    for (prices, most) in table {
        assert!(due(prices, most), "{prices:?} {most}");
        assert!(!due(prices, most + 1), "{prices:?} {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

    /// Row D17
    #[test]
    fn pruned_results_are_old_enough_large_enough_and_chosen_once(
        sizes in proptest::collection::vec(proptest::collection::vec(0_u32..30_000, 0..6), 1..6),
        minimum_tokens in 0_u32..40_000, protect_tokens in 0_u32..60_000, protect_turns in 0_u32..4,
    ) {
        let sizes: Vec<&[u32]> = sizes.iter().map(Vec::as_slice).collect();
        let mut messages = turns_of(&sizes);
        let policy = PrunePolicy { minimum_tokens, protect_tokens, protect_turns, ..shipped() };
        let whole = |messages: &[Message]| messages.iter().map(|message| u64::from(size(message))).sum::<u64>();
        let before = whole(&messages);
        if let Some(pruning) = choose(&messages, &policy) {
            prop_assert!(pruning.saved >= minimum_tokens && !pruning.outputs.is_empty());
            let newer: u64 = messages
                .iter()
                .flat_map(|message| outputs(message, &policy))
                .filter(|output| !pruning.outputs.contains(output))
                .map(|output| u64::from(output.tokens))
                .sum();
            let newest_cleared = u64::from(pruning.outputs.last().unwrap().tokens);
            prop_assert!(newer + newest_cleared > u64::from(protect_tokens));
            clear(&mut messages, &pruning);
            prop_assert_eq!(whole(&messages), before - u64::from(pruning.saved));
            let again = choose(&messages, &PrunePolicy { minimum_tokens: 1, ..policy });
            prop_assert_eq!(again, None);
        }
    }
}

//! Ordinary events never leave a session in a state in which no turn reaches the model: tool results that are too large
//! in total, an input larger than the window, a smaller window, and random histories over every protocol.

use std::{cell::Cell, collections::BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use contextd::{
    model::{Content, Prompt},
    pb::{self, CompactionState, CompactionStrategy, FailureReason, event::Payload},
};
use futures_util::future::join_all;
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tonic::Streaming;

use crate::{
    compaction::{SUMMARISER, answering},
    harness::{
        Host, Options,
        errors::refusal,
        events::{self, HeartbeatGuard, failed, kinds},
        host::{MODEL, call},
        requests::{result, submit, text, tools, turn},
        transcripts::{check_counters, fork, one_turn, says},
        upstream::{Reply, Upstream, anthropic, gemini},
    },
    protocols::speaks::{Protocol, Says},
};

/// Number of random histories.
const CASES: u32 = 200;
const STRATEGIES: [CompactionStrategy; 4] = [
    CompactionStrategy::ReactiveOverflow,
    CompactionStrategy::ProactiveThreshold,
    CompactionStrategy::MiddleRemoval,
    CompactionStrategy::Truncation,
];

/// How the results of the calls of one response are submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Come {
    Together,
    OneByOne,
    AtTheSameTime,
}

fn policy(window: i32, strategy: CompactionStrategy) -> pb::Policy {
    pb::Policy {
        compaction: Some(pb::CompactionPolicy {
            strategy: strategy.into(),
            summary_model: SUMMARISER.to_owned(),
            ..pb::CompactionPolicy::default()
        }),
        context_window: Some(window),
        ..pb::Policy::default()
    }
}

async fn session(host: &Host, session: &str, model: &str, policy: pb::Policy) {
    host.create(pb::Session {
        session_id: session.to_owned(),
        model: model.to_owned(),
        policy_overrides: Some(policy),
        tools: tools(&["look", "list"]),
        ..pb::Session::default()
    })
    .await;
}

fn looks(calls: usize) -> Options {
    let both: Vec<Value> = (0..calls).map(|_| call("look")).collect();
    let answers = [json!(both), json!([{"text": "Fine."}])];
    answering(&answers, &json!([{"text": "In short."}]))
}

/// Runs a turn to its end. Each tool result has this many characters.
async fn run(host: &Host, request: pb::ExecuteTurnRequest, chars: usize, come: Come) -> Vec<pb::Event> {
    let session = request.session_id.clone();
    let mut stream = host.execute(request).await;
    finish(host, &session, &mut stream, chars, come).await
}

/// Reads a turn to its end. The results of further calls have this many characters.
async fn finish(
    host: &Host,
    session: &str,
    stream: &mut Streaming<pb::ExecuteTurnResponse>,
    chars: usize,
    come: Come,
) -> Vec<pb::Event> {
    let mut seen = Vec::new();
    let mut calls = Vec::new();
    let mut pulse = HeartbeatGuard::default();
    while let Some(event) = events::next(stream).await.unwrap() {
        pulse.check(&event);
        match &event.payload {
            Some(Payload::ToolCallRequested(pending)) => calls.extend(pending.call.clone()),
            Some(Payload::ActionRequired(_)) => {
                let results = calls.drain(..).map(|call| result(&call.call_id, &"word ".repeat(chars / 5)));
                give(host, session, results.collect(), come).await;
            }
            _ => {}
        }
        seen.push(event);
    }
    seen
}

async fn give(host: &Host, session: &str, results: Vec<pb::ToolResult>, come: Come) {
    match come {
        Come::Together => drop(host.submit(session, results).await),
        Come::OneByOne => {
            for result in results {
                host.submit(session, vec![result]).await;
            }
        }
        Come::AtTheSameTime => {
            let each = results.into_iter();
            let given = each.map(|it| host.try_submit(submit(session, vec![it])));
            for answer in join_all(given).await {
                answer.unwrap();
            }
        }
    }
}

fn ends(events: &[pb::Event]) -> &'static str {
    kinds(events).last().copied().unwrap_or_default()
}

fn words(prompt: &Prompt) -> String {
    let parts = prompt.transcript.messages().iter();
    let parts = parts.flat_map(|message| &message.parts);
    let texts = parts.map(|part| match &part.part.content {
        Content::Text(text) => text.clone(),
        Content::ToolResult(result) => result.texts().collect(),
        _ => String::new(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Row L4: U17
#[tokio::test(flavor = "multi_thread")]
async fn u17_results_sent_one_by_one_have_the_room_of_all_of_them_together() {
    for (window, calls, chars) in [(16_000, 2, 60_000), (200_000, 8, 118_000), (200_000, 16, 60_000)] {
        for come in [Come::OneByOne, Come::AtTheSameTime, Come::Together] {
            let host = Host::with(looks(calls)).await;
            let of = format!("{window} {calls} {come:?}");
            let policy = policy(window, CompactionStrategy::ReactiveOverflow);
            session(&host, "s", MODEL, policy).await;
            let seen = run(&host, turn("s", "", "Look."), chars, come).await;
            assert_eq!(ends(&seen), "turn_completed", "{of}: {:?}", kinds(&seen));
            assert!(!kinds(&seen).contains(&"compaction_started"), "{of}");
            let messages = host.messages("s").await;
            let sizes: BTreeSet<usize> = messages
                .iter()
                .flat_map(|message| &message.parts)
                .filter_map(|part| match &part.content {
                    Some(pb::part::Content::ToolResult(result)) => {
                        let cut = result.truncation.as_ref()?;
                        Some(usize::try_from(cut.kept_chars).unwrap())
                    }
                    _ => None,
                })
                .collect();
            let least = sizes.first().copied().unwrap_or(chars);
            assert!(least > chars / 10, "{of}: each shows something: {sizes:?}");
            let seen = run(&host, turn("s", "", "And now?"), 100, come).await;
            assert_eq!(ends(&seen), "turn_completed", "{of}");
            host.assert_counted("s").await;
        }
    }
}

/// Row D15: U18
#[tokio::test(flavor = "multi_thread")]
async fn u18_after_an_input_larger_than_the_window_the_next_turn_is_answered() {
    for strategy in STRATEGIES {
        let fine = [json!([{"text": "Fine."}])];
        let host = Host::with(answering(&fine, &json!([{"text": "In short."}]))).await;
        session(&host, "s", MODEL, policy(16_000, strategy)).await;
        let first = host.ask("s", "Hello.").await;
        assert_eq!(ends(&first), "turn_completed");
        let long = "word ".repeat(16_000 * 13 / 10);
        let seen = host.run(turn("s", "", &long)).await;
        let failure = failed(&seen).failure.clone().unwrap();
        assert_eq!(failure.reason(), FailureReason::ContextOverflow);
        assert!(
            !kinds(&seen).contains(&"compaction_started"),
            "{strategy:?}: nothing is paid for that cannot help: {:?}",
            kinds(&seen)
        );
        let mut contexts = host.contexts();
        let compact =
            contexts.compact(pb::CompactRequest { session_id: "s".to_owned(), wait: true, ..Default::default() });
        let refused = Box::pin(compact).await.unwrap_err();
        assert_eq!(refusal(&refused).reason, "COMPACTION_NO_GAIN");
        assert!(refused.message().contains("the newest input"), "{}", refused.message());
        for n in 0..3 {
            let seen = host.ask("s", "And now?").await;
            assert_eq!(ends(&seen), "turn_completed", "{strategy:?} {n}");
        }
        let sent = host.replica.scripted.prompts();
        let newest = sent.last().unwrap();
        let shown = words(newest);
        assert!(shown.contains("did not fit the context window"), "{shown}");
        assert!(shown.contains("And now?") && shown.contains("word word"));
        let all = host.messages("s").await;
        let whole = all.iter().flat_map(|message| &message.parts);
        assert!(
            whole
                .filter_map(|part| part.content.as_ref())
                .any(|content| *content == pb::part::Content::Text(long.clone())),
            "the history keeps every word"
        );
        host.assert_counted("s").await;
    }
}

/// A turn with a pinned input.
fn pinned(session: &str, words: &str) -> pb::ExecuteTurnRequest {
    let mut request = turn(session, "", words);
    request.input.get_or_insert_default().pinned = true;
    request
}

/// Row D15: U18
#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_input_larger_than_the_window_is_cut_before_the_next_turn_fails() {
    for strategy in STRATEGIES {
        let fine = [json!([{"text": "Fine."}])];
        let host = Host::with(answering(&fine, &json!([{"text": "In short."}]))).await;
        session(&host, "s", MODEL, policy(16_000, strategy)).await;
        let small = host.run(pinned("s", "Always answer in Latin.")).await;
        assert_eq!(ends(&small), "turn_completed");
        let before = host.stats("s").await.used;
        let long = format!("Remember this. {}", "word ".repeat(16_000 * 13 / 10));
        let seen = host.run(pinned("s", &long)).await;
        let failure = failed(&seen).failure.clone().unwrap();
        assert_eq!(failure.reason(), FailureReason::ContextOverflow);
        for n in 0..3 {
            let seen = host.ask("s", "And now?").await;
            assert_eq!(ends(&seen), "turn_completed", "{strategy:?} {n}: {seen:?}");
            host.assert_counted("s").await;
        }
        let sent = host.replica.scripted.prompts();
        let shown = words(sent.last().unwrap());
        assert!(shown.contains("did not fit the context window"), "{shown}");
        assert!(shown.contains("Remember this."), "the input in part: {shown}");
        assert!(shown.contains("Always answer in Latin."), "a pinned message that fits stays");
        // A later compaction removes it too, and each compaction can be reverted.
        for n in 0..4 {
            host.append("s", one_turn(&format!("c{n}"), 2_000)).await;
        }
        let request =
            pb::CompactRequest { session_id: "s".to_owned(), target_tokens: 4_000, wait: true, ..Default::default() };
        let made = host.contexts().compact(request).await.unwrap();
        let made = made.into_inner().compaction.unwrap();
        assert_eq!(made.state(), CompactionState::Applied, "{strategy:?}");
        let told = made.tokens_after.unwrap().tokens;
        let used = host.stats("s").await.used.unwrap().tokens;
        assert!(told.abs_diff(used) <= 2, "{strategy:?}: {told} {used}");
        host.assert_counted("s").await;
        let seen = host.ask("s", "And now?").await;
        assert_eq!(ends(&seen), "turn_completed", "{strategy:?}");
        let last = host.session("s").await.last_seq;
        let copied = host.try_fork(fork("s", last, "t")).await.unwrap();
        assert_eq!(copied.session_id, "t");
        let seen = host.ask("t", "And now?").await;
        assert_eq!(ends(&seen), "turn_completed", "a copy: {strategy:?}");
        host.assert_counted("t").await;
        let compactions = pb::ListCompactionsRequest { session_id: "s".to_owned(), ..Default::default() };
        let listed = host.contexts().list_compactions(compactions).await;
        for made in listed.unwrap().into_inner().compactions {
            if made.state() != CompactionState::Applied {
                continue;
            }
            let request = pb::RevertCompactionRequest {
                session_id: "s".to_owned(),
                compaction_id: made.compaction_id,
                request_id: String::new(),
            };
            host.contexts().revert_compaction(request).await.unwrap();
            host.assert_counted("s").await;
        }
        let all = host.stats("s").await.used.unwrap().tokens;
        assert!(all > 16_000, "it is seen again: {all} after {before:?}");
    }
}

/// Case U18
#[tokio::test(flavor = "multi_thread")]
async fn pinned_messages_are_cut_where_the_model_changes_to_a_smaller_window() {
    let fine = [json!([{"text": "Fine."}])];
    let host = Host::with(answering(&fine, &json!([{"text": "In short."}]))).await;
    session(&host, "s", MODEL, policy(100_000, STRATEGIES[0])).await;
    let long = "word ".repeat(20_000);
    let seen = host.run(pinned("s", &long)).await;
    assert_eq!(ends(&seen), "turn_completed");
    let smaller = pb::UpdateSessionRequest {
        session: Some(pb::Session {
            session_id: "s".to_owned(),
            policy_overrides: Some(policy(8_000, STRATEGIES[0])),
            ..pb::Session::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["policy_overrides".to_owned()] }),
        ..Default::default()
    };
    host.sessions().update_session(smaller).await.unwrap();
    for _ in 0..2 {
        let seen = host.ask("s", "And now?").await;
        assert_eq!(ends(&seen), "turn_completed", "{:?}", seen.last());
        host.assert_counted("s").await;
    }
}

/// Case U18
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_takes_what_no_model_has_answered_and_gives_it_back() {
    let fine = [json!([{"text": "Fine."}])];
    let host = Host::with(answering(&fine, &json!([{"text": "In short."}]))).await;
    session(&host, "s", MODEL, policy(4_000, STRATEGIES[0])).await;
    host.append("s", vec![says(pb::Role::User, &"word ".repeat(6_000)), says(pb::Role::User, "And now?")]).await;
    let before = host.stats("s").await.used;
    let request = pb::CompactRequest { session_id: "s".to_owned(), wait: true, ..Default::default() };
    let made = host.contexts().compact(request).await.unwrap();
    let made = made.into_inner().compaction.unwrap();
    assert_eq!(
        (made.state(), made.strategy(), made.was_summarized),
        (CompactionState::Applied, CompactionStrategy::Truncation, false)
    );
    assert_eq!(host.replica.scripted.prompts().len(), 0, "no model is asked");
    let used = host.stats("s").await.used.unwrap().tokens;
    let told = made.tokens_after.unwrap().tokens;
    assert!(told.abs_diff(used) <= 2, "{told} {used}");
    assert!((1_000..3_000).contains(&used), "{used}");
    let request = pb::RevertCompactionRequest {
        session_id: "s".to_owned(),
        compaction_id: made.compaction_id,
        request_id: String::new(),
    };
    host.contexts().revert_compaction(request).await.unwrap();
    assert_eq!(host.stats("s").await.used, before);
    host.assert_counted("s").await;
}

/// Case U17
#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_with_a_model_of_a_smaller_window() {
    let host = Host::with(looks(2)).await;
    session(&host, "s", MODEL, policy(100_000, STRATEGIES[0])).await;
    let mut stream = host.execute(turn("s", "", "Look.")).await;
    events::until(&mut stream, |it| matches!(it, Payload::ActionRequired(_))).await;
    let pending = host.pending("s").await;
    let smaller = pb::UpdateSessionRequest {
        session: Some(pb::Session {
            session_id: "s".to_owned(),
            policy_overrides: Some(policy(4_000, STRATEGIES[0])),
            ..pb::Session::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["policy_overrides".to_owned()] }),
        ..Default::default()
    };
    let results = pending.iter().map(|id| result(id, &"word ".repeat(9_000)));
    host.submit("s", results.take(1).collect()).await;
    host.sessions().update_session(smaller).await.unwrap();
    host.submit("s", vec![result(&pending[1], "Nothing.")]).await;
    // A model that no longer sees its tool calls makes them again.
    let rest = finish(&host, "s", &mut stream, 100, Come::Together).await;
    assert_eq!(ends(&rest), "turn_completed", "{:?}", kinds(&rest));
    let seen = run(&host, turn("s", "", "And now?"), 100, Come::Together).await;
    assert_eq!(ends(&seen), "turn_completed");
    host.assert_counted("s").await;
}

/// Row D17: U17 and U18
#[tokio::test(flavor = "multi_thread")]
async fn a_prune_without_protection_clears_every_result_of_an_idle_session() {
    let refused = json!([{"error": {"kind": "bad_request", "message": "Odd."}}]);
    let answers = [json!([call("look"), call("look")]), refused];
    let host = Host::with(answering(&answers, &json!([{"text": "In short."}]))).await;
    session(&host, "s", MODEL, policy(100_000, STRATEGIES[0])).await;
    host.append("s", one_turn("c1", 1_000)).await;
    let seen = run(&host, turn("s", "", "Look."), 4_000, Come::OneByOne).await;
    assert_eq!(ends(&seen), "turn_failed");
    let prune = async |protect_turns| {
        let request = pb::PruneToolOutputsRequest {
            session_id: "s".to_owned(),
            minimum_tokens: Some(0),
            protect_tokens: Some(0),
            protect_turns: Some(protect_turns),
            validate_only: true,
            ..Default::default()
        };
        let answer = host.contexts().prune_tool_outputs(request).await.unwrap();
        answer.into_inner().report.unwrap().outputs_pruned
    };
    assert_eq!(prune(1).await, 1, "what the last turn was at stays");
    assert_eq!(prune(0).await, 3);
}

/// An operation on a session.
#[derive(Debug, Clone)]
enum Deed {
    /// A turn whose input is this share of the window, in tenths.
    Say(usize),
    /// Like `Say`, with a pinned input.
    Pin(usize),
    /// A turn whose response calls tools. Each result is this share of the window.
    Work(usize, usize, Come),
    /// A turn whose response calls a tool that does not exist.
    Invent(String),
    /// A turn with an image, whose tool result is an image too.
    Show,
    /// Like `Show`, with images that the service cannot read.
    Unreadable,
    /// A turn whose prompt the service rejects as too long this many times.
    TooLong(usize),
    /// A turn that the service rejects.
    Broken,
    /// The host appends messages of this share of the window. The last one is a user message.
    Append(usize),
    Prune,
    Compact(CompactionStrategy, i32),
    /// Changes the window.
    Window(i32),
}

/// Names of tools that do not exist.
fn invented() -> Vec<String> {
    let names = ["read_file", "$READFILE", "get_weather<|channel|>commentary"];
    let long = "a".repeat(300);
    names.into_iter().map(str::to_owned).chain([long]).collect()
}

/// Content of an image that no service can read.
const UNREADABLE: &[u8] = b"unreadable!!";

/// An image that no service can read, as bytes and as a part.
fn unreadable(number: usize) -> pb::Part {
    let mut data = crate::protocols::PICTURE.to_vec();
    // This makes the base64 encoding of the following bytes independent of their position.
    data.resize(data.len().next_multiple_of(3), 0);
    data.extend(UNREADABLE);
    data.extend(number.to_string().bytes());
    pb::Part {
        content: Some(pb::part::Content::Media(pb::Media {
            media_type: "image/png".to_owned(),
            source: Some(pb::media::Source::Data(data)),
            ..pb::Media::default()
        })),
        ..pb::Part::default()
    }
}

/// The response with which each service refuses the image.
fn refusal_of_a_picture(protocol: Protocol) -> Reply {
    let words = "The image data you provided does not represent a valid image.";
    match protocol {
        Protocol::Chat | Protocol::Responses => Reply::error(400, "invalid_image", words),
        Protocol::Anthropic => anthropic::refused(400, "invalid_request_error", "Could not process image"),
        Protocol::Gemini => gemini::refused(400, "INVALID_ARGUMENT", "Unable to process input image. Please retry."),
    }
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let come = prop_oneof![Just(Come::Together), Just(Come::OneByOne), Just(Come::AtTheSameTime)];
    let strategy = proptest::sample::select(STRATEGIES.to_vec());
    let share = || prop_oneof![2 => 0_usize..4, 1 => 4_usize..20];
    let deed = prop_oneof![
        4 => share().prop_map(Deed::Say),
        2 => share().prop_map(Deed::Pin),
        6 => (1_usize..5, share(), come).prop_map(|(calls, share, come)| Deed::Work(calls, share, come)),
        2 => proptest::sample::select(invented()).prop_map(Deed::Invent),
        2 => Just(Deed::Show),
        2 => Just(Deed::Unreadable),
        1 => (1_usize..3).prop_map(Deed::TooLong),
        1 => Just(Deed::Broken),
        2 => share().prop_map(Deed::Append),
        1 => Just(Deed::Prune),
        1 => (strategy, prop_oneof![Just(0), 1_i32..4_000]).prop_map(|(how, target)| Deed::Compact(how, target)),
        1 => window().prop_map(Deed::Window),
    ];
    proptest::collection::vec(deed, 2..6)
}

fn window() -> impl Strategy<Value = i32> {
    proptest::sample::select(vec![2_048, 4_096, 8_192, 16_384])
}

/// One session with one service.
struct Driver<'a> {
    host: &'a Host,
    client: &'a Client,
    protocol: Protocol,
    service: &'a Upstream,
    session: String,
    window: i32,
    strategy: CompactionStrategy,
    calls: usize,
}

impl Driver<'_> {
    fn words(&self, tenths: usize) -> String {
        // One word is one token.
        let tokens = usize::try_from(self.window).unwrap() * tenths / 10;
        format!("Well? {}", "word ".repeat(tokens))
    }

    fn asks(&self, words: &str) -> pb::ExecuteTurnRequest {
        turn(&self.session, "", words)
    }

    fn says(&self, says: Says) {
        self.service.answer(self.protocol.answer(says));
    }

    fn calling(&mut self, names: &[&str]) -> Says {
        let mut says = Says::thinking("Let me look.");
        for name in names {
            self.calls += 1;
            says = says.call(&format!("c{}", self.calls), name, &json!({}));
        }
        says
    }

    async fn act(&mut self, deed: &Deed) {
        match deed {
            Deed::Say(tenths) => {
                self.says(Says::default().text("I see."));
                self.host.run(self.asks(&self.words(*tenths))).await;
            }
            Deed::Pin(tenths) => {
                self.says(Says::default().text("I shall remember."));
                let words = self.words(*tenths);
                self.host.run(pinned(&self.session, &words)).await;
            }
            Deed::Work(calls, tenths, come) => {
                let says = self.calling(&vec!["look"; *calls]);
                self.says(says);
                self.says(Says::default().text("Done."));
                let chars = self.words(*tenths).len();
                run(self.host, self.asks("Look."), chars, *come).await;
            }
            Deed::Invent(name) => {
                let says = self.calling(&[name.as_str(), "look"]);
                self.says(says);
                self.says(Says::default().text("Done."));
                run(self.host, self.asks("Look."), 100, Come::Together).await;
            }
            Deed::Show => {
                let says = self.calling(&["list"]);
                self.says(says);
                self.says(Says::default().text("Nice."));
                let mut asks = self.asks("What is this?");
                let input = asks.input.get_or_insert_default();
                input.parts.push(crate::protocols::picture());
                self.host.run_with(asks, crate::protocols::gives).await;
            }
            Deed::Unreadable => {
                let says = self.calling(&["list"]);
                self.says(says);
                self.says(Says::default().text("I cannot see it."));
                let number = self.calls;
                let mut asks = self.asks("What is this?");
                let input = asks.input.get_or_insert_default();
                input.parts.push(unreadable(number));
                let gives = |call: &pb::ToolCall| pb::ToolResult {
                    parts: vec![text("As shown:"), unreadable(number + 1_000)],
                    ..result(&call.call_id, "")
                };
                self.host.run_with(asks, gives).await;
            }
            Deed::TooLong(times) => {
                for _ in 0..*times {
                    self.service.answer(self.protocol.too_long());
                }
                self.says(Says::default().text("Shorter."));
                self.host.run(self.asks("Well?")).await;
            }
            Deed::Broken => {
                self.service.answer(Reply::error(400, "odd", "Odd."));
                self.host.run(self.asks("Well?")).await;
            }
            Deed::Append(tenths) => {
                self.calls += 1;
                let mut messages = one_turn(&format!("a{}", self.calls), 100 * tenths);
                messages.push(says(pb::Role::User, &self.words(*tenths)));
                self.host.append(&self.session, messages).await;
            }
            Deed::Prune => {
                let request = pb::PruneToolOutputsRequest {
                    session_id: self.session.clone(),
                    minimum_tokens: Some(0),
                    protect_tokens: Some(0),
                    protect_turns: Some(0),
                    ..Default::default()
                };
                let mut contexts = self.host.contexts();
                contexts.prune_tool_outputs(request).await.unwrap();
            }
            Deed::Compact(strategy, target) => self.compact(*strategy, *target).await,
            Deed::Window(window) => {
                self.window = *window;
                self.configure().await;
            }
        }
        self.service.forget();
    }

    async fn compact(&self, strategy: CompactionStrategy, target_tokens: i32) {
        let request = pb::CompactRequest {
            session_id: self.session.clone(),
            strategy: strategy.into(),
            target_tokens,
            wait: true,
            ..Default::default()
        };
        match self.host.contexts().compact(request).await {
            Ok(made) => {
                let made = made.into_inner().compaction.unwrap();
                if let Some(failure) = &made.failure {
                    assert_ne!(failure.reason(), FailureReason::Internal, "{failure:?}");
                }
            }
            Err(status) => assert_eq!(refusal(&status).reason, "COMPACTION_NO_GAIN"),
        }
    }

    async fn configure(&self) {
        let session = pb::Session {
            session_id: self.session.clone(),
            policy_overrides: Some(policy(self.window, self.strategy)),
            ..pb::Session::default()
        };
        let request = pb::UpdateSessionRequest {
            session: Some(session),
            update_mask: Some(prost_types::FieldMask { paths: vec!["policy_overrides".to_owned()] }),
            ..Default::default()
        };
        self.host.sessions().update_session(request).await.unwrap();
    }

    /// Fails unless the next turn reaches the model with the input of the user.
    async fn check(&self, what: &str) {
        self.says(Says::default().text("Yes."));
        let before = self.service.count();
        let seen = self.host.run(self.asks("And is it so?")).await;
        assert_eq!(ends(&seen), "turn_completed", "{what}: {:?} {:?}", kinds(&seen), seen.last());
        assert_eq!(self.service.count(), before + 1, "{what}");
        let sent = self.service.newest();
        assert!(sent.body.contains("And is it so?"), "{what}");
        // A token of text is five characters here. The overhead of the request is extra.
        let most = usize::try_from(self.window).unwrap() * 6 + 6_000;
        assert!(sent.body.len() <= most, "{what}: {} bytes", sent.body.len());
        check_counters(self.client, &self.session).await;
    }
}

/// Row D15: U17 and U18
#[test]
fn after_any_turn_the_next_ordinary_input_reaches_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (services, host, client) = runtime.block_on(async {
        let fine = [json!([{"text": "Fine."}])];
        let mut options = Options { call_attempts: 2, ..answering(&fine, &json!([{"text": "In short."}])) };
        let unreadable = STANDARD.encode(UNREADABLE);
        let mut services = Vec::new();
        for protocol in Protocol::ALL {
            let upstream = Upstream::start().await;
            upstream.counts();
            upstream.refuse(&unreadable, refusal_of_a_picture(protocol));
            options = options.provider(protocol.name(), protocol.provider(&upstream));
            services.push((protocol, upstream));
        }
        let host = Host::with(options).await;
        let client = host.database.client().await;
        (services, host, client)
    });
    let sessions = Cell::new(0);
    let config =
        ProptestConfig { cases: CASES, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = proptest::sample::select(STRATEGIES.to_vec());
    let history = (0..services.len(), window(), strategy, deeds());
    TestRunner::new(config)
        .run(&history, |(at, window, strategy, deeds)| {
            sessions.set(sessions.get() + 1);
            let (protocol, service) = &services[at];
            runtime.block_on(async {
                let mut driver = Driver {
                    host: &host,
                    client: &client,
                    protocol: *protocol,
                    service,
                    session: format!("s{}", sessions.get()),
                    window,
                    strategy,
                    calls: 0,
                };
                service.forget();
                session(&host, &driver.session, &protocol.model(), policy(window, strategy)).await;
                for (n, deed) in deeds.iter().enumerate() {
                    driver.act(deed).await;
                    let what = format!("{protocol:?} {window} {strategy:?} after {n} of {deeds:?}");
                    driver.check(&what).await;
                }
            });
            Ok(())
        })
        .unwrap();
}

/// A regression found by the property above: the text of the session was estimated at half of its size.
#[tokio::test]
async fn pictures_that_cost_less_than_expected_teach_nothing_about_text() {
    let deeds = [Deed::Work(3, 0, Come::Together), Deed::Show, Deed::Pin(16)];
    after_each_the_next_input_reaches_gemini(4_096, CompactionStrategy::Truncation, &deeds).await;
}

/// A regression found by the property above.
#[tokio::test]
async fn a_summary_that_no_longer_fits_is_replaced() {
    let deeds = [Deed::Append(19), Deed::Invent("read_file".to_owned()), Deed::Append(3), Deed::Window(4_096)];
    after_each_the_next_input_reaches_gemini(16_384, CompactionStrategy::MiddleRemoval, &deeds).await;
}

async fn after_each_the_next_input_reaches_gemini(window: i32, strategy: CompactionStrategy, deeds: &[Deed]) {
    let service = Upstream::start().await;
    service.counts();
    let protocol = Protocol::Gemini;
    let fine = [json!([{"text": "Fine."}])];
    let options =
        answering(&fine, &json!([{"text": "In short."}])).provider(protocol.name(), protocol.provider(&service));
    let host = Host::with(options).await;
    let client = host.database.client().await;
    let mut driver = Driver {
        host: &host,
        client: &client,
        protocol,
        service: &service,
        session: "s1".to_owned(),
        window,
        strategy,
        calls: 0,
    };
    session(&host, "s1", &protocol.model(), policy(window, strategy)).await;
    for deed in deeds {
        driver.act(deed).await;
        driver.check(&format!("{deed:?}")).await;
    }
}

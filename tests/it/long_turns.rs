//! Turns of hundreds of steps within a small window, with every strategy and every kind of summary model.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use contextd::{
    model::{Content, FinishReason, Message, Prompt, Usage, config::ContextPolicy},
    pb::{self, CompactionState, CompactionStrategy},
    provider::{
        self, Chunk, Finish, ModelInfo, Provider, ResponseStream,
        error::Kind,
        info::{Limit, Source},
    },
};

use crate::{
    compaction::assert_recount,
    harness::{
        Host, Options,
        events::{completed, kinds},
        requests::{result, tools, turn},
        transcripts::says,
    },
};

/// The request that must always be in the prompt.
const REQUEST: &str = "Read all of it, and tell me the last word.";
const PINNED: &str = "Never push to main.";
const STEPS: u32 = 300;
/// Bytes of one result; 2 MB in total.
const RESULT: usize = 2_000_000 / STEPS as usize;

/// The behavior of the summary model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    Well,
    Fails,
    Nothing,
    TooMuch,
    CutOff,
}

/// A model service that refuses prompts that exceed its window, and that calls a tool in this many steps.
#[derive(Debug)]
struct Strict {
    /// Tokens that it accepts.
    window: u32,
    /// Tokens that it declares to accept.
    declared: u32,
    writes: Writes,
    steps: u32,
    calls: AtomicU32,
    refused: AtomicU32,
    summaries: AtomicU32,
    /// Prompts without the request or without the pinned message.
    forgetful: AtomicU32,
}

impl Strict {
    fn new(window: u32, writes: Writes) -> Arc<Self> {
        Arc::new(Self::of(window, writes))
    }

    fn of(window: u32, writes: Writes) -> Self {
        Self {
            window,
            declared: window,
            writes,
            steps: STEPS,
            calls: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            summaries: AtomicU32::new(0),
            forgetful: AtomicU32::new(0),
        }
    }

    fn summary(&self, prompt: &Prompt) -> Vec<Result<Chunk, provider::Error>> {
        self.summaries.fetch_add(1, Ordering::Relaxed);
        let (words, reason) = match self.writes {
            Writes::Well => ("They read on, and found nothing yet.".to_owned(), FinishReason::Stop),
            Writes::Nothing => (String::new(), FinishReason::Stop),
            Writes::TooMuch => ("word ".repeat(100_000), FinishReason::Stop),
            Writes::CutOff => ("They re".to_owned(), FinishReason::Length),
            Writes::Fails => {
                return vec![Err(provider::Error::new(Kind::BadRequest, "strict", "not today"))];
            }
        };
        vec![Ok(Chunk::Text(words)), Ok(finished(prompt, reason))]
    }

    fn step(&self, prompt: &Prompt) -> Vec<Result<Chunk, provider::Error>> {
        if !remembers(prompt) {
            self.forgetful.fetch_add(1, Ordering::Relaxed);
        }
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        if n >= self.steps {
            return vec![
                Ok(Chunk::Text("The last word is \"end\".".to_owned())),
                Ok(finished(prompt, FinishReason::Stop)),
            ];
        }
        let call = Chunk::ToolCall { index: 0, id: format!("call-{n}"), name: "look".to_owned() };
        let arguments = Chunk::ToolInput { index: 0, json: format!("{{\"page\":{n}}}") };
        vec![Ok(call), Ok(arguments), Ok(finished(prompt, FinishReason::ToolCalls))]
    }
}

fn finished(prompt: &Prompt, reason: FinishReason) -> Chunk {
    let usage = Usage { input: prompt.size.tokens, output: 20, ..Usage::default() };
    Chunk::Finished(Finish {
        reason,
        provider_reason: String::new(),
        usage: Some(usage),
        provider_model: String::new(),
        response_id: String::new(),
        metadata: None,
        prompt_usage: None,
        prompt_fingerprint: None,
    })
}

/// Whether a prompt contains everything that it must contain verbatim.
fn remembers(prompt: &Prompt) -> bool {
    let has = |words: &str| {
        let text = |message: &Message| matches!(&message.parts[0].part.content, Content::Text(text) if text == words);
        prompt.transcript.messages().iter().any(text)
    };
    has(REQUEST) && has(PINNED)
}

impl Provider for Strict {
    fn kind(&self) -> &'static str {
        "strict"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let limit = |tokens| Some(Limit::new(tokens, Source::Configured));
        Some(ModelInfo {
            context_window: limit(self.declared),
            max_output: limit(self.window / 8),
            ..ModelInfo::unknown(name)
        })
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let chunks = if prompt.size.tokens > self.window {
            self.refused.fetch_add(1, Ordering::Relaxed);
            vec![Err(provider::Error::new(Kind::TooLong, "strict", "prompt is too long"))]
        } else if prompt.tools.is_empty() {
            self.summary(&prompt)
        } else {
            self.step(&prompt)
        };
        Box::pin(tokio_stream::iter(chunks))
    }
}

/// Runs the turn. Returns the events and the host.
async fn run(strict: &Arc<Strict>, strategy: CompactionStrategy) -> (Vec<pb::Event>, Host) {
    let options = Options { context: ContextPolicy::default(), ..Options::default() };
    let host = Host::with(options.provider("strict", Arc::clone(strict) as Arc<dyn Provider>)).await;
    let compaction = pb::CompactionPolicy { strategy: strategy.into(), ..Default::default() };
    let policy = pb::Policy { compaction: Some(compaction), ..pb::Policy::default() };
    host.create(pb::Session {
        session_id: "long".to_owned(),
        model: "strict/m".to_owned(),
        policy_overrides: Some(policy),
        tools: tools(&["look"]),
        limits: Some(pb::TurnLimits { max_steps: 1_000, ..Default::default() }),
        ..pb::Session::default()
    })
    .await;
    let pinned = pb::InputMessage { pinned: true, ..says(pb::Role::User, PINNED) };
    host.append("long", vec![pinned, says(pb::Role::Assistant, "Never.")]).await;
    let words = "x".repeat(RESULT);
    let events = host.run_with(turn("long", "", REQUEST), |call| result(&call.call_id, &words)).await;
    (events, host)
}

async fn check(strict: Arc<Strict>, strategy: CompactionStrategy) {
    let what = format!("{strategy:?} {} {:?}", strict.window, strict.writes);
    let (events, host) = run(&strict, strategy).await;
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"), "{what}");
    assert_eq!(completed(&events).result.as_ref().unwrap().step_count, i32::try_from(STEPS + 1).unwrap(), "{what}");
    assert_eq!(strict.refused.load(Ordering::Relaxed), 0, "{what}: prompts beyond the window");
    assert_eq!(strict.forgetful.load(Ordering::Relaxed), 0, "{what}: prompts without what must be there");
    let all = host.messages("long").await;
    let spoken: Vec<_> = all.iter().filter(|message| !message.is_summary).collect();
    assert_eq!(spoken.len(), 2 + 1 + 2 * STEPS as usize + 1, "{what}");
    let whole = spoken.iter().flat_map(|message| &message.parts).filter(|part| match &part.content {
        Some(pb::part::Content::ToolResult(it)) => {
            it.truncation.is_none() && crate::harness::events::content(part).len() == RESULT
        }
        _ => false,
    });
    assert_eq!(whole.count(), STEPS as usize, "{what}: results that read back whole");
    assert_recount(&host, "long").await;
    let made = host.stats("long").await.recent_compactions;
    assert!(made.iter().all(|it| it.state() != CompactionState::Running), "{what}");
    let small = made
        .iter()
        .filter(|it| it.state() == CompactionState::Applied)
        .all(|it| it.tokens_after.as_ref().unwrap().tokens * 20 <= it.tokens_before.as_ref().unwrap().tokens * 19);
    assert!(small, "{what}: {made:?}");
}

/// Rows D12, D16, S1, S20 and I7
#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_steps_complete_in_windows_of_8_16_and_128_thousand_tokens() {
    for window in [8_000, 16_000, 128_000] {
        let strict = Strict::new(window, Writes::Well);
        check(Arc::clone(&strict), CompactionStrategy::ReactiveOverflow).await;
        let summaries = strict.summaries.load(Ordering::Relaxed);
        // In a large window, clearing old results is sufficient.
        assert_eq!(summaries > 0, window < 40_000, "{window}: {summaries} summaries");
        assert!(summaries < STEPS / 2, "{window}: {summaries} summaries for {STEPS} steps");
    }
}

/// Rows D11, D13 and L6
#[tokio::test(flavor = "multi_thread")]
async fn long_turns_complete_with_every_strategy() {
    use CompactionStrategy::{MiddleRemoval, ProactiveThreshold, Truncation};
    for strategy in [ProactiveThreshold, MiddleRemoval, Truncation] {
        check(Strict::new(16_000, Writes::Well), strategy).await;
    }
}

/// Rows D15 and S10
#[tokio::test(flavor = "multi_thread")]
async fn long_turns_complete_with_bad_summary_models() {
    for writes in [Writes::Fails, Writes::Nothing, Writes::TooMuch, Writes::CutOff] {
        check(Strict::new(16_000, writes), CompactionStrategy::ReactiveOverflow).await;
    }
}

/// Rows D15, D20 and I7
#[tokio::test(flavor = "multi_thread")]
async fn an_overstated_context_window_is_detected_and_recovered_from() {
    let strict = Arc::new(Strict { declared: 20_000, steps: 6, ..Strict::of(8_000, Writes::Well) });
    let (events, host) = run(&strict, CompactionStrategy::ReactiveOverflow).await;
    assert_eq!(kinds(&events).last(), Some(&"turn_completed"));
    assert_eq!((strict.refused.load(Ordering::Relaxed), strict.forgetful.load(Ordering::Relaxed)), (1, 0));
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "turn_retrying").count(), 1);
    assert!(kinds(&events).contains(&"context_pruned"), "clearing old results was enough");
    assert!(host.stats("long").await.recent_compactions.is_empty());
}

/// Rows D15, D20 and I7
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_too_long_for_the_provider_is_summarised() {
    let strict = Arc::new(Strict { declared: 20_000, steps: 0, ..Strict::of(8_000, Writes::Well) });
    let options = Options { context: ContextPolicy::default(), ..Options::default() };
    let host = Host::with(options.provider("strict", Arc::clone(&strict) as Arc<dyn Provider>)).await;
    let session_id = "s".to_owned();
    let model = "strict/m".to_owned();
    host.create(pb::Session { session_id, model, tools: tools(&["look"]), ..pb::Session::default() }).await;
    for _ in 0..6 {
        host.append("s", vec![says(pb::Role::User, &"x".repeat(8_000)), says(pb::Role::Assistant, "I see.")]).await;
    }
    let events = host.run(turn("s", "", "Go on.")).await;
    let all = kinds(&events);
    let about: Vec<_> = all.iter().filter(|kind| kind.starts_with("compaction") || kind.starts_with("turn_")).collect();
    let expected =
        [&"turn_started", &"turn_retrying", &"compaction_started", &"compaction_completed", &"turn_completed"];
    assert_eq!(about, expected);
    let made = &host.stats("s").await.recent_compactions[0];
    assert_eq!(made.trigger(), pb::CompactionTrigger::ProviderOverflow);
    assert!(made.tokens_after.as_ref().unwrap().tokens * 2 <= made.tokens_before.as_ref().unwrap().tokens, "{made:?}");
    // The summary model, which is the same model, is not sent as much as was refused either.
    assert_eq!(strict.refused.load(Ordering::Relaxed), 1);
    assert_eq!(made.usage.unwrap().calls, i64::from(strict.summaries.load(Ordering::Relaxed)));
    assert!(made.was_summarized);
    assert_recount(&host, "s").await;
}

/// A local model server whose response does not end, once or always.
#[derive(Debug)]
struct Talkative {
    always: bool,
    calls: AtomicU32,
}

impl Provider for Talkative {
    fn kind(&self) -> &'static str {
        "talkative"
    }

    fn is_local(&self) -> bool {
        true
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let window = Some(Limit::new(8_000, Source::Configured));
        Some(ModelInfo {
            context_window: window,
            max_output: Some(Limit::new(1_000, Source::Configured)),
            ..ModelInfo::unknown(name)
        })
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let summarises = prompt.instructions().contains("memory of an assistant");
        let first = !summarises && self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        let words = if !summarises && (first || self.always) { "word ".repeat(8_000) } else { "Briefly.".to_owned() };
        let pieces = words.split_inclusive(' ').map(|word| Ok(Chunk::Text(word.to_owned()))).collect::<Vec<_>>();
        let end = Ok(finished(&prompt, FinishReason::Stop));
        Box::pin(tokio_stream::iter(pieces.into_iter().chain([end])))
    }
}

async fn talks(always: bool) -> (Vec<pb::Event>, Host) {
    let options = Options { context: ContextPolicy::default(), ..Options::default() };
    let talkative = Arc::new(Talkative { always, calls: AtomicU32::new(0) });
    let host = Host::with(options.provider("local", talkative)).await;
    host.create(pb::Session { session_id: "s".to_owned(), model: "local/m".to_owned(), ..pb::Session::default() })
        .await;
    for _ in 0..4 {
        host.append("s", vec![says(pb::Role::User, &"x".repeat(4_000)), says(pb::Role::Assistant, "I see.")]).await;
    }
    (host.run(turn("s", "", "Go on.")).await, host)
}

/// Rows L3, L5 and L7
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_fills_the_window_is_stopped_and_retried_after_a_compaction() {
    let (events, host) = talks(false).await;
    let all = kinds(&events);
    let about: Vec<_> = all.iter().filter(|kind| kind.starts_with("compaction") || kind.starts_with("turn_")).collect();
    let expected =
        [&"turn_started", &"turn_retrying", &"compaction_started", &"compaction_completed", &"turn_completed"];
    assert_eq!(about, expected);
    let told = events.iter().find_map(|event| match &event.payload {
        Some(pb::event::Payload::Notice(notice)) => Some((notice.code(), notice.text.as_str())),
        _ => None,
    });
    assert_eq!(told, Some((pb::NoticeCode::Compacting, "Compacting conversation history...")));
    let voided = events.iter().find_map(|event| match &event.payload {
        Some(pb::event::Payload::TurnRetrying(it)) => Some(it.voided_message_id.clone()),
        _ => None,
    });
    assert!(!voided.unwrap().is_empty(), "what was shown of it is void");
    assert_eq!(host.stats("s").await.recent_compactions[0].trigger(), pb::CompactionTrigger::Threshold);
    assert_recount(&host, "s").await;
}

/// Rows L3 and L5
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_answers_keep_filling_the_window_fails_with_the_category_sizes() {
    let (events, _host) = talks(true).await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "turn_retrying").count(), 3);
    let failure = crate::harness::events::failed(&events).failure.clone().unwrap();
    assert_eq!(failure.reason(), pb::FailureReason::ContextOverflow);
    assert!(!failure.categories.is_empty());
}

/// A local model server whose first response has this many tokens. The others are short.
#[derive(Debug)]
struct Measured {
    tokens: usize,
    calls: AtomicU32,
}

impl Provider for Measured {
    fn kind(&self) -> &'static str {
        "measured"
    }

    fn is_local(&self) -> bool {
        true
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let limit = |tokens| Some(Limit::new(tokens, Source::Configured));
        Some(ModelInfo { context_window: limit(8_000), max_output: limit(1_000), ..ModelInfo::unknown(name) })
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        // Four letters count as one token of an unfinished response.
        let tokens = if self.calls.fetch_add(1, Ordering::Relaxed) == 0 { self.tokens } else { 1 };
        let chunks = [Ok(Chunk::Text("word".repeat(tokens))), Ok(finished(&prompt, FinishReason::Stop))];
        Box::pin(tokio_stream::iter(chunks))
    }
}

/// Runs the first turn of a session with such a server. Returns its events.
async fn measured(tokens: usize) -> Vec<pb::Event> {
    let options = Options { context: ContextPolicy::default(), ..Options::default() };
    let provider = Arc::new(Measured { tokens, calls: AtomicU32::new(0) });
    let host = Host::with(options.provider("local", provider)).await;
    host.create(pb::Session { session_id: "s".to_owned(), model: "local/m".to_owned(), ..pb::Session::default() })
        .await;
    host.append("s", vec![says(pb::Role::User, &"x".repeat(4_000)), says(pb::Role::Assistant, "I see.")]).await;
    host.run(turn("s", "", "Go on.")).await
}

/// Row L3
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_stopped_beyond_nine_tenths_of_the_window_and_not_one_token_earlier() {
    let prompt = measured(1).await.into_iter().find_map(|event| match event.payload {
        Some(pb::event::Payload::StepStarted(step)) => step.context_tokens,
        _ => None,
    });
    let room = 7_200 - usize::try_from(prompt.unwrap().tokens).unwrap();
    let restarts = async |tokens| {
        let events = measured(tokens).await;
        assert_eq!(kinds(&events).last(), Some(&"turn_completed"), "{tokens}");
        kinds(&events).iter().filter(|kind| **kind == "turn_retrying").count()
    };
    assert_eq!(restarts(room).await, 0, "{room} tokens fill exactly nine tenths");
    assert_eq!(restarts(room + 1).await, 1, "one more is too many");
}

/// A local model server that first makes two tool calls at once, then makes another call and fills the window, and then
/// repeats only that call.
#[derive(Debug, Default)]
struct Busy {
    calls: AtomicU32,
    prompts: Mutex<Vec<Arc<Prompt>>>,
}

impl Provider for Busy {
    fn kind(&self) -> &'static str {
        "busy"
    }

    fn is_local(&self) -> bool {
        true
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let limit = |tokens| Some(Limit::new(tokens, Source::Configured));
        Some(ModelInfo { context_window: limit(8_000), max_output: limit(1_000), ..ModelInfo::unknown(name) })
    }

    fn models(&self) -> Vec<ModelInfo> {
        Vec::new()
    }

    fn call(&self, prompt: Arc<Prompt>) -> ResponseStream {
        let text = |words: &str| vec![Ok(Chunk::Text(words.to_owned()))];
        let look = |index, page: &str| {
            let id = format!("look-{page}");
            let json = format!("{{\"page\":\"{page}\"}}");
            vec![Ok(Chunk::ToolCall { index, id, name: "look".to_owned() }), Ok(Chunk::ToolInput { index, json })]
        };
        let (chunks, reason) = if prompt.instructions().contains("memory of an assistant") {
            (text("They began to read."), FinishReason::Stop)
        } else {
            let n = self.calls.fetch_add(1, Ordering::Relaxed);
            self.prompts.lock().unwrap().push(Arc::clone(&prompt));
            match n {
                0 => ([look(0, "one"), look(1, "two")].concat(), FinishReason::ToolCalls),
                1 => ([look(0, "three"), text(&"word ".repeat(8_000))].concat(), FinishReason::ToolCalls),
                2 => (look(0, "three"), FinishReason::ToolCalls),
                _ => (text("Read."), FinishReason::Stop),
            }
        };
        Box::pin(tokio_stream::iter(chunks.into_iter().chain([Ok(finished(&prompt, reason))])))
    }
}

/// Row L5
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_step_runs_no_tool_twice_and_keeps_its_results() {
    let busy = Arc::new(Busy::default());
    let options = Options { context: ContextPolicy::default(), ..Options::default() };
    let host = Host::with(options.provider("local", Arc::clone(&busy) as Arc<dyn Provider>)).await;
    let session_id = "s".to_owned();
    let model = "local/m".to_owned();
    host.create(pb::Session { session_id, model, tools: tools(&["look"]), ..pb::Session::default() }).await;
    for _ in 0..4 {
        host.append("s", vec![says(pb::Role::User, &"x".repeat(3_000)), says(pb::Role::Assistant, "I see.")]).await;
    }
    let ran = Mutex::new(Vec::new());
    let page = |page: &str| format!("This is page {page}. {}", page.repeat(300));
    let events = host
        .run_with(turn("s", "", "Read on."), |call| {
            let arguments: serde_json::Value = serde_json::from_str(&call.arguments_json).unwrap();
            let asked = arguments["page"].as_str().unwrap().to_owned();
            let output = page(&asked);
            ran.lock().unwrap().push(asked);
            result(&call.call_id, &output)
        })
        .await;
    let all = kinds(&events);
    assert_eq!(all.iter().filter(|kind| **kind == "turn_retrying").count(), 1, "{all:?}");
    assert!(all.contains(&"compaction_completed") && all.last() == Some(&"turn_completed"), "{all:?}");
    assert_eq!(*ran.lock().unwrap(), ["one", "two", "three"], "each once, and none of the answer that was stopped");
    let prompts = busy.prompts.lock().unwrap();
    let results = |prompt: &Prompt| -> Vec<String> {
        let parts = prompt.transcript.messages().iter().flat_map(|message| &message.parts);
        let texts = parts.filter_map(|part| match &part.part.content {
            Content::ToolResult(result) => Some(result.texts().collect::<String>()),
            _ => None,
        });
        texts.collect()
    };
    let pages = [page("one"), page("two"), page("three")];
    assert_eq!(
        prompts.iter().map(|prompt| results(prompt)).collect::<Vec<_>>(),
        [pages[..0].to_vec(), pages[..2].to_vec(), pages[..2].to_vec(), pages.to_vec(),]
    );
    let before = prompts[1].size.tokens;
    assert!(prompts[2].size.tokens * 2 <= before, "made again with {} of {before} tokens", prompts[2].size.tokens);
}

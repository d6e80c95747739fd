//! Compactions: what replaces older messages, requested by a call or made by a turn, applied and reverted.

use contextd::{
    model::{Prompt, config::ContextPolicy},
    pb::{self, CompactionState, CompactionStrategy, CompactionTrigger, MessageView, event::Payload},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::harness::{
    Host, Options,
    events::{all, kinds, message_text, until},
    host::{MODEL, call, refusal, script},
    requests::{enqueue, result, tools, turn},
    transcripts::one_turn,
};

mod failures;
mod hidden_step;
mod targets;

/// The recorded model calls: the compaction that each was for, and the message that it wrote.
async fn accounts(host: &Host) -> Vec<(String, String)> {
    let events = host.events("s", "", 0, 1_000).await;
    let calls = events.into_iter().filter_map(|event| match event.payload {
        Some(Payload::UsageRecorded(call)) => Some((call.compaction_id, call.message_id)),
        _ => None,
    });
    calls.collect()
}

/// The model that writes summaries.
pub(crate) const SUMMARISER: &str = "scripted/sum";

/// A model that responds "Fine.", and one that returns this summary.
pub(crate) fn options(summary: &Value) -> Options {
    answering(&[json!([{"text": "Fine."}])], summary)
}

/// Like [`options`], with these responses.
pub(crate) fn answering(answers: &[Value], summary: &Value) -> Options {
    let sum = json!({"context_window": 100_000, "max_output": 4_000, "steps": [{"say": summary}]}).to_string();
    Options { context: ContextPolicy::default(), ..Options::default() }.script("it", script(answers)).script("sum", sum)
}

pub(crate) fn in_short() -> Value {
    json!([{"text": "In short: they looked."}])
}

async fn host() -> Host {
    Host::with(options(&in_short())).await
}

/// A session with this compaction policy and a window of this many tokens, with a turn for each size.
pub(crate) async fn session(host: &Host, window: i32, policy: pb::CompactionPolicy, sizes: &[usize]) {
    let compaction = pb::CompactionPolicy { summary_model: SUMMARISER.to_owned(), ..policy };
    let policy = pb::Policy {
        compaction: Some(compaction),
        context_window: Some(window),
        output_reserve: Some(1_000),
        ..pb::Policy::default()
    };
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    })
    .await;
    for (n, tokens) in sizes.iter().enumerate() {
        host.append("s", one_turn(&format!("c{n}"), *tokens)).await;
    }
}

pub(crate) fn request(id: &str) -> pb::CompactRequest {
    pb::CompactRequest { session_id: "s".to_owned(), request_id: id.to_owned(), wait: true, ..Default::default() }
}

pub(crate) async fn try_compact(host: &Host, request: pb::CompactRequest) -> Result<pb::Compaction, Status> {
    Ok(host.contexts().compact(request).await?.into_inner().compaction.unwrap())
}

async fn compact(host: &Host, id: &str) -> pb::Compaction {
    try_compact(host, request(id)).await.unwrap()
}

async fn try_revert(host: &Host, id: &str, request: &str) -> Result<pb::RevertCompactionResponse, Status> {
    let request = pb::RevertCompactionRequest {
        session_id: "s".to_owned(),
        compaction_id: id.to_owned(),
        request_id: request.to_owned(),
    };
    Ok(host.contexts().revert_compaction(request).await?.into_inner())
}

pub(crate) async fn listed(host: &Host) -> Vec<pb::Compaction> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListCompactionsRequest { session_id: "s".to_owned(), page_size: 1, page_token };
        let page = host.contexts().list_compactions(request).await.unwrap().into_inner();
        all.extend(page.compactions);
        if page.next_page_token.is_empty() {
            return all;
        }
        page_token = page.next_page_token;
    }
}

/// The model's view as text.
pub(crate) async fn seen(host: &Host) -> Vec<String> {
    let live = host.listed("s", MessageView::Live, 0, false, 3).await;
    live.iter().map(|message| format!("{:?}: {}", message.role(), message_text(message))).collect()
}

/// The stored messages and counters of a session, without compactions and events.
async fn stored(host: &Host) -> (String, String) {
    let client = host.database.client().await;
    let messages = "select string_agg(m::text || p::text, ';' order by m.seq, p.idx)
                      from messages m join parts p using (tenant_id, session_id, message_id) where session_id = 's' and not m.is_summary";
    let counters =
        "select (ctx_messages, ctx_overhead, ctx_tokens, ctx_parts)::text from session_run where session_id = 's'";
    let messages = client.query_one(messages, &[]).await.unwrap().get(0);
    (messages, client.query_one(counters, &[]).await.unwrap().get(0))
}

/// Fails unless the counters equal a recount of the model's view.
pub(crate) async fn assert_recount(host: &Host, session: &str) {
    let live = host.listed(session, MessageView::Live, 0, false, 1_000).await;
    let tokens: i64 = live.iter().map(|message| i64::from(message.tokens.as_ref().unwrap().tokens)).sum();
    let sql = "select r.ctx_overhead + (select sum(t) from unnest(r.ctx_tokens[1:8]) t)::bigint, r.ctx_messages::bigint
                 from session_run r where session_id = $1";
    let row = host.database.client().await.query_one(sql, &[&session]).await.unwrap();
    let kept: [i64; 2] = std::array::from_fn(|column| row.get(column));
    assert_eq!(kept, [tokens, i64::try_from(live.len()).unwrap()]);
}

pub(crate) fn first_words(prompt: &Prompt) -> String {
    let part = &prompt.transcript.messages()[0].parts[0].part;
    match &part.content {
        contextd::model::Content::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// The conversations that were sent to the summary model, oldest first.
pub(crate) fn asked(host: &Host) -> Vec<String> {
    let prompts = host.replica.scripted.prompts();
    prompts.iter().filter(|prompt| prompt.model == "sum").map(|prompt| first_words(prompt)).collect()
}

/// Rows D12, S11, S16, S19 and A7
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_replaces_older_messages_which_stay_readable() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let before = host.stats("s").await.used.unwrap();
    let made = compact(&host, "once").await;
    assert_eq!((made.state(), made.strategy()), (CompactionState::Applied, CompactionStrategy::ReactiveOverflow));
    assert_eq!((made.trigger(), made.was_summarized), (CompactionTrigger::Manual, true));
    assert_eq!((made.messages_compacted, made.messages_before, made.messages_after), (12, 20, 9));
    assert_eq!((made.summary.as_str(), made.summary_model.as_str()), ("In short: they looked.", SUMMARISER));
    assert_eq!(made.tokens_before.as_ref(), Some(&before));
    let after = host.stats("s").await;
    assert_eq!(made.tokens_after.as_ref().unwrap().tokens, after.used.as_ref().unwrap().tokens);
    assert!(after.used.as_ref().unwrap().tokens < before.tokens - 2_900);
    assert_eq!((after.compacted_count, after.recent_compactions.len()), (12, 1));
    assert_eq!(after.recent_compactions[0], listed(&host).await[0]);
    let usage: Vec<_> = after.usage.iter().map(|spent| (spent.purpose(), spent.model.as_str())).collect();
    assert_eq!(usage, [(pb::UsagePurpose::Compaction, SUMMARISER)]);
    assert_eq!((made.referenced_tools.as_slice(), made.unreferenced_tools.len()), (&["look".to_owned()][..], 0));
    let live = seen(&host).await;
    assert_eq!((live.len(), live[0].as_str()), (9, "User: [Previous conversation summary]\n\nIn short: they looked."));
    assert_recount(&host, "s").await;
    let all = host.messages("s").await;
    let marked = all.iter().filter(|message| message.compacted_by == made.compaction_id).count();
    assert_eq!((all.len(), marked), (21, 12));
    host.ask("s", "Well?").await;
    let prompts = host.replica.scripted.prompts();
    let newest = prompts.last().unwrap();
    assert_eq!((newest.transcript.messages().len(), newest.model.as_str()), (10, "it"));
    assert_eq!(first_words(newest), "[Previous conversation summary]\n\nIn short: they looked.");
    let kinds = kinds(&host.events("s", "", 0, 100).await);
    let about: Vec<_> =
        kinds.iter().filter(|kind| kind.starts_with("compaction") || **kind == "usage_recorded").collect();
    assert_eq!(about, [&"compaction_started", &"compaction_completed", &"usage_recorded", &"usage_recorded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_compact_request_returns_the_same_compaction() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let first = compact(&host, "once").await;
    assert_eq!(compact(&host, "once").await, first);
    let other = pb::CompactRequest { target_tokens: 7, ..request("once") };
    let status = try_compact(&host, other).await.unwrap_err();
    assert_eq!(refusal(&status, "").1, "IDEMPOTENCY_MISMATCH");
    let status = try_compact(&host, request("twice")).await.unwrap_err();
    let (code, reason, before) = refusal(&status, "tokens_before");
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "COMPACTION_NO_GAIN"));
    assert_eq!(before, host.stats("s").await.used.unwrap().tokens.to_string());
    assert_eq!((listed(&host).await.len(), asked(&host).len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_compaction_changes_nothing() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let before = stored(&host).await;
    let planned = try_compact(&host, pb::CompactRequest { validate_only: true, ..request("dry") }).await.unwrap();
    assert_eq!((planned.state(), planned.compaction_id.as_str()), (CompactionState::Planned, ""));
    assert_eq!((planned.messages_compacted, planned.messages_after), (12, 9));
    assert!(planned.usage.unwrap().input_tokens > 3_000);
    let after = planned.tokens_after.unwrap().tokens;
    assert_eq!((stored(&host).await, listed(&host).await.len(), asked(&host).len()), (before, 0, 0));
    let made = compact(&host, "dry").await;
    assert!(made.tokens_after.unwrap().tokens <= after, "a summary was reckoned at its cap");
}

/// Rows I5 and S3
#[tokio::test(flavor = "multi_thread")]
async fn reverting_a_compaction_restores_the_previous_context() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let before = stored(&host).await;
    let live = seen(&host).await;
    let first = compact(&host, "1").await;
    let between = stored(&host).await;
    host.append("s", one_turn("c8", 1_000)).await;
    host.append("s", one_turn("c9", 1_000)).await;
    let appended = stored(&host).await;
    let two = seen(&host).await;
    let second = compact(&host, "2").await;
    assert_eq!((second.predecessor_id.as_str(), second.messages_compacted), (first.compaction_id.as_str(), 20));
    let status = try_revert(&host, &first.compaction_id, "").await.unwrap_err();
    let newest = second.compaction_id.clone();
    assert_eq!(refusal(&status, "compaction_id"), (Code::FailedPrecondition, "COMPACTION_SUPERSEDED".into(), newest));
    let reverted = try_revert(&host, &second.compaction_id, "back").await.unwrap();
    assert_eq!(reverted.compaction.as_ref().unwrap().state(), CompactionState::Reverted);
    assert_eq!(reverted.context_tokens, host.stats("s").await.used);
    assert_eq!((stored(&host).await, seen(&host).await), (appended, two));
    assert_eq!(try_revert(&host, &second.compaction_id, "back").await.unwrap(), reverted, "told the same");
    assert_eq!(try_revert(&host, &second.compaction_id, "").await.unwrap(), reverted, "twice changes nothing");
    try_revert(&host, &first.compaction_id, "").await.unwrap();
    assert_eq!(seen(&host).await[..20], live);
    assert_recount(&host, "s").await;
    assert_ne!(before, between);
    let states: Vec<_> = listed(&host).await.iter().map(pb::Compaction::state).collect();
    assert_eq!(states, [CompactionState::Reverted; 2]);
    let status = try_revert(&host, "nothing", "").await.unwrap_err();
    assert_eq!((status.code(), refusal(&status, "").1.as_str()), (Code::NotFound, "COMPACTION_NOT_FOUND"));
}

/// Rows S9, S10 and D12
#[tokio::test(flavor = "multi_thread")]
async fn the_next_summary_is_made_from_the_previous_one_and_new_messages() {
    let host = host().await;
    let wishes = pb::CompactionPolicy { instructions: "Keep all ticket numbers.".to_owned(), ..Default::default() };
    session(&host, 100_000, wishes, &[1_000; 4]).await;
    compact(&host, "1").await;
    host.append("s", one_turn("c9", 900)).await;
    let extra = pb::CompactRequest { instructions: "In verse.".to_owned(), ..request("2") };
    try_compact(&host, extra).await.unwrap();
    let asked = asked(&host);
    assert_eq!(asked.len(), 2);
    assert!(!asked[0].contains("<summary>"));
    assert_eq!(asked[0].matches("User:\nLook.").count(), 2, "{}", asked[0]);
    assert!(
        asked[0].contains(&format!("[look result: {}... (3500 more characters)]", "x".repeat(500))),
        "{}",
        asked[0]
    );
    assert!(asked[1].contains("<summary>\nIn short: they looked.\n</summary>"));
    assert_eq!(asked[1].matches("User:\nLook.").count(), 1, "only what the first one does not stand for");
    let prompts = host.replica.scripted.prompts();
    let systems: Vec<String> = prompts.iter().map(|prompt| prompt.instructions()).collect();
    assert!(systems[0].contains("Wishes for this summary:\nKeep all ticket numbers.") && !systems[0].contains("verse"));
    assert!(systems[1].contains("Keep all ticket numbers.") && systems[1].contains("In verse."));
}

/// Rows D14, S1 and S19
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_does_not_fit_is_compacted_before_its_first_call() {
    let host = host().await;
    session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let events = host.run(turn("s", "", "Well?")).await;
    let all = kinds(&events);
    let about: Vec<_> = all.iter().filter(|kind| kind.starts_with("compaction") || kind.starts_with("turn_")).collect();
    assert_eq!(about, [&"turn_started", &"compaction_started", &"compaction_completed", &"turn_completed"]);
    let completed = events.iter().find_map(|event| match &event.payload {
        Some(Payload::CompactionCompleted(it)) => it.compaction.clone(),
        _ => None,
    });
    let completed = completed.unwrap();
    assert_eq!((completed.trigger(), completed.limit_tokens), (CompactionTrigger::Overflow, 5_000));
    assert_eq!(Some(&completed.compaction_id), listed(&host).await.first().map(|it| &it.compaction_id));
    assert!(completed.tokens_after.unwrap().tokens <= 2_500, "it has to last for a while");
    let calls: Vec<_> = host.replica.scripted.prompts().iter().map(|prompt| prompt.model.clone()).collect();
    assert_eq!(calls, ["sum", "it"]);
    assert!(seen(&host).await.contains(&"User: Well?".to_owned()));
    assert_recount(&host, "s").await;
}

/// Rows D13 and L7
#[tokio::test(flavor = "multi_thread")]
async fn threshold_strategies_compact_at_their_share_of_the_window() {
    use CompactionStrategy::{MiddleRemoval, ProactiveThreshold};
    for (strategy, window, calls) in [(ProactiveThreshold, 10_000, 1), (MiddleRemoval, 6_900, 0)] {
        let host = host().await;
        let policy = pb::CompactionPolicy { strategy: strategy.into(), ..Default::default() };
        session(&host, window, policy, &[1_000; 5]).await;
        host.ask("s", "Well?").await;
        let made = listed(&host).await;
        assert_eq!((made.len(), asked(&host).len()), (1, calls), "{strategy:?}");
        assert_eq!((made[0].strategy(), made[0].trigger()), (strategy, CompactionTrigger::Threshold));
        assert_recount(&host, "s").await;
    }
    let host = host().await;
    session(&host, 6_000, pb::CompactionPolicy { enabled: Some(false), ..Default::default() }, &[1_000; 5]).await;
    host.ask("s", "Well?").await;
    assert!(listed(&host).await.is_empty());
}

/// Rows D15, S10 and L6
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_summary_falls_back_to_the_next_strategy() {
    let long = json!([{"repeat": {"text": "word ", "times": 30_000}}]);
    let bad = [
        ("fails", json!([{"error": {"kind": "bad_request", "message": "no"}}])),
        ("says nothing", json!([{"text": " "}])),
        ("is cut off", json!([{"text": "In sh"}, {"finish": {"reason": "length"}}])),
        ("says more than it read", long),
        ("breaks off", json!([{"text": "In"}, {"end_without_finish": true}])),
    ];
    for (what, summary) in bad {
        let host = Host::with(options(&summary)).await;
        session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
        let events = host.run(turn("s", "", "Well?")).await;
        assert_eq!(kinds(&events).last(), Some(&"turn_completed"), "{what}");
        let made = listed(&host).await;
        assert_eq!((made.len(), made[0].state()), (1, CompactionState::Applied), "{what}");
        assert_eq!((made[0].strategy(), made[0].was_summarized), (CompactionStrategy::MiddleRemoval, false), "{what}");
        assert_eq!(made[0].usage.unwrap().calls, 1, "{what}");
        assert_recount(&host, "s").await;
        // If the context does not have to become smaller, it is left unchanged rather than truncated.
        let relaxed = Host::with(options(&summary)).await;
        session(&relaxed, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
        let before = stored(&relaxed).await;
        let failed = compact(&relaxed, "").await;
        assert_eq!(failed.state(), CompactionState::Failed, "{what}");
        assert!(!failed.failure.clone().unwrap().message.is_empty());
        assert_eq!(accounts(&relaxed).await, [(failed.compaction_id, String::new())], "{what}");
        assert_eq!(stored(&relaxed).await, before, "{what}");
    }
}

/// Rows D15 and I7
#[tokio::test(flavor = "multi_thread")]
async fn an_ineffective_compaction_is_not_repeated_until_it_is_required() {
    let answers = [json!([call("look")]), json!([{"text": "Fine."}])];
    let host = Host::with(answering(&answers, &json!([{"text": " "}]))).await;
    let policy = pb::CompactionPolicy { strategy: CompactionStrategy::ProactiveThreshold.into(), ..Default::default() };
    session(&host, 10_000, policy, &[1_000; 5]).await;
    for _ in 0..2 {
        let asks = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "", "Well?") };
        host.run_with(asks, |call| result(&call.call_id, "There.")).await;
    }
    let states = async || listed(&host).await.iter().map(pb::Compaction::state).collect::<Vec<_>>();
    assert_eq!(states().await, [CompactionState::Failed], "four calls, and one try");
    host.append("s", one_turn("c9", 3_500)).await;
    host.run_with(turn("s", "", "Well?"), |call| result(&call.call_id, "There.")).await;
    assert_eq!(states().await, [CompactionState::Applied, CompactionState::Failed]);
    assert_recount(&host, "s").await;
}

/// Row S8
#[tokio::test(flavor = "multi_thread")]
async fn input_larger_than_the_summary_models_window_is_summarised_in_pieces() {
    let small =
        json!({"context_window": 3_000, "max_output": 300, "steps": [{"say": [{"text": "In short."}]}]}).to_string();
    let fine = json!({"steps": [{"say": [{"text": "Fine."}]}]}).to_string();
    let options = Options { context: ContextPolicy::default(), ..Options::default() };
    let host = Host::with(options.script("it", fine).script("sum", small)).await;
    session(&host, 100_000, pb::CompactionPolicy { keep_turns: Some(1), ..Default::default() }, &[]).await;
    let words = |n: usize| crate::harness::transcripts::says(pb::Role::User, &format!("{n} {}", "word ".repeat(1_000)));
    for n in 0..8 {
        host.append("s", vec![words(n), crate::harness::transcripts::says(pb::Role::Assistant, "Yes.")]).await;
    }
    let made = compact(&host, "").await;
    let asked = asked(&host);
    assert_eq!(
        (made.state(), made.usage.unwrap().calls),
        (CompactionState::Applied, i64::try_from(asked.len()).unwrap())
    );
    assert!(asked.len() > 4, "{}", asked.len());
    for n in 0..7 {
        assert_eq!(asked.iter().filter(|asked| asked.contains(&format!("User:\n{n} word"))).count(), 1, "{n}");
    }
    let prompts = host.replica.scripted.prompts();
    assert!(prompts.iter().all(|prompt| prompt.size.tokens + 300 <= 3_000));
}

/// Row D12
#[tokio::test(flavor = "multi_thread")]
async fn pinned_messages_stay_verbatim_through_compaction() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[]).await;
    let pinned = pb::InputMessage { pinned: true, ..crate::harness::transcripts::says(pb::Role::User, "Never push.") };
    host.append("s", vec![pinned, crate::harness::transcripts::says(pb::Role::Assistant, "Never.")]).await;
    for n in 0..4 {
        host.append("s", one_turn(&format!("c{n}"), 1_000)).await;
    }
    compact(&host, "").await;
    let live = seen(&host).await;
    assert_eq!(
        live[..2],
        ["User: Never push.".to_owned(), "User: [Previous conversation summary]\n\nIn short: they looked.".to_owned()]
    );
    assert_recount(&host, "s").await;
}

/// Row D12
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_the_compacted_context_of_its_source() {
    let host = host().await;
    session(&host, 100_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    let made = compact(&host, "").await;
    host.try_fork(crate::harness::transcripts::fork("s", 0, "f")).await.unwrap();
    assert_recount(&host, "f").await;
    let live = host.listed("f", MessageView::Live, 0, false, 100).await;
    assert_eq!((live.len(), live[0].is_summary), (9, true));
    assert_eq!(host.stats("f").await.compacted_count, made.messages_compacted);
}

/// Rows S12 and D14
#[tokio::test(flavor = "multi_thread")]
async fn prepare_context_compacts_what_does_not_fit_and_reports_it() {
    let host = host().await;
    session(&host, 6_000, pb::CompactionPolicy::default(), &[1_000; 5]).await;
    host.append("s", vec![crate::harness::transcripts::says(pb::Role::User, "Well?")]).await;
    let before = host.stats("s").await.used;
    let prepare = async |request: &str| {
        let request = pb::PrepareContextRequest {
            session_id: "s".to_owned(),
            request_id: request.to_owned(),
            ..pb::PrepareContextRequest::default()
        };
        let answer = host.contexts().prepare_context(request).await.unwrap().into_inner();
        (answer.prompt.unwrap(), answer.report.unwrap())
    };
    let (prompt, report) = prepare("once").await;
    assert_eq!((&report.tokens_before, &report.tokens_after_prune), (&before, &before));
    assert_eq!((&report.tokens_after_compaction, &report.tokens_final), (&prompt.tokens, &prompt.tokens));
    let made = report.compaction.clone().unwrap();
    assert_eq!((made.state(), made.trigger()), (CompactionState::Applied, CompactionTrigger::Overflow));
    assert_eq!(listed(&host).await, [made]);
    assert!(prompt.messages[0].is_summary && prompt.tokens.unwrap().tokens < 2_600);
    assert_eq!(prepare("once").await.1, report, "the same request is told the same");
    assert_eq!(prepare("twice").await.1.compaction, None);
    assert_eq!(asked(&host).len(), 1);
    assert_recount(&host, "s").await;
}

/// The texts of the notices with this code.
fn notices(events: &[pb::Event], code: pb::NoticeCode) -> Vec<&str> {
    let notices = events.iter().filter_map(|event| match &event.payload {
        Some(Payload::Notice(notice)) if notice.code() == code => Some(notice.text.as_str()),
        _ => None,
    });
    notices.collect()
}

/// Row D25
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_turn_get_a_nearly_full_notice() {
    let host = host().await;
    session(&host, 11_000, pb::CompactionPolicy::default(), &[4_600, 4_600]).await;
    assert!(host.stats("s").await.approaching_limit, "the statistics say the same");
    let events = host.ask("s", "Well?").await;
    let [step] = events.iter().filter_map(step_started).collect::<Vec<_>>()[..] else { panic!("not one step") };
    assert_eq!((step.context_window, step.output_reserve), (11_000, 1_000), "of the policy");
    let used = step.context_tokens.as_ref().unwrap().tokens;
    assert!((9_001..=10_000).contains(&used), "{used}");
    let told = notices(&events, pb::NoticeCode::ContextNearlyFull);
    assert_eq!(told, [format!("The context is nearly full: {used} of 10000 tokens")]);
    // A stream reports what happened before it began only through the events.
    let mut replay = host.watch("s", &events[0].turn_id, 0).await;
    assert_eq!(notices(&all(&mut replay).await, pb::NoticeCode::ContextNearlyFull), [""; 0]);

    let roomy = self::host().await;
    session(&roomy, 12_000, pb::CompactionPolicy::default(), &[4_600, 4_600]).await;
    assert_eq!(notices(&roomy.ask("s", "Well?").await, pb::NoticeCode::ContextNearlyFull), [""; 0]);
}

fn step_started(event: &pb::Event) -> Option<&pb::StepStarted> {
    match &event.payload {
        Some(Payload::StepStarted(started)) => Some(started),
        _ => None,
    }
}

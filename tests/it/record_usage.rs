//! RecordUsage: the usage of a host's own calls, and its effect on predicted sizes.

use std::sync::atomic::{AtomicUsize, Ordering};

use contextd::pb::{self, TokenBasis, event::Payload, model_service_client::ModelServiceClient};
use serde_json::json;
use tonic::Status;

use crate::harness::{
    Host, Options,
    errors::refusal,
    host::{MODEL, answering, call},
    requests::{clears, text, tools, turn},
    transcripts::{append, calls, message, one_turn, results, says},
    upstream::Upstream,
};

async fn host() -> Host {
    let host = Host::with(answering(&[json!([{"text": "Fine."}])])).await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    host
}

fn used(input_tokens: i32, output_tokens: i32) -> Option<pb::Usage> {
    Some(pb::Usage { input_tokens, output_tokens, ..pb::Usage::default() })
}

fn report(usage: Option<pb::Usage>) -> pb::RecordUsageRequest {
    pb::RecordUsageRequest { session_id: "s".to_owned(), usage, ..Default::default() }
}

async fn try_record(host: &Host, request: pb::RecordUsageRequest) -> Result<pb::RecordUsageResponse, Status> {
    Ok(host.contexts().record_usage(request).await?.into_inner())
}

async fn record(host: &Host, request: pb::RecordUsageRequest) -> pb::RecordUsageResponse {
    try_record(host, request).await.unwrap()
}

/// The version and the size of the current prompt.
async fn prompt(host: &Host) -> (i64, i32) {
    let request = pb::RenderContextRequest { session_id: "s".to_owned(), ..Default::default() };
    let prompt = host.contexts().render_context(request).await.unwrap().into_inner().prompt.unwrap();
    (prompt.context_version, prompt.tokens.unwrap().tokens)
}

/// Rows A2, A3 and A5
#[tokio::test(flavor = "multi_thread")]
async fn a_usage_report_sets_the_anchor_and_totals_and_is_stored_with_its_message() {
    let host = host().await;
    host.append("s", vec![says(pb::Role::User, "What is there?")]).await;
    let (context_version, predicted) = prompt(&host).await;
    let wrote = host.append("s", vec![calls(&["c1"])]).await;
    host.append("s", vec![results(&["c1"])]).await;
    let message_id = wrote.message_ids[0].clone();
    let usage = pb::Usage {
        input_tokens: 5_000,
        output_tokens: 100,
        cache_read_tokens: 4_000,
        provider_usage_json: r#"{"price":1.50}"#.to_owned(),
        ..pb::Usage::default()
    };
    let request = pb::RecordUsageRequest {
        request_id: "r".to_owned(),
        message_id: message_id.clone(),
        context_version,
        ..report(Some(usage.clone()))
    };
    let recorded = record(&host, request.clone()).await;
    let estimate = recorded.estimate.unwrap();
    assert_eq!((estimate.estimated_tokens, estimate.actual_tokens), (predicted, 5_000));
    assert_eq!((estimate.error_tokens, estimate.basis()), (predicted - 5_000, TokenBasis::Heuristic));
    assert_eq!(recorded.calibration_ratio, 2.0, "as far as it goes");
    let stats = host.stats("s").await;
    let basis = stats.size_basis.unwrap();
    assert_eq!((basis.last_input_tokens, basis.last_output_tokens), (5_000, 100));
    assert_eq!(stats.used, recorded.context_tokens);
    assert_eq!(stats.used.unwrap().tokens, 5_100 + basis.new_tokens, "the results are new");
    assert_eq!(stats.last_estimate, Some(estimate));
    assert_eq!(
        (stats.usage.len(), stats.usage[0].model.as_str(), stats.usage[0].purpose()),
        (1, MODEL, pb::UsagePurpose::Turn)
    );
    let totals = stats.usage[0].usage.unwrap();
    assert_eq!(
        (totals.calls, totals.input_tokens, totals.output_tokens, totals.cache_read_tokens),
        (1, 5_000, 100, 4_000)
    );
    let told = host.messages("s").await.into_iter().find(|message| message.message_id == message_id).unwrap();
    let response = told.response.unwrap();
    assert_eq!((response.model.as_str(), response.finish_reason()), (MODEL, pb::FinishReason::ToolCalls));
    assert_eq!(response.usage, Some(pb::Usage { total_tokens: 5_100, ..usage }));
    let last = host.events("s", "", 0, 100).await.pop().unwrap();
    let Some(Payload::UsageRecorded(event)) = &last.payload else { panic!("{last:?}") };
    assert_eq!((event.message_id.as_str(), event.estimate), (message_id.as_str(), Some(estimate)));
    assert_eq!((last.turn_id.as_str(), last.seq), ("", host.session("s").await.last_seq));
    assert_eq!(record(&host, request).await, recorded, "the same request is told the same");
    assert_eq!(host.stats("s").await.usage[0].usage.unwrap().calls, 1);
    let golden = 20 * 4 - 4 * 4; // the message itself costs 4
    host.append("s", vec![says(pb::Role::User, &"x".repeat(golden))]).await;
    assert_eq!(
        host.stats("s").await.used.unwrap().tokens,
        5_120 + basis.new_tokens,
        "5,000 + 100 + 20, and the results"
    );
}

/// Row A3
#[tokio::test(flavor = "multi_thread")]
async fn a_report_without_an_appended_answer_anchors_the_prompt_only() {
    let host = host().await;
    host.append("s", vec![says(pb::Role::User, "What is there?")]).await;
    let (context_version, _) = prompt(&host).await;
    let recorded = record(&host, pb::RecordUsageRequest { context_version, ..report(used(5_000, 100)) }).await;
    let size = recorded.context_tokens.unwrap();
    assert_eq!((size.tokens, size.basis(), size.margin), (5_000, TokenBasis::Actual, 0));
    host.append("s", vec![says(pb::Role::Assistant, &"x".repeat(4 * 16))]).await;
    assert_eq!(host.stats("s").await.used.unwrap().tokens, 5_020);
}

/// Rows A7 and A9
#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_report_counts_and_sets_no_anchor() {
    let host = host().await;
    host.append("s", one_turn("c1", 300)).await;
    host.append("s", vec![says(pb::Role::User, "And?")]).await;
    let (context_version, _) = prompt(&host).await;
    let wrote = host.append("s", vec![says(pb::Role::Assistant, "Well.")]).await;
    let of_message = |version| pb::RecordUsageRequest {
        message_id: wrote.message_ids[0].clone(),
        context_version: version,
        ..report(used(5_000, 100))
    };
    let unknown = host.stats("s").await.used;
    let not_described = [
        ("no version", of_message(0)),
        ("another version", of_message(context_version - 1)),
        ("the prompt had the answer", of_message(context_version + 1)),
        ("no message", pb::RecordUsageRequest { context_version, ..report(used(5_000, 100)) }),
        ("nothing reported", pb::RecordUsageRequest { usage: used(0, 0), ..of_message(context_version) }),
        (
            "a summary",
            pb::RecordUsageRequest { purpose: pb::UsagePurpose::Compaction.into(), ..of_message(context_version) },
        ),
        ("another model", pb::RecordUsageRequest { model: "elsewhere/large".to_owned(), ..of_message(0) }),
    ];
    let reports = i64::try_from(not_described.len()).unwrap();
    for (why, request) in not_described {
        let recorded = record(&host, request).await;
        assert_eq!((recorded.estimate, recorded.context_tokens), (None, unknown.clone()), "{why}");
    }
    let prune = pb::PruneToolOutputsRequest {
        session_id: "s".to_owned(),
        minimum_tokens: Some(0),
        protect_tokens: Some(0),
        protect_turns: Some(0),
        ..Default::default()
    };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    let pruned = host.stats("s").await.used;
    let recorded = record(&host, of_message(context_version)).await;
    assert_eq!((recorded.estimate, recorded.context_tokens), (None, pruned), "it was pruned meanwhile");
    let (context_version, _) = prompt(&host).await;
    let mut words = vec!["y".repeat(4_000), "z".repeat(8_000)].into_iter();
    let mut change = async || {
        let session_id = "s".to_owned();
        let system_prompt = words.next().unwrap();
        let session = Some(pb::Session { session_id, system_prompt, ..Default::default() });
        let update_mask = Some(prost_types::FieldMask { paths: vec!["system_prompt".to_owned()] });
        let request = pb::UpdateSessionRequest { session, update_mask, ..Default::default() };
        host.sessions().update_session(request).await.unwrap();
    };
    change().await;
    let longer = host.stats("s").await.used;
    let recorded = record(&host, pb::RecordUsageRequest { context_version, ..report(used(5_000, 100)) }).await;
    assert_eq!((recorded.estimate, recorded.context_tokens), (None, longer), "the system prompt is another one");
    let (context_version, _) = prompt(&host).await;
    change().await;
    let answer = vec![says(pb::Role::Assistant, "Indeed.")];
    let wrote = host.try_append(pb::AppendMessagesRequest { context_version, ..append("s", answer) }).await;
    let message_id = wrote.expect("the transcript is what it was").message_ids[0].clone();
    let longest = host.stats("s").await.used;
    let of_answer = pb::RecordUsageRequest { message_id, context_version, ..report(used(5_000, 100)) };
    let recorded = record(&host, of_answer).await;
    assert_eq!((recorded.estimate, recorded.context_tokens), (None, longest), "it was another one before the answer");
    let stats = host.stats("s").await;
    assert_eq!(stats.last_estimate, None);
    assert_eq!(stats.usage.iter().map(|it| it.usage.unwrap().calls).sum::<i64>(), reports + 3, "all of them count");
    let of = |purpose| stats.usage.iter().filter(|it| it.purpose() == purpose).count();
    assert_eq!((of(pb::UsagePurpose::Compaction), of(pb::UsagePurpose::Turn)), (1, 2));
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_with_media_does_not_calibrate() {
    for (takes, learns) in [(json!(["image/*"]), false), (json!([]), true)] {
        let script = json!({"input_media_types": takes, "steps": [{"say": [{"text": "Fine."}]}]});
        let host = Host::with(Options::default().script("it", script.to_string())).await;
        host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
        let media = pb::Media {
            media_type: "image/gif".to_owned(),
            source: Some(pb::media::Source::Data(b"GIF89a".to_vec())),
            ..Default::default()
        };
        let shown = pb::Part { content: Some(pb::part::Content::Media(media)), ..Default::default() };
        host.append("s", vec![message(pb::Role::User, vec![text("What is this?"), shown])]).await;
        let (context_version, predicted) = prompt(&host).await;
        let recorded = record(&host, pb::RecordUsageRequest { context_version, ..report(used(5_000, 100)) }).await;
        assert_eq!(recorded.estimate.unwrap().estimated_tokens, predicted, "{takes}");
        assert_eq!(recorded.context_tokens.unwrap().tokens, 5_000, "{takes}");
        assert_eq!(recorded.calibration_ratio != 1.0, learns, "{takes}: what is sent in its place is text");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_another_model_anchors_that_model() {
    let upstream = Upstream::start().await;
    let options = answering(&[json!([{"text": "Fine."}])])
        .provider("main", std::sync::Arc::new(upstream.provider("main", "openai")));
    let host = Host::with(options).await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    host.append("s", vec![says(pb::Role::User, "What is there?")]).await;
    let (context_version, own) = prompt(&host).await;
    let model = "main/gpt-4o".to_owned();
    let recorded =
        record(&host, pb::RecordUsageRequest { model: model.clone(), context_version, ..report(used(50, 5)) }).await;
    assert_eq!(recorded.context_tokens.unwrap().tokens, own, "the session's model is another one");
    let of_model = pb::GetContextStatsRequest { session_id: "s".to_owned(), model, ..Default::default() };
    let stats = host.contexts().get_context_stats(of_model).await.unwrap().into_inner().stats.unwrap();
    assert_eq!((stats.used.unwrap().tokens, stats.calibration_ratio), (50, recorded.calibration_ratio));
    assert_ne!(recorded.calibration_ratio, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn record_usage_is_refused_during_a_turn() {
    let host = Host::scripted(&[json!([call("look")]), json!([{"text": "Fine."}])]).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, "Look.") };
    let mut stream = host.execute(request).await;
    crate::harness::events::until_action(&mut stream).await;
    let refused = refusal(&try_record(&host, report(used(5, 1))).await.unwrap_err());
    assert_eq!(refused.reason, "TURN_IN_PROGRESS");
    let user = host.messages("s").await[0].message_id.clone();
    host.cancel("s", "").await;
    host.at_rest().await;
    let of_user = pb::RecordUsageRequest { message_id: user, ..report(used(5, 1)) };
    let refused = refusal(&try_record(&host, of_user).await.unwrap_err());
    assert_eq!(refused.fields, [("message_id".to_owned(), "UNKNOWN".to_owned())], "a user called no model");
}

/// Number of statements that read the transcript, only counted in the test below.
static TRANSCRIPTS_READ: AtomicUsize = AtomicUsize::new(0);

fn counting_transcripts(sql: &'static str) -> &'static str {
    if sql.contains("-- store::message::messages (what the model sees") {
        TRANSCRIPTS_READ.fetch_add(1, Ordering::SeqCst);
    }
    sql
}

/// Rows A3 and A12
#[tokio::test(flavor = "multi_thread")]
async fn record_usage_does_not_read_the_transcript() {
    let counted = Options { replace: Some(counting_transcripts), ..answering(&[json!([{"text": "Fine."}])]) };
    let host = Host::with(counted).await;
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: MODEL.to_owned(),
        policy_overrides: Some(pb::Policy { prune: Some(clears(pb::PruneMode::OnOverflow, 0)), ..Default::default() }),
        ..Default::default()
    })
    .await;
    for n in 0..35 {
        host.append("s", one_turn(&format!("c{n}"), 2_000)).await;
    }
    host.append("s", vec![says(pb::Role::User, "Well?")]).await;
    let (context_version, predicted) = prompt(&host).await;
    let wrote = host.append("s", vec![says(pb::Role::Assistant, "Well.")]).await;
    let unreadable = "update parts set rest = '\\xff'
                       where message_id in (select message_id from messages where session_id = 's' order by seq limit 4)";
    host.database.client().await.execute(unreadable, &[]).await.unwrap();
    let all = pb::RenderContextRequest { session_id: "s".to_owned(), ..Default::default() };
    host.contexts().render_context(all).await.expect_err("whoever reads the transcript fails");
    let before = TRANSCRIPTS_READ.load(Ordering::SeqCst);
    assert!(before > 0, "reads are counted");
    let message_id = wrote.message_ids[0].clone();
    let request = pb::RecordUsageRequest { message_id, context_version, ..report(used(80_000, 3)) };
    let recorded = record(&host, request).await;
    let estimate = recorded.estimate.unwrap();
    assert_eq!((estimate.estimated_tokens, estimate.actual_tokens), (predicted, 80_000));
    assert_eq!(recorded.context_tokens.as_ref().unwrap().tokens, 80_003);
    assert_eq!(host.stats("s").await.used, recorded.context_tokens);
    assert_eq!(recorded.calibration_ratio, 1.0, "a prompt of this length teaches nothing");
    assert_eq!(TRANSCRIPTS_READ.load(Ordering::SeqCst), before, "it is not read to learn from either");
}

/// Makes reading a text, a call, a plain result or the attachment of reasoning fail. Media remain readable.
async fn make_unreadable(host: &Host, session: &str) {
    let unreadable = "update parts set rest = case kind when 'reasoning' then rest || '\\xff'::bytea when 'tool_result' then null
                                                        else '\\xff'::bytea end,
                                       outcome = case when kind = 'tool_result' then 99 end
                       where session_id = $1 and kind not in ('media', 'media_url') and (kind <> 'tool_result' or rest is null)";
    host.database.client().await.execute(unreadable, &[&session]).await.unwrap();
    let all = pb::RenderContextRequest { session_id: session.to_owned(), ..Default::default() };
    host.contexts().render_context(all).await.expect_err("reading the transcript fails");
}

/// The version and the size of a session's prompt, computed from the whole transcript.
async fn whole_size(host: &Host, session: &str) -> (i64, pb::TokenCount) {
    let request = pb::RenderContextRequest { session_id: session.to_owned(), ..Default::default() };
    let prompt = host.contexts().render_context(request).await.unwrap().into_inner().prompt.unwrap();
    (prompt.context_version, prompt.tokens.unwrap())
}

/// A response of the model `main/m` with long reasoning, with or without an attachment.
fn thought(mut answer: pb::InputMessage, attached: bool) -> pb::InputMessage {
    let reasoning = pb::Reasoning { text: "Hm, let me see. ".repeat(100), redacted: false };
    let details = r#"{"openai":{"reasoning_details":[{"type":"reasoning.text","text":"Hm."}]}}"#;
    let part = pb::Part {
        provider_metadata_json: if attached { details.to_owned() } else { String::new() },
        content: Some(pb::part::Content::Reasoning(reasoning)),
        ..Default::default()
    };
    answer.parts.insert(0, part);
    let usage = Some(pb::Usage { reasoning_tokens: 300, ..used(7, 310).unwrap() });
    let response =
        pb::ModelResponse { provider: "main".to_owned(), model: "main/m".to_owned(), usage, ..Default::default() };
    answer.response = Some(pb::ModelResponse { finish_reason: pb::FinishReason::Stop.into(), ..response });
    answer
}

/// An image of the user, without text.
fn picture() -> pb::Part {
    let media = pb::Media {
        media_type: "image/gif".to_owned(),
        source: Some(pb::media::Source::Data(b"GIF89a".to_vec())),
        ..Default::default()
    };
    pb::Part { content: Some(pb::part::Content::Media(media)), ..Default::default() }
}

/// A result that contains an image.
fn shown(call: &str) -> pb::InputMessage {
    let mut result = crate::harness::requests::result(call, "a picture");
    result.parts.push(picture());
    message(
        pb::Role::Tool,
        vec![pb::Part { content: Some(pb::part::Content::ToolResult(result)), ..Default::default() }],
    )
}

/// Fails unless sizes equal those of the whole transcript while none of its text can be read: before any measured call,
/// in the report of a call, and with new messages after it.
async fn assert_sizes_need_no_text(host: &Host, model: &str, what: &str) {
    let read = |attached| thought(says(pb::Role::Assistant, "So."), attached);
    let user = |words: &str| message(pb::Role::User, vec![text(words), picture()]);
    let spoken = vec![
        user("One?"),
        read(true),
        read(false),
        user("Two?"),
        thought(calls(&["c1"]), true),
        shown("c1"),
        thought(calls(&["c2"]), false),
        results(&["c2"]),
    ];
    for session in ["s", "whole"] {
        host.create(pb::Session { session_id: session.to_owned(), model: model.to_owned(), ..Default::default() })
            .await;
        host.append(session, spoken.clone()).await;
    }
    make_unreadable(host, "s").await;
    let (context_version, size) = whole_size(host, "whole").await;
    assert_eq!(host.stats("s").await.used.unwrap(), size, "{what}: nothing was measured");
    let mut recorded = Vec::new();
    for session in ["s", "whole"] {
        let wrote = host.append(session, vec![read(false)]).await;
        let usage = Some(pb::Usage { reasoning_tokens: 300, ..used(5_000, 310).unwrap() });
        let message_id = wrote.message_ids[0].clone();
        let request = pb::RecordUsageRequest {
            session_id: session.to_owned(),
            message_id: message_id.clone(),
            context_version,
            ..report(usage)
        };
        recorded.push(record(host, request).await);
        if session == "s" {
            make_unreadable(host, "s").await;
        }
    }
    assert_eq!(
        (recorded[0].estimate, &recorded[0].context_tokens),
        (recorded[1].estimate, &recorded[1].context_tokens),
        "{what}"
    );
    assert_eq!(recorded[0].estimate.unwrap().estimated_tokens, size.tokens, "{what}: the prediction");
    let (_, size) = whole_size(host, "whole").await;
    assert_eq!(
        (recorded[0].context_tokens.as_ref(), host.stats("s").await.used.as_ref()),
        (Some(&size), Some(&size)),
        "{what}"
    );
    for session in ["s", "whole"] {
        host.append(session, vec![user("Three?"), read(true), user("Four?")]).await;
    }
    make_unreadable(host, "s").await;
    let (_, size) = whole_size(host, "whole").await;
    assert_eq!(host.stats("s").await.used.unwrap(), size, "{what}: with what is new");
    let unanchored = pb::RecordUsageRequest { purpose: pb::UsagePurpose::Compaction.into(), ..report(used(9, 1)) };
    assert_eq!(record(host, unanchored).await.context_tokens.unwrap(), size, "{what}: a report that measures nothing");
}

/// Rows A3 and A7
#[tokio::test(flavor = "multi_thread")]
async fn sizes_with_reasoning_and_media_are_computed_without_reading_text() {
    for dialect in ["openai", "deepseek", "openrouter"] {
        let upstream = Upstream::start().await;
        let provider = crate::harness::upstream::declaring("main", upstream.settings(), dialect, &[("m", 100_000)]);
        let host = Host::with(Options::default().provider("main", std::sync::Arc::new(provider))).await;
        assert_sizes_need_no_text(&host, "main/m", dialect).await;
    }
    for takes in [json!([]), json!(["image/*"])] {
        let script = json!({"input_media_types": takes, "steps": [{"say": [{"text": "Fine."}]}]});
        let host = Host::with(Options::default().script("it", script.to_string())).await;
        assert_sizes_need_no_text(&host, MODEL, &format!("a script that takes {takes}")).await;
    }
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn record_usage_does_not_wait_for_the_calibration_write() {
    let host = host().await;
    host.append("s", vec![says(pb::Role::User, "What is there?")]).await;
    let blocker = host.database.client().await;
    blocker.batch_execute("begin; lock table tenant_calibration in exclusive mode").await.unwrap();
    let mut ratios = Vec::new();
    for input in [22, 33, 44] {
        let (context_version, _) = prompt(&host).await;
        let request = pb::RecordUsageRequest { context_version, ..report(used(input, 1)) };
        let recorded = tokio::time::timeout(std::time::Duration::from_secs(1), record(&host, request)).await;
        ratios.push(recorded.expect("it waits for a row that all calls of a model write").calibration_ratio);
    }
    assert!(ratios[0] > 1.0 && ratios.is_sorted(), "{ratios:?}");
    assert_eq!(host.stats("s").await.calibration_ratio, ratios[2]);
    let mut models = ModelServiceClient::new(host.replica.channel().await);
    let model =
        models.get_model(pb::GetModelRequest { model: MODEL.to_owned() }).await.unwrap().into_inner().model.unwrap();
    assert_eq!(model.calibration_ratio, ratios[2]);
    blocker.batch_execute("rollback").await.unwrap();
}

/// Reports that cannot be the size of the prompt, and reports that are sums over the rounds of the provider's own
/// tools.
#[tokio::test(flavor = "multi_thread")]
async fn u02_reports_that_do_not_tell_the_size_of_the_prompt_count_and_anchor_nothing() {
    let host = host().await;
    host.append("s", vec![says(pb::Role::User, "What is there?")]).await;
    let before = host.stats("s").await.used;
    for (reported, provider_tool_calls) in [(50_000, 0), (5_000, 2)] {
        let (context_version, _) = prompt(&host).await;
        let usage =
            pb::Usage { input_tokens: reported, output_tokens: 100, provider_tool_calls, ..pb::Usage::default() };
        let request = pb::RecordUsageRequest { context_version, ..report(Some(usage)) };
        let recorded = record(&host, request).await;
        assert_eq!(recorded.estimate, None, "{reported}");
        assert_eq!(recorded.context_tokens, before, "{reported}");
        assert_eq!(recorded.calibration_ratio, 1.0, "{reported}");
    }
    let totals = host.stats("s").await.usage[0].usage.unwrap();
    assert_eq!((totals.calls, totals.input_tokens), (2, 55_000));
}

//! Messages sent while the agent works: acknowledged, listed, withdrawn, and applied between two steps as one message.

use std::collections::BTreeMap;

use contextd::{
    model::{Content, Message, Role, config::ContextPolicy},
    pb::{self, event::Payload},
};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::harness::{
    Host, Options,
    events::{all, completed, kinds, message_text, messages, next, turn_id, until, until_action, until_written},
    host::{MODEL, call, refusal, script, until as eventually},
    requests::{enqueue, input, result, tools, turn},
};

/// A model that calls `look` unless the input contains "tell", in which case it returns its prompt, or "wait", in which
/// case it blocks until `go` is released.
fn options() -> Options {
    let steps = json!({"steps": [
        {"when": {"user_contains": "tell"}, "say": [{"echo_prompt": true}]},
        {"when": {"user_contains": "wait"}, "say": [{"text": "Well, "}, {"wait_for": "go"}, {"text": "done."}]},
        {"when": {"call": 0}, "say": [call("look")]},
        {"when": {"otherwise": true}, "say": [{"text": "Done."}]}
    ]});
    Options::default().script("it", steps.to_string())
}

fn asks(session: &str, words: &str) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn(session, MODEL, words) }
}

/// The messages of the prompt that the model returned: the role, and the texts of the parts.
fn told(event: &pb::Message) -> Vec<(String, Vec<String>)> {
    let prompt: Value = serde_json::from_str(&message_text(event)).unwrap();
    let text = |part: &Value| part["text"].as_str().unwrap_or_default().to_owned();
    let parts = |message: &Value| message["parts"].as_array().unwrap().iter().map(text).collect();
    let messages = prompt["messages"].as_array().unwrap().iter();
    messages.map(|message| (message["role"].as_str().unwrap().to_owned(), parts(message))).collect()
}

fn applied(events: &[pb::Event]) -> Vec<&pb::MessagesApplied> {
    let applied = |event: &'_ pb::Event| matches!(&event.payload, Some(Payload::MessagesApplied(_)));
    events
        .iter()
        .filter(|event| applied(event))
        .filter_map(|event| match &event.payload {
            Some(Payload::MessagesApplied(applied)) => Some(applied),
            _ => None,
        })
        .collect()
}

fn id(response: &pb::EnqueueMessageResponse) -> String {
    response.queued_message.as_ref().unwrap().queued_message_id.clone()
}

/// Row D7
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_message_can_be_listed_withdrawn_and_cleared() {
    let host = Host::with(options()).await;
    let (begun, _) = until_action(&mut host.execute(asks("s", "Look.")).await).await;
    assert_eq!(host.clear("s").await, Vec::<String>::new());
    let mut ids = Vec::new();
    for (position, words) in (1..).zip(["one", "two", "three"]) {
        let answer = host.enqueue(enqueue("s", words)).await;
        let queued = answer.queued_message.clone().unwrap();
        assert_eq!((queued.position, queued.state()), (position, pb::QueuedMessageState::Pending));
        assert_eq!((answer.session_state(), &answer.turn_id), (pb::SessionState::AwaitingTools, &turn_id(&begun)));
        assert_eq!((queued.message.clone(), queued.delivery()), (Some(input_of(words)), pb::Delivery::Asap));
        ids.push(id(&answer));
    }
    assert_eq!(host.session("s").await.queued_count, 3);
    let gone = host.cancel_queued("s", &ids[1]).await;
    assert_eq!((gone.state(), gone.position), (pb::QueuedMessageState::Cancelled, 0));
    assert_eq!(host.cancel_queued("s", &ids[1]).await, gone, "again");
    let waiting = host.queued("s").await;
    let positions: Vec<_> = waiting.iter().map(|it| (it.queued_message_id.clone(), it.position)).collect();
    assert_eq!(positions, [(ids[0].clone(), 1), (ids[2].clone(), 2)]);
    assert_eq!(host.clear("s").await, [ids[0].clone(), ids[2].clone()]);
    assert_eq!(host.queued("s").await, []);
    let events = host.events("s", "", 0, 100).await;
    let gone = kinds(&events).into_iter().filter(|kind| *kind == "queued_message_cancelled").count();
    assert_eq!(gone, 3);
}

fn input_of(words: &str) -> pb::InputMessage {
    pb::InputMessage { role: pb::Role::User.into(), ..input(words) }
}

/// Rows D8, D10: messages wait while tools run, and are applied together with the results, as one message.
#[tokio::test(flavor = "multi_thread")]
async fn messages_sent_while_tools_run_are_one_message_in_the_next_call() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s", "Look.")).await;
    let (begun, [calls, _]) = until_action(&mut stream).await;
    let labels: BTreeMap<String, String> = [("from".to_owned(), "anna".to_owned())].into();
    let mut first = enqueue("s", "Be quick.");
    first.message.as_mut().unwrap().metadata.clone_from(&labels);
    let ids = [id(&host.enqueue(first).await), id(&host.enqueue(enqueue("s", "And tell me.")).await)];
    host.submit("s", vec![result(&calls[0], "a cat")]).await;
    let rest = all(&mut stream).await;
    let story: Vec<_> = kinds(&rest).into_iter().filter(|kind| *kind != "usage_recorded").collect();
    let expected = [
        "tool_call_completed",
        "message_committed",
        "step_started",
        "messages_applied",
        "message_committed",
        "message_committed",
        "turn_completed",
    ];
    assert_eq!(story, expected);
    let taken = applied(&rest)[0];
    assert!(taken.coalesced);
    let of: Vec<_> = taken.messages.iter().map(|it| (it.queued_message_id.clone(), it.metadata.clone())).collect();
    assert_eq!(of, [(ids[0].clone(), labels), (ids[1].clone(), BTreeMap::new())]);
    let message = host.messages("s").await.into_iter().find(|it| it.message_id == taken.message_id).unwrap();
    assert_eq!(
        (message.queued.clone(), message.step, message.turn_id.clone()),
        (taken.messages.clone(), 2, turn_id(&begun))
    );
    let answer = messages(&rest).into_iter().rfind(|it| it.role() == pb::Role::Assistant).unwrap();
    let texts = ["First: ", "Be quick.", "\n\n", "Also: ", "And tell me."].map(str::to_owned).to_vec();
    assert_eq!(told(answer).last().unwrap(), &("user".to_owned(), texts));
    let state = host.cancel_queued("s", &ids[0]).await;
    assert_eq!((state.state(), state.message_id), (pb::QueuedMessageState::Applied, taken.message_id.clone()));
}

/// Row I3: at the end of a turn, a message is in the turn or still pending.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_during_the_last_step_keeps_the_turn_going() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s", "Please wait.")).await;
    let mut events = until_written(&mut stream, "Well, ").await;
    let answer = host.enqueue(enqueue("s", "Now tell.")).await;
    assert_eq!(answer.session_state(), pb::SessionState::Running);
    host.release("go");
    events.extend(all(&mut stream).await);
    let result = completed(&events).result.clone().unwrap();
    assert_eq!((result.step_count, result.queued_message_ids), (2, vec![]));
    assert_eq!(applied(&events)[0].messages[0].queued_message_id, id(&answer));
    assert!(!applied(&events)[0].coalesced);
    assert!(events.iter().any(|it| matches!(&it.payload, Some(Payload::MessageQueued(it)) if it.position == 1)));
    let answers: Vec<String> = messages(&events).into_iter().map(message_text).collect();
    assert_eq!(answers[..2], ["Please wait.", "Well, done."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn take_policy_decides_how_many_queued_messages_are_applied() {
    let host = Host::with(options()).await;
    let check = async |session: &str, mode: pb::TakeMode| {
        let queue = pb::QueuePolicy { max_pending: None, take: mode.into() };
        let policy = pb::Policy { queue: Some(queue), ..pb::Policy::default() };
        let own = pb::Session { policy_overrides: Some(policy), ..pb::Session::default() };
        let mut stream = host.execute(pb::ExecuteTurnRequest { session: Some(own), ..asks(session, "Look.") }).await;
        let (_, [calls, _]) = until_action(&mut stream).await;
        for words in ["tell 1", "tell 2", "tell 3"] {
            host.enqueue(enqueue(session, words)).await;
        }
        host.submit(session, vec![result(&calls[0], "a cat")]).await;
        let events = all(&mut stream).await;
        let dropped = kinds(&events).into_iter().filter(|kind| *kind == "queued_message_dropped").count();
        let taken: Vec<usize> = applied(&events).into_iter().map(|it| it.messages.len()).collect();
        (taken, dropped)
    };
    assert_eq!(check("all", pb::TakeMode::All).await, (vec![3], 0));
    assert_eq!(check("one", pb::TakeMode::OneAtATime).await, (vec![1, 1, 1], 0));
    assert_eq!(check("latest", pb::TakeMode::Latest).await, (vec![1], 2));
}

/// Row I11
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_refused_with_its_limit_and_a_retry_delay() {
    let host = Host::with(options()).await;
    let queue = pb::QueuePolicy { max_pending: Some(2), ..pb::QueuePolicy::default() };
    let policy = pb::Policy { queue: Some(queue), ..pb::Policy::default() };
    let session = pb::Session { session_id: "s".to_owned(), policy_overrides: Some(policy), ..pb::Session::default() };
    host.sessions()
        .create_session(pb::CreateSessionRequest { session: Some(session), request_id: String::new() })
        .await
        .unwrap();
    host.enqueue(enqueue("s", "one")).await;
    let second = host.enqueue(enqueue("s", "two")).await;
    let status = host.queue().enqueue_message(enqueue("s", "three")).await.unwrap_err();
    assert_eq!(refusal(&status, "limit"), (Code::ResourceExhausted, "QUEUE_FULL".to_owned(), "2".to_owned()));
    assert!(status.get_details_retry_info().unwrap().retry_delay.is_some());
    assert!(status.get_details_quota_failure().is_some());
    host.cancel_queued("s", &id(&second)).await;
    host.enqueue(enqueue("s", "three")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_enqueue_queues_once_and_returns_the_current_state() {
    let host = Host::with(options()).await;
    let (_, [calls, _]) = until_action(&mut host.execute(asks("s", "Look.")).await).await;
    let request = enqueue("s", "tell");
    let first = host.enqueue(request.clone()).await;
    assert_eq!(host.enqueue(request.clone()).await, first);
    let mut other = request.clone();
    other.message = Some(input("something else"));
    let status = host.queue().enqueue_message(other).await.unwrap_err();
    assert_eq!(refusal(&status, "request_id").1, "IDEMPOTENCY_MISMATCH");
    host.submit("s", vec![result(&calls[0], "a cat")]).await;
    host.at_rest().await;
    let later = host.enqueue(request).await.queued_message.unwrap();
    assert_eq!((later.queued_message_id.clone(), later.state()), (id(&first), pb::QueuedMessageState::Applied));
    let clear = pb::ClearQueueRequest { session_id: "s".to_owned(), request_id: "clear".to_owned() };
    host.enqueue(enqueue("s", "held")).await;
    let gone = host.queue().clear_queue(clear.clone()).await.unwrap().into_inner();
    assert_eq!(gone.cancelled_message_ids.len(), 1);
    host.enqueue(enqueue("s", "held too")).await;
    assert_eq!(host.queue().clear_queue(clear).await.unwrap().into_inner(), gone);
    assert_eq!(host.queued("s").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_message_has_an_event_and_is_not_applied() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s", "Look.")).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let late = host.enqueue(pb::EnqueueMessageRequest { ttl, ..enqueue("s", "late") }).await;
    let times = late.queued_message.as_ref().unwrap();
    let enqueued = times.enqueue_time.unwrap();
    let expires = times.expire_time.unwrap();
    assert_eq!(expires.seconds - enqueued.seconds, 60);
    let sql = "update queue set expires_at = now() - interval '1 second' where expires_at is not null";
    host.database.client().await.execute(sql, &[]).await.unwrap();
    let events = until(&mut stream, |it| matches!(it, Payload::QueuedMessageExpired(_))).await;
    let Some(Payload::QueuedMessageExpired(gone)) = &events.last().unwrap().payload else { panic!("not expired") };
    assert_eq!(gone.queued_message_id, id(&late));
    host.submit("s", vec![result(&calls[0], "a cat")]).await;
    assert_eq!(applied(&all(&mut stream).await).len(), 0);
    assert_eq!(host.cancel_queued("s", &id(&late)).await.state(), pb::QueuedMessageState::Expired);
}

/// Row F30
#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_queued_message_is_dropped_with_a_reason() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s", "Look.")).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    let broken = id(&host.enqueue(enqueue("s", "broken")).await);
    host.enqueue(enqueue("s", "tell")).await;
    let sql = "update queue set body = '\\xff' where message_id = $1";
    host.database.client().await.execute(sql, &[&broken]).await.unwrap();
    host.submit("s", vec![result(&calls[0], "a cat")]).await;
    let events = all(&mut stream).await;
    let dropped = events.iter().find_map(|event| match &event.payload {
        Some(Payload::QueuedMessageDropped(dropped)) => Some((dropped.queued_message_id.clone(), dropped.reason())),
        _ => None,
    });
    assert_eq!(dropped, Some((broken, pb::DropReason::Unreadable)));
    assert_eq!(applied(&events)[0].messages.len(), 1);

    // A message that would have started a turn does not block others.
    let starts = |words| pb::EnqueueMessageRequest { on_idle: pb::IdleAction::StartTurn.into(), ..enqueue("t", words) };
    let mut stream = host.execute(asks("t", "Please wait.")).await;
    until_written(&mut stream, "Well, ").await;
    let later = |words| pb::EnqueueMessageRequest { delivery: pb::Delivery::WhenIdle.into(), ..starts(words) };
    let broken = id(&host.enqueue(later("broken")).await);
    let fine = id(&host.enqueue(later("tell")).await);
    host.database.client().await.execute(sql, &[&broken]).await.unwrap();
    host.release("go");
    all(&mut stream).await;
    eventually("the later one to be taken", || async { host.queued("t").await.is_empty() }).await;
    assert_eq!(host.cancel_queued("t", &fine).await.state(), pb::QueuedMessageState::Applied);
    let gone = host.cancel_queued("t", &broken).await;
    assert_eq!((gone.state(), gone.drop_reason()), (pb::QueuedMessageState::Dropped, pb::DropReason::Unreadable));
}

/// Row D9
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_survives_the_replica_that_accepted_it() {
    let host = Host::with(options()).await;
    let mut stream = host.execute(asks("s", "Please wait.")).await;
    until_written(&mut stream, "Well, ").await;
    let queued = id(&host.enqueue(enqueue("s", "Now tell.")).await);
    host.replica.stop_workers();
    let other = host.beside(options()).await;
    assert_eq!(other.queued("s").await[0].queued_message_id, queued);
    host.simulate_crash().await;
    other.release("go");
    let events = all(&mut other.watch("s", &turn_id(&all_so_far(&other).await), 0).await).await;
    assert!(kinds(&events).contains(&"turn_recovered"));
    assert_eq!(applied(&events)[0].messages[0].queued_message_id, queued);
    assert_eq!(host.queued("s").await, []);
}

async fn all_so_far(host: &Host) -> Vec<pb::Event> {
    host.events("s", "", 0, 100).await
}

/// Row S18
#[tokio::test(flavor = "multi_thread")]
async fn a_message_enqueued_during_a_compaction_waits_without_error() {
    let host = Host::with(options()).await;
    host.run(asks("s", "Please tell.")).await;
    let sql =
        "insert into compactions (tenant_id, session_id, compaction_id, status, lease_until, context_version, begun_at_seq, info)
               values ('default', 's', 'c', 1, now() + '1 hour', 0, 1, '')";
    host.database.client().await.execute(sql, &[]).await.unwrap();
    let answer = host.enqueue(enqueue("s", "tell more")).await;
    assert_eq!(answer.queued_message.unwrap().state(), pb::QueuedMessageState::Pending);
    let events = host.run(pb::ExecuteTurnRequest { input: None, ..asks("s", "") }).await;
    assert_eq!(applied(&events).len(), 1);
}

/// Both a turn without input and a turn that continues the transcript apply queued messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_input_starts_from_queued_messages() {
    let host = Host::with(options()).await;
    host.run(asks("s", "Please tell.")).await;
    let without = || pb::ExecuteTurnRequest { input: None, ..asks("s", "") };
    let status = host.try_execute(without()).await.unwrap_err();
    assert_eq!(refusal(&status, "").1, "NO_INPUT");
    let held = host.enqueue(enqueue("s", "tell one")).await;
    assert_eq!((held.session_state(), held.turn_id.as_str()), (pb::SessionState::Idle, ""));
    let events = host.run(without()).await;
    assert_eq!(kinds(&events)[..4], ["turn_started", "step_started", "messages_applied", "message_committed"]);
    host.enqueue(enqueue("s", "tell two")).await;
    let goes_on = pb::ExecuteTurnRequest { continue_transcript: true, ..without() };
    assert_eq!(applied(&host.run(goes_on.clone()).await).len(), 1);
    let again = pb::ExecuteTurnRequest { continue_transcript: true, ..without() };
    let status = host.try_execute(again).await.unwrap_err();
    assert_eq!(refusal(&status, "").1, "NO_INPUT");
    host.enqueue(enqueue("s", "tell three")).await;
    let events = host.run(asks("s", "And this: tell.")).await;
    let first = ["turn_started", "message_committed", "step_started", "messages_applied", "message_committed"];
    assert_eq!(kinds(&events)[..5], first, "input first, then what waited");
}

/// Delays the owner's first read of a turn.
fn slow_owned(sql: &'static str) -> &'static str {
    if !sql.starts_with("-- store::turn_read::owned") {
        return sql;
    }
    sql.replacen("\nselect ", "\nselect (select pg_sleep(0.5))::text as slept, ", 1).leak()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_message_was_withdrawn_first_ends_without_a_model_call() {
    let host = Host::with(Options { workers: false, session_memory: 0, replace: Some(slow_owned), ..options() }).await;
    host.run(asks("s", "Please tell.")).await;
    let queued = id(&host.enqueue(enqueue("s", "never mind")).await);
    let prompts = host.replica.scripted.prompts().len();
    let goes_on = pb::ExecuteTurnRequest { input: None, ..asks("s", "") };
    let withdrawn = async {
        let sql = "select count(*) from session_run where session_id = 's' and state = 1";
        let client = host.database.client().await;
        eventually("the turn", || async { client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0 }).await;
        host.cancel_queued("s", &queued).await;
    };
    let (events, ()) = tokio::join!(host.run(goes_on), withdrawn);
    assert_eq!(completed(&events).reason(), pb::CompletionReason::Stop);
    assert_eq!(host.replica.scripted.prompts().len(), prompts, "{queued} is gone, and nothing is asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_message_larger_than_the_window_is_dropped() {
    let steps = json!([{"say": [{"text": "Fine."}]}]);
    let small = json!({"context_window": 500, "max_output": 100, "steps": steps}).to_string();
    let scripts = options().script("small", small).script("unknown", json!({"steps": steps}).to_string());
    let host = Host::with(Options { context: ContextPolicy::default(), ..scripts }).await;
    let off = pb::CompactionPolicy { enabled: Some(false), ..Default::default() };
    let window = |tokens| pb::Policy {
        context_window: Some(tokens),
        output_reserve: Some(100),
        compaction: Some(off.clone()),
        ..Default::default()
    };
    let table = [
        ("small", None, false),
        ("unknown", None, true),
        ("unknown", Some(window(500)), false),
        ("small", Some(window(100_000)), true),
    ];
    for (at, (script, policy_overrides, fits)) in table.into_iter().enumerate() {
        let session = format!("s{at}");
        let model = format!("scripted/{script}");
        let of =
            pb::Session { session_id: session.clone(), model: model.clone(), policy_overrides, ..Default::default() };
        host.create(of).await;
        let large = id(&host.enqueue(enqueue(&session, &"word ".repeat(500))).await);
        host.enqueue(enqueue(&session, "Short.")).await;
        let events = host.run(turn(&session, &model, "And?")).await;
        assert_eq!(applied(&events)[0].messages.len(), if fits { 2 } else { 1 }, "{session}");
        let gone = host.cancel_queued(&session, &large).await;
        let dropped = (gone.state(), gone.drop_reason());
        assert_eq!(
            dropped == (pb::QueuedMessageState::Dropped, pb::DropReason::TooLarge),
            !fits,
            "{session}: {gone:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_readers_see_queued_messages() {
    let host = Host::scripted(&[json!([{"text": "One. "}, {"wait_for": "go"}])]).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    until_written(&mut stream, "One. ").await;
    let mut watch = host.watch("s", "", 0).await;
    until(&mut watch, |it| matches!(it, Payload::Sync(_))).await;
    host.enqueue(enqueue("s", "More")).await;
    let seen = next(&mut watch).await.unwrap().unwrap();
    assert!(matches!(&seen.payload, Some(Payload::MessageQueued(it)) if it.position == 1), "{seen:?}");
    let _ = script(&[]);
    host.release("go");
}

/// A model that calls `look`, then responds, and reports the tokens of its prompts.
fn reporting() -> Options {
    let used = |reason: &str| json!({"finish": {"reason": reason, "usage": {"input": 700, "output": 9}}});
    let steps = json!({"steps": [
        {"when": {"user_contains": "wait"}, "say": [{"text": "Well, "}, {"wait_for": "go"}, used("stop")]},
        {"when": {"user_contains": "look", "call": 0}, "say": [call("look"), used("tool_calls")]},
        {"say": [{"text": "Done."}, used("stop")]}
    ]});
    Options::default().script("it", steps.to_string())
}

/// A session that applies one message at each boundary.
async fn one_at_a_time(host: &Host, session: &str) {
    let queue = pb::QueuePolicy { max_pending: None, take: pb::TakeMode::OneAtATime.into() };
    let policy_overrides = Some(pb::Policy { queue: Some(queue), ..pb::Policy::default() });
    let session_id = session.to_owned();
    let model = MODEL.to_owned();
    host.create(pb::Session { session_id, model, policy_overrides, ..pb::Session::default() }).await;
}

/// The text of a message as the model receives it.
fn words_of(message: &Message) -> String {
    let texts = message.parts.iter().map(|part| match &part.part.content {
        Content::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

/// The text of the user messages that are new in each model call.
fn new_words(host: &Host) -> Vec<Vec<String>> {
    let prompts = host.replica.scripted.prompts();
    let mut known = 0;
    let mut new = Vec::new();
    for prompt in prompts {
        let users = prompt.transcript.messages().iter().filter(|message| message.role == Role::User);
        let words: Vec<String> = users.map(words_of).collect();
        new.push(words[known..].to_vec());
        known = words.len();
    }
    new
}

/// Rows D8 and D10
#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_applies_one_queued_message_per_model_call() {
    let host = Host::with(reporting()).await;
    one_at_a_time(&host, "s").await;
    let mut stream = host.execute(asks("s", "Please look.")).await;
    let (_, [calls, _]) = until_action(&mut stream).await;
    for words in ["one", "two", "three"] {
        host.enqueue(enqueue("s", words)).await;
    }
    host.submit("s", vec![result(&calls[0], "a cat")]).await;
    let events = all(&mut stream).await;
    assert_eq!(new_words(&host), [["Please look."], ["one"], ["two"], ["three"]], "after the results of tools");
    assert_eq!(completed(&events).result.as_ref().unwrap().step_count, 4);

    drop(host);
    let host = Host::with(reporting()).await;
    one_at_a_time(&host, "s").await;
    for words in ["one", "two", "three"] {
        host.enqueue(enqueue("s", words)).await;
    }
    host.run(pb::ExecuteTurnRequest { input: None, ..asks("s", "") }).await;
    assert_eq!(new_words(&host), [["one"], ["two"], ["three"]], "at the start of a turn");

    drop(host);
    let host = Host::with(reporting()).await;
    one_at_a_time(&host, "s").await;
    let mut stream = host.execute(asks("s", "Please wait.")).await;
    until_written(&mut stream, "Well, ").await;
    for words in ["one", "two", "three"] {
        host.enqueue(enqueue("s", words)).await;
    }
    host.release("go");
    all(&mut stream).await;
    assert_eq!(new_words(&host), [["Please wait."], ["one"], ["two"], ["three"]], "after an answer");

    drop(host);
    let host = Host::with(reporting()).await;
    one_at_a_time(&host, "s").await;
    for words in ["one", "two"] {
        host.enqueue(enqueue("s", words)).await;
    }
    host.run(asks("s", "Well?")).await;
    let expected = [vec!["Well?".to_owned(), "one".to_owned()], vec!["two".to_owned()]];
    assert_eq!(new_words(&host), expected, "beside the input of a turn");
}

/// Fails unless the prediction for each call equals the size in its `step_started` event. Returns the calls.
fn assert_predicted(events: &[pb::Event]) -> usize {
    let mut step = None;
    let mut calls = 0;
    for event in events {
        match &event.payload {
            Some(Payload::StepStarted(started)) => step = started.context_tokens.as_ref().map(|size| size.tokens),
            Some(Payload::UsageRecorded(call)) => {
                calls += 1;
                let predicted = call.estimate.as_ref().map(|estimate| estimate.estimated_tokens);
                assert_eq!(step, predicted, "call {calls}: {:?}", kinds(events));
            }
            _ => {}
        }
    }
    calls
}

/// Rows A4 and D10
#[tokio::test(flavor = "multi_thread")]
async fn step_started_size_includes_applied_queued_messages() {
    let long = "x".repeat(1_800);
    let host = Host::with(reporting()).await;
    let mut stream = host.execute(asks("s", "Please look.")).await;
    let (mut events, [calls, _]) = until_action(&mut stream).await;
    host.enqueue(enqueue("s", &long)).await;
    host.submit("s", vec![result(&calls[0], "a cat")]).await;
    events.extend(all(&mut stream).await);
    assert_eq!(assert_predicted(&events), 2, "after the results of tools");

    host.enqueue(enqueue("s", &long)).await;
    host.enqueue(enqueue("s", &long)).await;
    let events = host.run(pb::ExecuteTurnRequest { input: None, ..asks("s", "") }).await;
    assert_eq!(assert_predicted(&events), 1, "a turn for what waits");

    host.enqueue(enqueue("s", &long)).await;
    let events = host.run(asks("s", "Well?")).await;
    assert_eq!(assert_predicted(&events), 1, "a turn with an input beside what waits");

    let starts =
        |words: &str| pb::EnqueueMessageRequest { on_idle: pb::IdleAction::StartTurn.into(), ..enqueue("s", words) };
    let after = host.session("s").await.last_seq;
    let mut watch = host.watch("s", "", after).await;
    host.enqueue(starts(&long)).await;
    let events = until(&mut watch, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(assert_predicted(&events), 1, "a turn that a message started");

    let mut stream = host.execute(asks("s", "Please wait.")).await;
    until_written(&mut stream, "Well, ").await;
    let later = pb::EnqueueMessageRequest { delivery: pb::Delivery::WhenIdle.into(), ..starts(&long) };
    host.enqueue(later).await;
    let after = host.session("s").await.last_seq;
    let mut watch = host.watch("s", "", after).await;
    host.release("go");
    until(&mut watch, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    let events = until(&mut watch, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(assert_predicted(&events), 1, "a turn that follows another one");
}

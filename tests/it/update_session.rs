//! UpdateSession: which fields change, the event, and that the change applies from the next step on.

use std::sync::Arc;

use contextd::{
    model::{Prompt, Role},
    pb::{self, TurnState, event::Payload},
};
use futures_util::future::join_all;
use prost_types::{Duration, FieldMask};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::{
    Host, Options,
    events::{TEST_TIMEOUT, all, completed, kinds, outline, requested, turn_id, until, until_written},
    host::{call, refusal},
    requests::{result, tools, turn},
};

/// Two models with different responses that call `look`. If the input says "slowly", they block before the call.
fn options() -> Options {
    let model = |name: &str| {
        let steps = json!([
            {"when": {"user_contains": "slowly", "call": 0}, "say": [{"text": "Well,"}, {"wait_for": "go"}, call("nothing")]},
            {"when": {"user_contains": "tools", "call": 0}, "say": [call("look")]},
            {"when": {"user_contains": "tools", "call": 1}, "say": [call("look")]},
            {"say": [{"text": format!("I am {name}.")}]},
        ]);
        json!({ "steps": steps }).to_string()
    };
    Options::default().script("first", model("the first")).script("second", model("the second"))
}

async fn host() -> Host {
    Host::with(options()).await
}

/// A session with a value in every field.
fn configured(session_id: &str) -> pb::Session {
    let block =
        pb::PinnedBlock { name: "notes".to_owned(), text: "Likes tea.".to_owned(), ..pb::PinnedBlock::default() };
    let policy = pb::ToolPolicy {
        default_output_limits: Some(pb::ToolOutputLimits { max_output_chars: 100, max_lines: 5, ..Default::default() }),
        ..pb::ToolPolicy::default()
    };
    pb::Session {
        session_id: session_id.to_owned(),
        model: "scripted/first".to_owned(),
        system_prompt: "Be brief.".to_owned(),
        pinned_blocks: vec![block],
        tools: tools(&["look"]),
        limits: Some(pb::TurnLimits { max_steps: 9, max_output_tokens: 77, ..Default::default() }),
        policy: "default".to_owned(),
        policy_overrides: Some(pb::Policy { tools: Some(policy), ..Default::default() }),
        metadata: [("chat".to_owned(), "17".to_owned())].into(),
        ..pb::Session::default()
    }
}

/// Tools as the API returns them.
fn listed(names: &[&str]) -> Option<pb::ToolSet> {
    let mut tools = tools(names);
    tools.iter_mut().flat_map(|set| &mut set.host_tools).for_each(|tool| tool.set_category(pb::ContextCategory::Tools));
    tools
}

async fn create(host: &Host, session: pb::Session) -> pb::Session {
    let request = pb::CreateSessionRequest { session: Some(session), request_id: String::new() };
    host.sessions().create_session(request).await.unwrap().into_inner().session.unwrap()
}

fn change(session: pb::Session, paths: &[&str]) -> pb::UpdateSessionRequest {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    pb::UpdateSessionRequest { session: Some(session), update_mask: Some(FieldMask { paths }), ..Default::default() }
}

fn in_session(session_id: &str) -> pb::Session {
    pb::Session { session_id: session_id.to_owned(), ..pb::Session::default() }
}

async fn try_update(host: &Host, request: pb::UpdateSessionRequest) -> Result<pb::Session, Status> {
    Ok(host.sessions().update_session(request).await?.into_inner().session.unwrap())
}

async fn update(host: &Host, request: pb::UpdateSessionRequest) -> pb::Session {
    try_update(host, request).await.unwrap()
}

/// An update of the model and the system prompt.
fn switch(session_id: &str) -> pb::UpdateSessionRequest {
    let session = pb::Session {
        model: "scripted/second".to_owned(),
        system_prompt: "Be long.".to_owned(),
        ..in_session(session_id)
    };
    change(session, &["model", "system_prompt"])
}

/// Only the configuration of a session, which is what an update changes.
fn configuration(session: pb::Session) -> pb::Session {
    pb::Session {
        etag: String::new(),
        state: 0,
        current_turn_id: String::new(),
        last_seq: 0,
        create_time: None,
        update_time: None,
        ..session
    }
}

fn events_of<T>(events: &[pb::Event], of: impl Fn(&Payload) -> Option<T>) -> Vec<T> {
    events.iter().filter_map(|event| event.payload.as_ref().and_then(&of)).collect()
}

fn steps(events: &[pb::Event]) -> Vec<(String, String)> {
    events_of(events, |payload| match payload {
        Payload::StepStarted(step) => Some((step.etag.clone(), step.model.clone())),
        _ => None,
    })
}

fn changes(events: &[pb::Event]) -> Vec<(String, Vec<String>)> {
    events_of(events, |payload| match payload {
        Payload::SessionUpdated(updated) => Some((updated.etag.clone(), updated.changed_paths.clone())),
        _ => None,
    })
}

/// The model, system prompt and tools of each call.
fn given(prompts: &[Arc<Prompt>]) -> Vec<(&str, &str, Vec<&str>)> {
    prompts
        .iter()
        .map(|prompt| {
            let names = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
            let system: &str = prompt.instructions().leak();
            (prompt.model.as_str(), system, names)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn masked_fields_change_or_reset_and_others_stay() {
    let host = host().await;
    let other = pb::Session { pinned_blocks: Vec::new(), system_prompt: "Be long.".to_owned(), ..in_session("s") };
    let steps = |max_steps| Some(pb::TurnLimits { max_steps, ..Default::default() });
    let lines = |max_lines| {
        let limits = pb::ToolOutputLimits { max_lines, ..Default::default() };
        let tools = pb::ToolPolicy { default_output_limits: Some(limits), ..Default::default() };
        Some(pb::Policy { tools: Some(tools), ..Default::default() })
    };
    let some = |change: fn(&mut pb::Session)| {
        let mut session = in_session("s");
        change(&mut session);
        session
    };
    type Expect = fn(&mut pb::Session);
    let table: Vec<(&[&str], pb::Session, Expect)> = vec![
        (&["system_prompt"], other.clone(), |it| it.system_prompt = "Be long.".to_owned()),
        (&["system_prompt"], in_session("s"), |it| it.system_prompt.clear()),
        (&["model", "policy"], in_session("s"), |it| it.model = "scripted/demo".to_owned()),
        (&["pinned_blocks", "system_prompt"], other, |it| {
            it.pinned_blocks.clear();
            it.system_prompt = "Be long.".to_owned();
        }),
        (&["tools"], some(|it| it.tools = listed(&["feel", "smell"])), |it| it.tools = listed(&["feel", "smell"])),
        (&["tools.host_tools"], in_session("s"), |it| it.tools = Some(pb::ToolSet::default())),
        (&["limits.max_steps"], pb::Session { limits: steps(3), ..in_session("s") }, |it| {
            it.limits.as_mut().unwrap().max_steps = 3
        }),
        (&["limits.max_steps"], in_session("s"), |it| it.limits.as_mut().unwrap().max_steps = 0),
        (&["limits"], pb::Session { limits: steps(3), ..in_session("s") }, |it| {
            it.limits = Some(pb::TurnLimits { max_steps: 3, ..Default::default() })
        }),
        (&["limits"], in_session("s"), |it| it.limits = None),
        (
            &["policy_overrides.tools.default_output_limits.max_lines"],
            pb::Session { policy_overrides: lines(8), ..in_session("s") },
            |it| {
                let tools = it.policy_overrides.as_mut().unwrap().tools.as_mut().unwrap();
                tools.default_output_limits.as_mut().unwrap().max_lines = 8;
            },
        ),
        (&["policy_overrides"], in_session("s"), |it| it.policy_overrides = None),
        (&["metadata"], some(|it| _ = it.metadata.insert("a".to_owned(), "b".to_owned())), |it| {
            it.metadata = [("a".to_owned(), "b".to_owned())].into()
        }),
        (&["generation", "generation.temperature"], in_session("s"), |_| ()),
    ];
    for (i, (paths, values, expect)) in table.into_iter().enumerate() {
        let id = format!("s{i}");
        let before = create(&host, configured(&id)).await;
        let session = pb::Session { session_id: id.clone(), ..values };
        let after = update(&host, change(session, paths)).await;
        let mut expected = configuration(before);
        expect(&mut expected);
        assert_eq!(configuration(after.clone()), expected, "{paths:?}");
        assert_eq!(host.session(&id).await, after);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_mask_set_fields_change() {
    let host = host().await;
    let before = create(&host, configured("s")).await;
    let values = pb::Session {
        system_prompt: "Be long.".to_owned(),
        limits: Some(pb::TurnLimits { max_steps: 3, ..Default::default() }),
        tools: Some(pb::ToolSet::default()),
        ..in_session("s")
    };
    let mut expected = configuration(before);
    expected.system_prompt = "Be long.".to_owned();
    expected.limits.as_mut().unwrap().max_steps = 3;
    expected.tools = Some(pb::ToolSet::default());
    let unmasked = pb::UpdateSessionRequest { session: Some(values), ..Default::default() };
    let after = update(&host, unmasked.clone()).await;
    assert_eq!(configuration(after.clone()), expected);
    let told = host.events("s", "", 0, 100).await;
    assert_eq!(
        changes(&told),
        [(after.etag.clone(), ["limits.max_steps", "system_prompt", "tools"].map(str::to_owned).to_vec())]
    );
    let empty = pb::UpdateSessionRequest { update_mask: Some(FieldMask::default()), ..unmasked };
    assert_eq!(update(&host, empty).await, after, "a mask without paths is none");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_changes_nothing_makes_no_revision() {
    let host = host().await;
    let before = create(&host, configured("s")).await;
    let client = host.database.client().await;
    let contents = host.database.contents(&client).await;
    let same = change(configured("s"), &["model", "tools", "limits.max_steps", "policy_overrides"]);
    assert_eq!(update(&host, pb::UpdateSessionRequest { update_mask: None, ..same.clone() }).await, before);
    assert_eq!(update(&host, same.clone()).await, before);
    assert_eq!(host.database.contents(&client).await, contents);

    let known = pb::UpdateSessionRequest { request_id: "r".to_owned(), ..same };
    assert_eq!(update(&host, known.clone()).await, before);
    let changed = update(&host, switch("s")).await;
    assert_ne!(changed.etag, before.etag);
    assert_eq!(update(&host, known).await.etag, before.etag, "it is remembered all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etag_that_is_not_the_sessions_is_refused_with_the_one_it_has() {
    let host = host().await;
    let before = create(&host, configured("s")).await;
    let with = |etag: &str| {
        let mut request = switch("s");
        request.session.as_mut().unwrap().etag = etag.to_owned();
        request
    };
    let after = update(&host, with(&before.etag)).await;
    assert_ne!(after.etag, before.etag);
    for etag in [before.etag.as_str(), "x", "02"] {
        let refused = try_update(&host, with(etag)).await.unwrap_err();
        assert_eq!(refusal(&refused, "etag"), (Code::Aborted, "ETAG_MISMATCH".to_owned(), after.etag.clone()));
        let failed = refused.get_details_precondition_failure().unwrap();
        assert_eq!(
            (failed.violations[0].r#type.as_str(), failed.violations[0].subject.as_str()),
            ("ETAG_MISMATCH", "s")
        );
    }
    assert_eq!(host.session("s").await, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_update_returns_what_the_first_one_did() {
    let host = host().await;
    let etag = create(&host, configured("s")).await.etag;
    let mut first = pb::UpdateSessionRequest { request_id: "r".to_owned(), ..switch("s") };
    first.session.as_mut().unwrap().etag = etag;
    let done = update(&host, first.clone()).await;
    assert_eq!(update(&host, first.clone()).await, done);
    let later = pb::Session { system_prompt: "Be kind.".to_owned(), ..in_session("s") };
    let later = update(&host, change(later, &["system_prompt"])).await;
    let again = update(&host, first.clone()).await;
    assert_eq!((again.etag, again.system_prompt), (done.etag, done.system_prompt), "as it was then");
    assert_eq!(host.session("s").await, later);

    first.session.as_mut().unwrap().system_prompt = "Be quick.".to_owned();
    let refused = try_update(&host, first).await.unwrap_err();
    assert_eq!(refusal(&refused, "request_id"), (Code::InvalidArgument, "IDEMPOTENCY_MISMATCH".into(), "r".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_updates_at_once_on_two_replicas_make_one_revision() {
    let host = host().await;
    let other = host.beside(options()).await;
    for round in 0..8 {
        let id = format!("s{round}");
        let before = create(&host, configured(&id)).await;
        let request = pb::UpdateSessionRequest { request_id: "r".to_owned(), ..switch(&id) };
        let at_once = (0..8).map(|i| update(if i % 2 == 0 { &host } else { &other }, request.clone()));
        let answers = join_all(at_once).await;
        assert!(answers.iter().all(|answer| answer.etag == answers[0].etag && answer.etag != before.etag));
        assert_eq!(changes(&host.events(&id, "", 0, 100).await).len(), 1);
    }
}

/// Rows D25 and D30
#[tokio::test(flavor = "multi_thread")]
async fn a_model_switch_keeps_the_history_and_is_reported() {
    let host = host().await;
    let generation = Some(pb::Generation { seed: Some(7), ..pb::Generation::default() });
    create(&host, pb::Session { generation: generation.clone(), ..configured("s") }).await;
    let before = host.run(turn("s", "", "Hello")).await;
    assert_eq!(completed(&host.run(turn("s", "", "Who are you?")).await).reason(), pb::CompletionReason::Stop);
    let messages = host.messages("s").await;
    let after = update(&host, switch("s")).await;
    assert_eq!((after.model.as_str(), after.system_prompt.as_str()), ("scripted/second", "Be long."));
    assert_eq!(host.messages("s").await, messages);

    let told = host.events("s", "", messages.last().unwrap().seq + 2, 100).await;
    assert_eq!(kinds(&told), ["session_updated", "model_switched"]);
    assert!(told.iter().all(|event| event.turn_id.is_empty() && (event.step, event.attempt) == (0, 0)));
    assert_eq!(after.last_seq, told[1].seq);
    let paths = vec!["model".to_owned(), "system_prompt".to_owned()];
    assert_eq!(changes(&told), [(after.etag.clone(), paths)]);
    let switched = pb::ModelSwitched {
        from_model: "scripted/first".to_owned(),
        to_model: "scripted/second".to_owned(),
        etag: after.etag.clone(),
        generation,
        messages_retained: 4,
    };
    assert_eq!(told[1].payload, Some(Payload::ModelSwitched(switched)));

    let next = host.run(turn("s", "", "And now?")).await;
    assert_eq!(steps(&next), [(after.etag, "scripted/second".to_owned())]);
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!((prompt.model.as_str(), prompt.instructions().starts_with("Be long.")), ("second", true));
    let roles: Vec<Role> = prompt.transcript.messages().iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant, Role::User]);
    assert_eq!(outline(&host.messages("s").await).last().unwrap(), "ASSISTANT: \"I am the second.\"");
    let first = host.turn("s", &turn_id(&before)).await;
    assert_eq!(first.state(), TurnState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_tools_goes_on_under_the_new_configuration() {
    let host = host().await;
    let other = host.beside(options()).await;
    let first = create(&host, configured("s")).await;
    let mut stream = host.execute(turn("s", "", "Use tools")).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let mut request = switch("s");
    request.session.as_mut().unwrap().tools = tools(&["look", "feel"]);
    request.update_mask.as_mut().unwrap().paths.push("tools".to_owned());
    let second = update(&other, request).await;
    host.submit("s", vec![result(&requested(&head)[0], "fine")]).await;
    let mut rest = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let bare = pb::Session { tools: Some(pb::ToolSet::default()), ..in_session("s") };
    let third = update(&other, change(bare, &["tools", "pinned_blocks"])).await;
    other.submit("s", vec![result(&requested(&rest)[0], "fine")]).await;
    rest.extend(all(&mut stream).await);

    let one = "scripted/first".to_owned();
    let two = "scripted/second".to_owned();
    assert_eq!(steps(&head), [(first.etag, one)]);
    assert_eq!(steps(&rest), [(second.etag, two.clone()), (third.etag, two)]);
    let here = host.replica.scripted.prompts();
    let there = other.replica.scripted.prompts();
    assert_eq!(
        given(&here),
        [
            ("first", "Be brief.\n\n# notes\nLikes tea.", vec!["look"]),
            ("second", "Be long.\n\n# notes\nLikes tea.", vec!["look", "feel"]),
        ]
    );
    assert_eq!(given(&there), [("second", "Be long.", vec![])]);
    assert_eq!(kinds(&rest).iter().filter(|kind| **kind == "session_updated").count(), 2, "the stream tells of it");
    let ended = host.turn("s", &turn_id(&head)).await;
    assert_eq!((ended.model.as_str(), ended.state()), ("scripted/second", TurnState::Completed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_step_keeps_its_configuration_and_the_next_uses_the_new_one() {
    let host = host().await;
    let first = create(&host, configured("s")).await;
    let mut stream = host.execute(turn("s", "", "Speak slowly")).await;
    let mut seen = until_written(&mut stream, "Well,").await;
    let second = update(&host, switch("s")).await;
    host.release("go");
    seen.extend(all(&mut stream).await);
    let expected = [(first.etag, "scripted/first".to_owned()), (second.etag, "scripted/second".to_owned())];
    assert_eq!(steps(&seen), expected);
    let models: Vec<String> = host.messages("s").await.into_iter().filter_map(|it| Some(it.response?.model)).collect();
    assert_eq!(models, ["scripted/first", "scripted/second"]);
    let prompts = host.replica.scripted.prompts();
    assert_eq!(given(&prompts).into_iter().map(|(model, ..)| model).collect::<Vec<_>>(), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_repeated_by_another_replica_uses_the_same_configuration() {
    let gone = Host::with(options()).await;
    let first = create(&gone, configured("s")).await;
    let mut stream = gone.execute(turn("s", "", "Speak slowly")).await;
    until_written(&mut stream, "Well,").await;
    gone.simulate_crash().await;
    update(&gone, switch("s")).await;
    let other = gone.beside(options()).await;
    other.release("go");
    let mut stream = other.watch("s", "", 0).await;
    let seen = until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(steps(&seen)[0].0, first.etag);
    assert!(kinds(&seen).contains(&"turn_recovered"));
    let prompts = other.replica.scripted.prompts();
    assert_eq!(given(&prompts)[0], ("first", "Be brief.\n\n# notes\nLikes tea.", vec!["look"]));
    assert_eq!(given(&prompts)[1].0, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn overrides_of_a_turn_win_over_an_updated_configuration() {
    let host = host().await;
    create(&host, configured("s")).await;
    let own = pb::ExecuteTurnRequest {
        tools: tools(&["look", "own"]),
        limits: Some(pb::TurnLimits { max_steps: 2, ..Default::default() }),
        ..turn("s", "scripted/first", "Use tools")
    };
    let mut stream = host.execute(own).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let mut request = switch("s");
    let session = request.session.as_mut().unwrap();
    (session.tools, session.limits) =
        (tools(&["feel"]), Some(pb::TurnLimits { max_steps: 1, max_output_tokens: 5, ..Default::default() }));
    request.update_mask = None;
    let after = update(&host, request).await;
    host.submit("s", vec![result(&requested(&head)[0], "fine")]).await;
    let rest = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    host.submit("s", vec![result(&requested(&rest)[0], "fine")]).await;
    assert_eq!(completed(&all(&mut stream).await).reason(), pb::CompletionReason::MaxSteps);
    assert_eq!(steps(&rest), [(after.etag, "scripted/first".to_owned())]);
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert_eq!(
        (prompt.instructions().as_str(), prompt.max_output_tokens),
        ("Be long.\n\n# notes\nLikes tea.", Some(5))
    );
    assert_eq!(given(&[prompt])[0].2, ["look", "own"]);
    let ended = host.turn("s", &turn_id(&head)).await;
    assert_eq!((ended.model.as_str(), ended.limits.unwrap().max_steps), ("scripted/first", 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_may_raise_max_steps_of_a_waiting_turn_but_not_its_timeout() {
    let host = host().await;
    let one =
        pb::TurnLimits { max_steps: 1, turn_timeout: Some(Duration { seconds: 60, nanos: 0 }), ..Default::default() };
    create(&host, pb::Session { limits: Some(one), ..configured("s") }).await;
    let mut stream = host.execute(turn("s", "", "Use tools")).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let more = pb::TurnLimits { max_steps: 2, turn_timeout: Some(Duration { seconds: 90, nanos: 0 }), ..one };
    update(&host, change(pb::Session { limits: Some(more), ..in_session("s") }, &["limits"])).await;
    host.submit("s", vec![result(&requested(&head)[0], "fine")]).await;
    let rest = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let limits = host.turn("s", &turn_id(&head)).await.limits.unwrap();
    assert_eq!((limits.max_steps, limits.turn_timeout.unwrap().seconds), (2, 60));
    host.submit("s", vec![result(&requested(&rest)[0], "fine")]).await;
    assert_eq!(completed(&all(&mut stream).await).reason(), pb::CompletionReason::MaxSteps);

    let fewer = pb::Session { limits: Some(pb::TurnLimits { max_steps: 5, ..Default::default() }), ..in_session("s") };
    update(&host, change(fewer, &["limits"])).await;
    let limits = host.turn("s", &turn_id(&head)).await.limits.unwrap();
    assert_eq!((limits.max_steps, limits.turn_timeout.unwrap().seconds), (2, 60), "an ended turn stays as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_updated_session_is_listed_first() {
    let host = host().await;
    for id in ["a", "b", "c"] {
        create(&host, configured(id)).await;
    }
    update(&host, switch("a")).await;
    let list = host.sessions().list_sessions(pb::ListSessionsRequest::default()).await.unwrap().into_inner().sessions;
    assert_eq!(list.iter().map(|session| session.session_id.as_str()).collect::<Vec<_>>(), ["a", "c", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_reader_is_notified_of_an_update() {
    let host = host().await;
    let other = host.beside(options()).await;
    create(&host, configured("s")).await;
    let mut stream = other.watch("s", "", 0).await;
    until(&mut stream, |payload| matches!(payload, Payload::Sync(_))).await;
    update(&host, switch("s")).await;
    let heard = until(&mut stream, |payload| matches!(payload, Payload::ModelSwitched(_)));
    assert_eq!(kinds(&tokio::time::timeout(TEST_TIMEOUT, heard).await.unwrap()), ["session_updated", "model_switched"]);
}

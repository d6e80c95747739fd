//! Sessions: creation, configuration, lists ordered by last use, and the parts of the configuration that reach the
//! model.

use std::sync::Arc;

use contextd::{
    model::Prompt,
    pb::{
        self, ContextCategory, SessionState, event::Payload, json_schema::Schema,
        session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient,
    },
};
use futures_util::future::join_all;
use prost_types::Duration;
use tonic::transport::Channel;

use crate::harness::{
    Options, Replica,
    errors::refusal,
    events::all,
    requests::{tool, tools, turn},
};

const TALKS: &str = r#"{"steps": [{"say": [{"text": "Fine."}]}]}"#;

fn options() -> Options {
    Options::default().script("talks", TALKS)
}

fn create(session_id: &str, request_id: &str) -> pb::CreateSessionRequest {
    let session = pb::Session { session_id: session_id.to_owned(), ..pb::Session::default() };
    pb::CreateSessionRequest { session: Some(session), request_id: request_id.to_owned() }
}

async fn made(sessions: &mut SessionServiceClient<Channel>, request: pb::CreateSessionRequest) -> pb::Session {
    sessions.create_session(request).await.unwrap().into_inner().session.unwrap()
}

async fn shown(sessions: &mut SessionServiceClient<Channel>, session: &str) -> pb::Session {
    let request = pb::GetSessionRequest { session_id: session.to_owned() };
    sessions.get_session(request).await.unwrap().into_inner().session.unwrap()
}

/// A session with every field that a client can set in this version.
fn configured() -> pb::Session {
    let look = pb::Tool {
        input_schema: Some(pb::JsonSchema {
            schema: Some(Schema::Json(r#"{"type": "object", "x": 1.50}"#.to_owned())),
        }),
        timeout: Some(Duration { seconds: 7, nanos: 0 }),
        output_limits: Some(output_limits(100)),
        category: ContextCategory::McpTools.into(),
        strict: Some(true),
        ..tool("look")
    };
    let hidden = pb::Tool { deferred: true, category: ContextCategory::Skills.into(), ..tool("hidden") };
    let overrides = pb::ToolPolicy {
        default_output_limits: Some(output_limits(5_000)),
        output_limits: [("look".to_owned(), output_limits(50))].into(),
        ..pb::ToolPolicy::default()
    };
    pb::Session {
        model: "scripted/talks".to_owned(),
        system_prompt: "Be brief.".to_owned(),
        pinned_blocks: vec![block("memory.md", ContextCategory::Memory), block("skill", ContextCategory::Skills)],
        tools: Some(pb::ToolSet { host_tools: vec![look, hidden], ..pb::ToolSet::default() }),
        limits: Some(limits(9)),
        policy: "default".to_owned(),
        policy_overrides: Some(pb::Policy { tools: Some(overrides), ..pb::Policy::default() }),
        metadata: [("chat".to_owned(), "17".to_owned())].into(),
        ..pb::Session::default()
    }
}

fn block(name: &str, category: ContextCategory) -> pb::PinnedBlock {
    pb::PinnedBlock { name: name.to_owned(), text: format!("The text of {name}."), category: category.into() }
}

fn output_limits(max_output_chars: i32) -> pb::ToolOutputLimits {
    pb::ToolOutputLimits { max_output_chars, keep: pb::KeepPart::HeadAndTail.into(), ..Default::default() }
}

fn limits(max_steps: i32) -> pb::TurnLimits {
    pb::TurnLimits {
        max_steps,
        max_output_tokens: 1_000,
        max_total_tokens: 100_000,
        turn_timeout: Some(Duration { seconds: 60, nanos: 0 }),
        tool_timeout: Some(Duration { seconds: 30, nanos: 0 }),
        grace_period: None,
    }
}

/// Runs a turn and returns its `turn_started`.
async fn run(turns: &mut TurnServiceClient<Channel>, request: pb::ExecuteTurnRequest) -> pb::TurnStarted {
    let events = all(&mut turns.execute_turn(request).await.unwrap().into_inner()).await;
    let started = events.into_iter().find_map(|event| match event.payload {
        Some(Payload::TurnStarted(started)) => Some(started),
        _ => None,
    });
    started.expect("a turn that never started")
}

fn last_prompt(replica: &Replica) -> Arc<Prompt> {
    replica.scripted.prompts().pop().expect("no model was called")
}

fn offered(prompt: &Prompt) -> Vec<&str> {
    prompt.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_the_chosen_id_or_one_of_the_servers() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    let chosen = made(&mut sessions, create("My_chat:17.a-b", "")).await;
    assert_eq!(chosen.session_id, "My_chat:17.a-b");
    let one = made(&mut sessions, create("", "")).await;
    let other = made(&mut sessions, create("", "")).await;
    assert!(uuid::Uuid::parse_str(&one.session_id).is_ok(), "{}", one.session_id);
    assert_ne!(one.session_id, other.session_id);
    let bare = made(&mut sessions, pb::CreateSessionRequest::default()).await;
    assert_eq!(bare, shown(&mut sessions, &bare.session_id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_makes_one_session() {
    let (database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    for session_id in ["", "chosen"] {
        let request = create(session_id, &format!("request-{session_id}"));
        let first = made(&mut sessions, request.clone()).await;
        let before = database.contents(&database.client().await).await;
        assert_eq!(made(&mut sessions, request).await, first);
        assert_eq!(database.contents(&database.client().await).await, before);
    }
    let twice = sessions.create_session(create("chosen", "another-request")).await.unwrap_err();
    assert_eq!(refusal(&twice).reason, "SESSION_ALREADY_EXISTS");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_identical_requests_at_once_make_one_session() {
    let (database, replica) = Replica::alone(options()).await;
    for session_id in ["", "chosen"] {
        let at_once = (0..8).map(|_| async {
            let mut sessions = replica.sessions().await;
            made(&mut sessions, create(session_id, "the-request")).await.session_id
        });
        let mut ids = join_all(at_once).await;
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
    }
    let counts = database.row_counts().await;
    for table in ["sessions", "session_run", "session_revisions", "idempotency"] {
        assert!(counts.contains(&(table.to_owned(), 2)), "{table}: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shown_as_it_was_set() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    let session = pb::Session { session_id: "full".to_owned(), ..configured() };
    let created =
        made(&mut sessions, pb::CreateSessionRequest { session: Some(session.clone()), ..Default::default() }).await;
    let full = shown(&mut sessions, "full").await;
    assert_eq!(created, full);
    assert!(!full.etag.is_empty() && full.create_time.is_some() && full.update_time.is_some());
    let output_only = pb::Session {
        etag: full.etag.clone(),
        state: SessionState::Idle.into(),
        create_time: full.create_time,
        update_time: full.update_time,
        ..session
    };
    assert_eq!(full, output_only);
}

#[tokio::test(flavor = "multi_thread")]
async fn unset_session_fields_get_defaults() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    let plain = made(&mut sessions, create("plain", "")).await;
    assert_eq!((plain.model.as_str(), plain.policy.as_str()), ("scripted/demo", "default"));
    assert_eq!(plain.state(), SessionState::Idle);
    assert_eq!((plain.tools, plain.limits), (Some(pb::ToolSet::default()), None));
    assert_eq!((plain.policy_overrides, plain.generation), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_only_session_fields_are_ignored() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    let pretended = pb::Session {
        session_id: "s".to_owned(),
        etag: "77".to_owned(),
        state: SessionState::Running.into(),
        current_turn_id: "t".to_owned(),
        last_seq: 9,
        queued_count: 9,
        compaction_count: 9,
        currently_compacting: true,
        forked_from_session_id: "f".to_owned(),
        forked_at_seq: 9,
        ..pb::Session::default()
    };
    let request = pb::CreateSessionRequest { session: Some(pretended), request_id: "the-request".to_owned() };
    let session = made(&mut sessions, request).await;
    assert_eq!(made(&mut sessions, create("s", "the-request")).await, session);
    assert_eq!((session.state(), session.last_seq, session.queued_count), (SessionState::Idle, 0, 0));
    assert_eq!((session.current_turn_id.as_str(), session.forked_from_session_id.as_str()), ("", ""));
    assert_eq!((session.compaction_count, session.currently_compacting, session.forked_at_seq), (0, false, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_by_their_last_use_and_in_brief() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    let mut turns = replica.turns().await;
    for session_id in ["a", "b", "c", "d"] {
        let session = pb::Session { session_id: session_id.to_owned(), ..configured() };
        made(&mut sessions, pb::CreateSessionRequest { session: Some(session), ..Default::default() }).await;
    }
    run(&mut turns, turn("b", "", "Hello")).await;
    run(&mut turns, turn("e", "scripted/talks", "Hello")).await;
    run(&mut turns, turn("a", "", "Hello")).await;
    for page_size in [0, 1, 2, 3, 5, 6] {
        let mut ids = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListSessionsRequest { page_size, page_token, filter: None };
            let page = sessions.list_sessions(request).await.unwrap().into_inner();
            assert!(page_size == 0 || page.sessions.len() <= page_size as usize);
            assert!(!page.sessions.is_empty());
            ids.extend(page.sessions.into_iter().map(|session| session.session_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(ids, ["a", "e", "b", "d", "c"], "in pages of {page_size}");
    }
    let list = sessions.list_sessions(pb::ListSessionsRequest::default()).await.unwrap().into_inner().sessions;
    for brief in list {
        let full = shown(&mut sessions, &brief.session_id).await;
        let expected = pb::Session { system_prompt: String::new(), tools: None, pinned_blocks: Vec::new(), ..full };
        assert_eq!(brief, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_makes_its_session_and_takes_an_existing_one_as_it_is() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut sessions = replica.sessions().await;
    let mut turns = replica.turns().await;
    let first = pb::ExecuteTurnRequest { session: Some(configured()), ..turn("chat", "", "Hello") };
    run(&mut turns, first).await;
    let made = shown(&mut sessions, "chat").await;
    let expected = configured();
    assert_eq!(
        (&made.model, &made.system_prompt, &made.pinned_blocks, &made.tools, &made.limits, &made.metadata),
        (
            &expected.model,
            &expected.system_prompt,
            &expected.pinned_blocks,
            &expected.tools,
            &expected.limits,
            &expected.metadata
        )
    );
    assert_eq!(made.policy_overrides, expected.policy_overrides);
    let other =
        pb::Session { system_prompt: "Be long.".to_owned(), model: "scripted/demo".to_owned(), ..Default::default() };
    run(&mut turns, pb::ExecuteTurnRequest { session: Some(other), ..turn("chat", "", "Hello again") }).await;
    let after = shown(&mut sessions, "chat").await;
    assert_eq!((&after.etag, &after.system_prompt, &after.model), (&made.etag, &made.system_prompt, &made.model));
    assert_eq!(
        last_prompt(&replica).instructions(),
        "Be brief.\n\n# memory.md\nThe text of memory.md.\n\n# skill\nThe text of skill."
    );
    assert!(after.last_seq > made.last_seq);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_configuration_reaches_the_model() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut turns = replica.turns().await;
    let request = pb::ExecuteTurnRequest { session: Some(configured()), ..turn("chat", "", "Hello") };
    let started = run(&mut turns, request).await;
    assert_eq!((started.model.as_str(), started.tool_names), ("scripted/talks", vec!["look".to_owned()]));
    let prompt = last_prompt(&replica);
    assert_eq!(
        prompt.instructions(),
        "Be brief.\n\n# memory.md\nThe text of memory.md.\n\n# skill\nThe text of skill."
    );
    assert_eq!((offered(&prompt), prompt.max_output_tokens), (vec!["look"], Some(1_000)));
    assert_eq!(prompt.tools[0].input_schema.as_deref(), Some(r#"{"type": "object", "x": 1.50}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turns_tools_and_model_replace_the_sessions_for_this_turn() {
    let (_database, replica) = Replica::alone(options().script("other", TALKS)).await;
    let mut turns = replica.turns().await;
    let session = || Some(configured());
    let rows = [
        ("the session's", None, "", vec!["look"], "talks"),
        ("others", tools(&["feel", "smell"]), "", vec!["feel", "smell"], "talks"),
        ("none", Some(pb::ToolSet::default()), "", vec![], "talks"),
        ("the session's for another model", None, "scripted/other", vec!["look"], "other"),
        ("the session's again", None, "", vec!["look"], "talks"),
    ];
    for (what, tools, model, names, called) in rows {
        let request = pb::ExecuteTurnRequest { session: session(), tools, ..turn("chat", model, "Hello") };
        let started = run(&mut turns, request).await;
        let prompt = last_prompt(&replica);
        assert_eq!((offered(&prompt), prompt.model.as_str()), (names.clone(), called), "{what}");
        assert_eq!(started.tool_names, names, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_limit_of_the_request_wins_over_the_sessions() {
    let (_database, replica) = Replica::alone(options()).await;
    let mut turns = replica.turns().await;
    let steps = |max_steps| Some(pb::TurnLimits { max_steps, ..pb::TurnLimits::default() });
    let timeout = Some(Duration { seconds: 5, nanos: 0 });
    let rows = [
        ("the session's", None, limits(9)),
        ("other steps", steps(3), limits(3)),
        ("nothing set", steps(0), limits(9)),
        (
            "another timeout",
            Some(pb::TurnLimits { turn_timeout: timeout, ..pb::TurnLimits::default() }),
            pb::TurnLimits { turn_timeout: timeout, ..limits(9) },
        ),
    ];
    for (what, asked, expected) in rows {
        let request =
            pb::ExecuteTurnRequest { session: Some(configured()), limits: asked, ..turn("chat", "", "Hello") };
        assert_eq!(run(&mut turns, request).await.limits, Some(expected), "{what}");
    }
    let plain = run(&mut turns, turn("plain", "scripted/talks", "Hello")).await.limits.unwrap();
    assert_eq!(
        (plain.max_steps, plain.turn_timeout.unwrap().seconds, plain.tool_timeout.unwrap().seconds),
        (50, 3600, 600)
    );
}

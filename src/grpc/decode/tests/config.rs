//! Tests the configuration and policy of new sessions.

use super::*;
use crate::model::{
    OutputLimits, PinnedKind, SessionConfig, SessionId, TakeMode, ToolExecution,
    compaction::{self, CompactionOverrides, Guard, InstructionsMode, Ratio},
    config::{ContextOverrides, PolicyOverrides, PruneMode, PruneOverrides, UnknownWindow},
};

fn created(session: pb::Session) -> Result<SessionConfig, RequestError> {
    let request = pb::CreateSessionRequest { session: Some(session), request_id: String::new() };
    decoded(request).map(|command| command.draft.config)
}

#[track_caller]
fn check_session(change: impl FnOnce(&mut pb::Session), expected: &[(&str, FieldReason)]) {
    let mut session = pb::Session::default();
    change(&mut session);
    check(created(session), expected);
}

fn overrides(change: impl FnOnce(&mut pb::Policy)) -> Result<PolicyOverrides, RequestError> {
    let mut policy = pb::Policy::default();
    change(&mut policy);
    created(pb::Session { policy_overrides: Some(policy), ..Default::default() }).map(|config| config.overrides)
}

#[test]
fn an_empty_session_gets_all_defaults() {
    let command = decoded(pb::CreateSessionRequest::default()).unwrap();
    assert_eq!((command.session, command.draft), (None, Default::default()));
    check_session(|_| {}, &[]);
}

#[test]
fn the_client_may_choose_the_id() {
    let of = |id: &str| pb::Session { session_id: id.into(), ..Default::default() };
    let create = |id| decoded(pb::CreateSessionRequest { session: Some(of(id)), request_id: "r".into() });
    assert_eq!(create("my:chat-1").unwrap().session, Some(SessionId::new("my:chat-1")));
    check(create("a b"), &[("session.session_id", Invalid)]);
}

#[test]
fn output_only_fields_are_ignored() {
    let session = pb::Session {
        etag: "x".into(),
        state: 99,
        current_turn_id: "not an id".into(),
        last_seq: -1,
        queued_count: -1,
        compaction_count: -1,
        forked_at_seq: -1,
        ..Default::default()
    };
    assert_eq!(created(session).unwrap(), SessionConfig::default());
}

#[test]
fn model_and_policy_names_are_bounded_single_lines() {
    check_session(|s| s.model = "m".repeat(257), &[("session.model", TooLarge)]);
    check_session(|s| s.model = "\t".into(), &[("session.model", Invalid)]);
    check_session(|s| s.policy = "p".repeat(129), &[("session.policy", TooLarge)]);
    check_session(|s| s.policy = "\n".into(), &[("session.policy", Invalid)]);
}

#[test]
fn a_system_prompt_is_at_most_a_mebibyte() {
    check_session(|s| s.system_prompt = "x".repeat(1024 * 1024), &[]);
    check_session(|s| s.system_prompt = "x".repeat(1024 * 1024 + 1), &[("session.system_prompt", TooLarge)]);
    let config = created(pb::Session { system_prompt: "a\0".into(), ..Default::default() }).unwrap();
    assert_eq!(config.system_prompt, "a\u{FFFD}");
}

fn block(name: &str, text: &str) -> pb::PinnedBlock {
    pb::PinnedBlock { name: name.into(), text: text.into(), category: 0 }
}

#[test]
fn pinned_blocks_have_unique_names_and_bounded_texts() {
    let large = "x".repeat(256 * 1024);
    check_session(|s| s.pinned_blocks = vec![block(&"ü".repeat(128), &large), block("b", "")], &[]);
    check_session(
        |s| {
            s.pinned_blocks =
                vec![block("a", ""), block("", ""), block("a", &(large + "x")), block(&"n".repeat(129), "")];
        },
        &[
            ("session.pinned_blocks[2].name", Conflict),
            ("session.pinned_blocks[1].name", Required),
            ("session.pinned_blocks[2].text", TooLarge),
            ("session.pinned_blocks[3].name", TooLarge),
        ],
    );
}

#[test]
fn at_most_64_blocks_are_pinned() {
    let blocks = |count: usize| (0..count).map(|i| block(&i.to_string(), "")).collect();
    check_session(|s| s.pinned_blocks = blocks(64), &[]);
    check_session(|s| s.pinned_blocks = blocks(65), &[("session.pinned_blocks", TooLarge)]);
}

#[test]
fn a_pinned_block_counts_in_its_category() {
    use pb::ContextCategory as Wire;
    let of = |category: i32| pb::Session {
        pinned_blocks: vec![pb::PinnedBlock { category, ..block("a", "") }],
        ..Default::default()
    };
    let taken = [
        (Wire::Unspecified, PinnedKind::Pinned),
        (Wire::Pinned, PinnedKind::Pinned),
        (Wire::Memory, PinnedKind::Memory),
        (Wire::Skills, PinnedKind::Skills),
        (Wire::Agents, PinnedKind::Agents),
    ];
    for (wire, kind) in taken {
        assert_eq!(created(of(wire.into())).unwrap().pinned_blocks[0].kind, kind);
    }
    check(created(of(Wire::Tools.into())), &[("session.pinned_blocks[0].category", Unsupported)]);
    check(created(of(99)), &[("session.pinned_blocks[0].category", Unknown)]);
}

#[test]
fn violation_paths_into_a_session_are_complete() {
    let tool = pb::Tool { name: "a b".into(), ..Default::default() };
    check_session(
        |s| {
            s.tools = Some(pb::ToolSet { host_tools: vec![tool], ..pb::ToolSet::default() });
            s.limits = Some(pb::TurnLimits { max_steps: -1, ..Default::default() });
            s.generation = Some(pb::Generation { top_p: Some(2.0), ..Default::default() });
            s.metadata = [(String::new(), String::new())].into();
        },
        &[
            ("session.tools.host_tools[0].name", Invalid),
            ("session.limits.max_steps", OutOfRange),
            ("session.generation.top_p", OutOfRange),
            ("session.metadata[\"\"]", Required),
        ],
    );
}

#[test]
fn limits_on_tool_output_may_be_overridden() {
    let lines = |max_lines| pb::ToolOutputLimits { max_lines, ..Default::default() };
    let limits = |by_name: &str, max_lines| {
        overrides(|policy| {
            policy.tools = Some(pb::ToolPolicy {
                execution: pb::ToolExecution::Sequential.into(),
                default_output_limits: Some(lines(1)),
                output_limits: [(by_name.to_owned(), lines(max_lines))].into(),
                cancel_wait: None,
            });
        })
    };
    let read = |max_lines| OutputLimits { max_lines: Some(max_lines), ..Default::default() };
    let expected = PolicyOverrides {
        execution: Some(ToolExecution::Sequential),
        default_output_limits: Some(read(1)),
        output_limits: [("bash".to_owned(), read(2))].into(),
        ..PolicyOverrides::default()
    };
    assert_eq!(limits("bash", 2).unwrap(), expected);
    let at = "session.policy_overrides.tools.output_limits";
    check(limits("bash", -1), &[(&format!("{at}[\"bash\"].max_lines"), OutOfRange)]);
    check(limits("a b", 1), &[(&format!("{at}[\"a b\"]"), Invalid)]);
}

#[test]
fn how_messages_are_queued_may_be_overridden() {
    let queue = |max_pending, take: pb::TakeMode| {
        overrides(|policy| policy.queue = Some(pb::QueuePolicy { max_pending, take: take.into() }))
    };
    let read = |max_pending, take| Ok(PolicyOverrides { max_pending, take, ..PolicyOverrides::default() });
    assert_eq!(queue(None, pb::TakeMode::Unspecified), read(None, None));
    assert_eq!(queue(Some(1_000), pb::TakeMode::All), read(Some(1_000), Some(TakeMode::All)));
    assert_eq!(queue(Some(1), pb::TakeMode::OneAtATime), read(Some(1), Some(TakeMode::OneAtATime)));
    assert_eq!(queue(None, pb::TakeMode::Latest), read(None, Some(TakeMode::Latest)));
    check(queue(Some(1_001), pb::TakeMode::All), &[("session.policy_overrides.queue.max_pending", OutOfRange)]);
}

#[test]
fn fallback_models_may_be_overridden() {
    let fallbacks = |models: &[&str]| {
        let models = models.iter().map(|&model| model.to_owned()).collect();
        created(pb::Session {
            model: "a/b".into(),
            policy_overrides: Some(pb::Policy { fallback_models: models, ..Default::default() }),
            ..Default::default()
        })
        .map(|config| config.overrides.fallback_models)
    };
    assert_eq!(fallbacks(&["a/c", "d/e"]).unwrap(), ["a/c", "d/e"]);
    let at = "session.policy_overrides.fallback_models";
    check(fallbacks(&["a/c", "a/b"]), &[(&format!("{at}[1]"), Invalid)]);
    check(fallbacks(&["1/a", "2/a", "3/a", "4/a", "5/a"]), &[(at, TooLarge)]);
    check(fallbacks(&["a\n"]), &[(&format!("{at}[0]"), Invalid)]);
}

#[test]
fn unimplemented_policy_overrides_are_refused() {
    type Override = (&'static str, fn(&mut pb::Policy));
    fn tools(change: fn(&mut pb::ToolPolicy)) -> Option<pb::ToolPolicy> {
        let mut policy = pb::ToolPolicy::default();
        change(&mut policy);
        Some(policy)
    }
    let later: &[Override] = &[("tools.cancel_wait", |p| p.tools = tools(|c| c.cancel_wait = seconds(1)))];
    for (field, change) in later {
        check_not_implemented(overrides(change), &format!("session.policy_overrides.{field}"));
    }
}

#[test]
fn how_the_context_is_kept_may_be_overridden() {
    let policy = pb::Policy {
        compaction: Some(pb::CompactionPolicy {
            enabled: Some(false),
            strategy: pb::CompactionStrategy::MiddleRemoval.into(),
            threshold: Some(0.5),
            keep_turns: Some(0),
            keep_ratio: Some(0.0),
            summary_model: "a/b".into(),
            summary_max_tokens: Some(1),
            instructions: "Keep names.".into(),
            instructions_mode: pb::InstructionsMode::Replace.into(),
            background: Some(true),
            guard: pb::ContextGuard::TwoLevel.into(),
            guard_request_ratio: Some(0.25),
            guard_stream_ratio: Some(1.0),
            guard_max_restarts: Some(0),
        }),
        prune: Some(pb::PrunePolicy {
            mode: pb::PruneMode::Always.into(),
            minimum_tokens: Some(0),
            protect_tokens: Some(7),
            protect_turns: Some(1),
            protected_tools: vec!["bash".into()],
        }),
        output_reserve: Some(0),
        context_window: Some(32_000),
        unknown_window: pb::UnknownWindow::Refuse.into(),
        ..Default::default()
    };
    let expected = ContextOverrides {
        compaction: CompactionOverrides {
            enabled: Some(false),
            strategy: Some(compaction::Strategy::MiddleRemoval),
            threshold: Ratio::new(0.5),
            keep_turns: Some(0),
            keep_ratio: Ratio::new(0.0),
            summary_model: Some("a/b".into()),
            summary_max_tokens: Some(1),
            instructions: Some("Keep names.".into()),
            instructions_mode: Some(InstructionsMode::Replace),
            background: Some(true),
            guard: Some(Guard::TwoLevel),
            guard_request_ratio: Ratio::new(0.25),
            guard_stream_ratio: Ratio::new(1.0),
            guard_max_restarts: Some(0),
        },
        prune: PruneOverrides {
            mode: Some(PruneMode::Always),
            minimum_tokens: Some(0),
            protect_tokens: Some(7),
            protect_turns: Some(1),
            protected_tools: vec!["bash".into()],
        },
        output_reserve: Some(0),
        context_window: Some(32_000),
        unknown_window: Some(UnknownWindow::Refuse),
    };
    assert_eq!(overrides(|it| *it = policy).unwrap().context, expected);
    let nothing = overrides(|it| it.context_window = Some(0));
    check(nothing, &[("session.policy_overrides.context_window", OutOfRange)]);
}

#[test]
fn overrides_have_their_ranges() {
    let check_policy = |policy: pb::Policy, expected: &[(&str, FieldReason)]| {
        let expected: Vec<_> =
            expected.iter().map(|(field, reason)| (format!("session.policy_overrides.{field}"), *reason)).collect();
        let expected: Vec<_> = expected.iter().map(|(field, reason)| (field.as_str(), *reason)).collect();
        check(overrides(|p| *p = policy), &expected);
    };
    let compaction = pb::CompactionPolicy {
        strategy: 99,
        threshold: Some(0.0),
        keep_turns: Some(-1),
        keep_ratio: Some(0.91),
        instructions: "x".repeat(16_385),
        summary_model: "notes".into(),
        guard_stream_ratio: Some(1.1),
        guard_max_restarts: Some(101),
        ..Default::default()
    };
    check_policy(
        pb::Policy { compaction: Some(compaction), ..Default::default() },
        &[
            ("compaction.strategy", Unknown),
            ("compaction.threshold", OutOfRange),
            ("compaction.keep_turns", OutOfRange),
            ("compaction.keep_ratio", OutOfRange),
            ("compaction.summary_model", Invalid),
            ("compaction.instructions", TooLarge),
            ("compaction.guard_stream_ratio", OutOfRange),
            ("compaction.guard_max_restarts", OutOfRange),
        ],
    );
    let most = pb::CompactionPolicy { guard_max_restarts: Some(100), ..Default::default() };
    check_policy(pb::Policy { compaction: Some(most), ..Default::default() }, &[]);
    let prune = pb::PrunePolicy {
        mode: 9,
        minimum_tokens: Some(-1),
        protected_tools: vec!["a b".into()],
        ..Default::default()
    };
    let queue = pb::QueuePolicy { max_pending: Some(0), take: 9 };
    let tools = pb::ToolPolicy { execution: 9, cancel_wait: seconds(-1), ..Default::default() };
    let policy = pb::Policy {
        compaction: None,
        prune: Some(prune),
        tools: Some(tools),
        queue: Some(queue),
        output_reserve: Some(-1),
        context_window: Some(-1),
        unknown_window: 9,
        fallback_models: vec!["a/b".into(), String::new(), "a/b".into()],
    };
    check_policy(
        policy,
        &[
            ("prune.protected_tools[0]", Invalid),
            ("prune.mode", Unknown),
            ("prune.minimum_tokens", OutOfRange),
            ("output_reserve", OutOfRange),
            ("context_window", OutOfRange),
            ("unknown_window", Unknown),
            ("fallback_models[1]", Required),
            ("fallback_models[2]", Conflict),
            ("tools.execution", Unknown),
            ("tools.cancel_wait", OutOfRange),
            ("queue.max_pending", OutOfRange),
            ("queue.take", Unknown),
        ],
    );
}

/// The configuration, keys files and titles have these limits too, and `model` does not know the API.
#[test]
fn limits_that_the_model_has_too_are_those_of_the_api() {
    use crate::{
        model::{access::is_tenant, compaction::GUARD_RESTARTS, config::MAX_FALLBACK_MODELS},
        pb::limits::{Size, create_key_request, policy, session_filter},
        store::session_labels::TITLE_CHARS,
    };
    assert_eq!(policy::FALLBACK_MODELS, MAX_FALLBACK_MODELS);
    let prefix = session_filter::TEXT_PREFIX.size;
    assert_eq!(prefix, Size::Characters(TITLE_CHARS));
    for length in 63..=65 {
        let id = "t".repeat(length);
        let is_valid = create_key_request::TENANT_ID.fits(&id);
        assert_eq!(is_tenant(&id), is_valid, "{length}");
    }
    let restarts = |number: u32| {
        overrides(|policy| {
            policy.compaction = Some(pb::CompactionPolicy {
                guard_max_restarts: i32::try_from(number).ok(),
                ..pb::CompactionPolicy::default()
            });
        })
    };
    let most = *GUARD_RESTARTS.end();
    assert!(restarts(most).is_ok() && restarts(most + 1).is_err());
}

//! Tests of `fit`: a table of cases, and a comparison with the check of [`Transcript::close`].

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::model::{
    Category, Content, Message, MessageId, Part, PartSize, Seq, ToolCall, ToolOutcome, ToolResult, Transcript,
    message::StoredPart, transcript::NotClosed,
};

/// A message in short form: `u` a user message, `a:1,2` an assistant message with calls 1 and 2, `t:1` results; a
/// trailing `!` means pinned.
fn message(short: &str) -> InputMessage {
    let (short, pinned) = short.strip_suffix('!').map_or((short, false), |short| (short, true));
    let (role, calls) = short.split_once(':').unwrap_or((short, ""));
    let role = match role {
        "u" => Role::User,
        "a" => Role::Assistant,
        "t" => Role::Tool,
        other => panic!("no such role: {other}"),
    };
    let part = |call: &str| {
        let id = CallId::new(call);
        let name = "tool".to_owned();
        Part::new(if role == Role::Tool {
            let outcome = ToolOutcome::Success;
            Content::ToolResult(ToolResult {
                call: id,
                name,
                parts: Vec::new(),
                outcome,
                truncation: None,
                display_text: String::new(),
            })
        } else {
            Content::ToolCall(ToolCall { id, name, arguments: "{}".to_owned() })
        })
    };
    let parts = calls.split(',').filter(|call| !call.is_empty());
    InputMessage { pinned, ..InputMessage::new(role, parts.map(part).collect()) }
}

fn messages(shorts: &str) -> Vec<InputMessage> {
    shorts.split_whitespace().map(message).collect()
}

fn open(calls: &str) -> Vec<OpenCall> {
    let pinned = calls.ends_with('!');
    let ids = calls.trim_end_matches('!').split(',').filter(|id| !id.is_empty());
    ids.map(|id| OpenCall { id: CallId::new(id), name: "tool".to_owned(), pinned }).collect()
}

/// Checks messages appended to a session with these open and these closed calls.
fn look(open_calls: &str, closed: &str, shorts: &str) -> Result<(usize, usize, usize), AppendError> {
    let closed = open(closed);
    let open = open(open_calls);
    let known = open.iter().chain(&closed).map(|call| call.id.clone()).collect();
    fit(&open, &known, &messages(shorts)).map(|fit| (fit.made.len(), fit.answered.len(), fit.open))
}

fn at(message: usize, part: usize) -> Place {
    Place { message, part }
}

#[test]
fn an_import_may_end_closed_or_in_one_open_batch() {
    let table = [
        ("", "u a u a", (0, 0, 0)),
        ("", "a:1,2 t:1,2 a", (2, 0, 0)),
        ("", "a:1,2 t:2 t:1 a:3 t:3", (3, 0, 0)),
        ("", "u a:1,2", (2, 0, 2)),
        ("", "u a:1,2 t:1", (2, 0, 1)),
        ("1,2", "t:1", (0, 1, 1)),
        ("1,2", "t:2,1 a:3", (1, 2, 1)),
        ("1", "t:1 u", (0, 1, 0)),
        ("1!", "t:1!", (0, 1, 0)),
        ("1!", "t:1", (0, 1, 0)),
        ("", "a:1! t:1! u!", (1, 0, 0)),
    ];
    for (before, shorts, expected) in table {
        assert_eq!(look(before, "0", shorts), Ok(expected), "{before:?}, then {shorts:?}");
    }
}

#[test]
fn every_import_violation_names_its_place() {
    let unanswered = |message, part, before| Flaw::Unanswered { call: at(message, part), before };
    let table = [
        ("", "t:1", vec![Flaw::Orphan(at(0, 0))]),
        ("", "u a:1 t:2", vec![Flaw::Orphan(at(2, 0))]),
        ("", "t:0", vec![Flaw::Repeated(at(0, 0))]),
        ("", "a:1 t:1,1", vec![Flaw::Repeated(at(1, 1))]),
        ("1", "t:1 t:1", vec![Flaw::Repeated(at(1, 0))]),
        ("", "a:1,0", vec![Flaw::Taken(at(0, 1))]),
        ("", "a:1,1", vec![Flaw::Taken(at(0, 1))]),
        ("1", "t:1 a:1", vec![Flaw::Taken(at(1, 0))]),
        ("", "a:1 u a:2,3 t:2 u", vec![unanswered(0, 0, 1), unanswered(2, 1, 4)]),
        ("", "a:1 a:2 t:1", vec![unanswered(0, 0, 1), Flaw::Repeated(at(2, 0))]),
        ("1", "u t:9", vec![Flaw::Orphan(at(1, 0))]),
        ("1", "t:1!", vec![Flaw::PinnedApart(0)]),
        ("", "a:1,2 t:1,2!", vec![Flaw::PinnedApart(1)]),
    ];
    for (before, shorts, expected) in table {
        assert_eq!(look(before, "0", shorts), Err(AppendError::Flawed(expected)), "{before:?}, then {shorts:?}");
    }
}

#[test]
fn only_results_may_be_appended_after_open_calls() {
    let open = |calls: &[&str]| Err(AppendError::Open(calls.iter().map(|call| CallId::new(*call)).collect()));
    assert_eq!(look("1,2", "", "u"), open(&["1", "2"]));
    assert_eq!(look("1,2", "", "t:1 a"), open(&["2"]));
}

#[test]
fn an_imported_result_refers_to_its_call() {
    let open = open("1");
    let known = [CallId::new("1")].into();
    let fit = fit(&open, &known, &messages("t:1 a:2 t:2")).unwrap();
    let answered = |message| fit.results.get(&at(message, 0)).map(|call| call.id.as_str());
    assert_eq!([answered(0), answered(1), answered(2)], [Some("1"), None, Some("2")]);
}

/// The same messages as a stored transcript holds them.
fn stored(appended: InputMessage) -> Message {
    let size = PartSize { tokens: 0, category: Category::User };
    let part = |part| StoredPart { part, size, estimator: String::new(), pruned: None };
    Message {
        id: MessageId::new("m"),
        turn: None,
        step: 0,
        seq: Seq(1),
        role: appended.role,
        parts: appended.parts.into_iter().map(part).collect(),
        overhead: 4,
        created_at: Timestamp::UNIX_EPOCH,
        response: None,
        pinned: false,
        metadata: BTreeMap::new(),
        queued: Vec::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
    }
}

fn short() -> impl Strategy<Value = String> {
    let calls = proptest::collection::vec(0_u8..6, 1..3)
        .prop_map(|calls| calls.iter().map(u8::to_string).collect::<Vec<_>>().join(","));
    prop_oneof![
        Just("u".to_owned()),
        Just("a".to_owned()),
        calls.clone().prop_map(|calls| format!("a:{calls}")),
        calls.prop_map(|calls| format!("t:{calls}")),
    ]
}

proptest! {
    /// Messages that fit, in any number of appends, form a transcript that is closed or ends in one open batch. If no
    /// id is used twice, messages that do not fit do not form one.
    #[test]
    fn import_accepts_exactly_what_the_transcript_type_accepts(appends in proptest::collection::vec(proptest::collection::vec(short(), 1..5), 1..5)) {
        let mut all = Vec::new();
        let mut open = Vec::<OpenCall>::new();
        let mut known = BTreeSet::new();
        for shorts in appends {
            let shorts = shorts.join(" ");
            let next = messages(&shorts);
            let would_be: Vec<Message> = all.iter().chain(&next).cloned().map(stored).collect();
            let proof = Transcript::new(would_be).close();
            match fit(&open, &known, &next) {
                Ok(fit) => {
                    let left = match proof {
                        Ok(_) => 0,
                        Err(NotClosed::Open(calls)) => calls.len(),
                        Err(broken @ NotClosed::Broken(_)) => panic!("{shorts}: {broken}"),
                    };
                    prop_assert_eq!(fit.open, left);
                    open.retain(|call| !fit.answered.iter().any(|answered| answered.call.id == call.id));
                    open.extend(fit.made.iter().filter(|made| made.answered.is_none()).map(|made| made.call.clone()));
                    known.extend(fit.made.iter().map(|made| made.call.id.clone()));
                    all.extend(next);
                    prop_assert_eq!(open.len(), fit.open);
                }
                Err(AppendError::Open(calls)) => {
                    prop_assert!(matches!(proof, Err(NotClosed::Broken(_))), "{}: {:?}", shorts, calls);
                }
                Err(AppendError::Flawed(flaws)) => {
                    let reused = flaws.iter().any(|flaw| matches!(flaw, Flaw::Taken(_)));
                    prop_assert!(reused || matches!(proof, Err(NotClosed::Broken(_))), "{}: {:?}", shorts, flaws);
                }
            }
        }
    }
}

#[test]
fn repeated_calls_and_their_results_get_new_ids() {
    let table = [
        ("", "u a:1 t:1", "a:1 t:1"),
        ("", "a:1 t:1 a:1 t:1", "a:1 t:1 a:new.2.0 t:new.2.0"),
        ("1", "a:1,2 t:2,1", "a:new.0.0,2 t:2,new.0.0"),
        ("", "a:1,1 t:1 t:1", "a:1,new.0.1 t:1 t:new.0.1"),
        ("1", "t:1 a:1 t:1", "t:1 a:new.1.0 t:new.1.0"),
        ("1", "a:2 t:1", "a:2 t:1"),
    ];
    for (known, given, expected) in table {
        let known = open(known).into_iter().map(|call| call.id).collect();
        let given = messages(given);
        let new_id = |place: Place| CallId::new(format!("new.{}.{}", place.message, place.part));
        let unique = with_unique_calls(&known, &given, new_id);
        let ids = |message: &InputMessage| {
            let ids = message.parts.iter().filter_map(|part| match &part.content {
                Content::ToolCall(call) => Some(call.id.as_str()),
                Content::ToolResult(result) => Some(result.call.as_str()),
                Content::Text(_)
                | Content::Reasoning { .. }
                | Content::Refusal(_)
                | Content::Media(_)
                | Content::ProviderItem(_)
                | Content::Unknown(_) => None,
            });
            let ids = ids.collect::<Vec<_>>().join(",");
            let role = if message.role == Role::Tool { "t" } else { "a" };
            (!ids.is_empty()).then(|| format!("{role}:{ids}"))
        };
        let found: Vec<String> = unique.iter().filter_map(ids).collect();
        assert_eq!(found.join(" "), expected);
    }
}

//! The table of mistakes, by subject.

use std::collections::BTreeMap;

use contextd::pb::{self, ContextCategory, FieldReason as F, json_schema::Schema, part::Content};
use prost_types::{Duration, Struct, Timestamp, Value, value::Kind};
use tonic::Code;

use super::{
    answers::{answers, decisions, starts},
    models, rules,
    scene::{Call, Scene},
    updates::updates,
};
use crate::harness::{
    errors::Refusal,
    requests::{result, text, tools, turn},
};

mod conflicts;

pub(super) const KIB: usize = 1_024;
pub(super) const MIB: usize = 1_024 * KIB;
const EXECUTE_TURN: &str = "contextd.v1.TurnService/ExecuteTurn";

/// A mistake and the expected refusal.
pub(super) struct Row {
    pub(super) what: &'static str,
    /// The request with the mistake.
    pub(super) call: Call,
    /// The expected refusal.
    pub(super) expected: Refusal,
}

pub(super) fn refused(what: &'static str, call: Call, code: Code, reason: &str) -> Row {
    let expected = Refusal { code, reason: reason.to_owned(), metadata: BTreeMap::new(), fields: Vec::new() };
    Row { what, call, expected }
}

/// A request with invalid fields.
pub(super) fn invalid(what: &'static str, call: Call, fields: &[(&str, F)]) -> Row {
    let row = refused(what, call, Code::InvalidArgument, "INVALID_REQUEST");
    fields.iter().fold(row, |row, &(field, reason)| row.field(field, reason))
}

/// A request about something that does not exist.
pub(super) fn missing(what: &'static str, call: Call, reason: &str) -> Row {
    refused(what, call, Code::NotFound, reason)
}

/// A request that reuses the request_id of a different request.
pub(super) fn mismatch(what: &'static str, call: Call, request: &str) -> Row {
    refused(what, call, Code::InvalidArgument, "IDEMPOTENCY_MISMATCH")
        .with("request_id", request)
        .field("request_id", F::Conflict)
}

/// A page token of another list.
pub(super) fn bad_token(what: &'static str, call: Call) -> Row {
    refused(what, call, Code::InvalidArgument, "PAGE_TOKEN_INVALID").field("page_token", F::Invalid)
}

/// A cursor after the last seq of the session.
fn ahead(what: &'static str, call: Call, last: i64) -> Row {
    refused(what, call, Code::InvalidArgument, "CURSOR_AHEAD").with("last_seq", last).field("after_seq", F::OutOfRange)
}

impl Row {
    pub(super) fn field(mut self, field: &str, reason: F) -> Self {
        let reason = reason.as_str_name().trim_start_matches("FIELD_REASON_");
        self.expected.fields.push((field.to_owned(), reason.to_owned()));
        self
    }

    pub(super) fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.expected.metadata.insert(key.to_owned(), value.to_string());
        self
    }
}

fn part(content: Content) -> pb::Part {
    pb::Part { content: Some(content), ..pb::Part::default() }
}

fn json(schema: &str) -> Option<pb::JsonSchema> {
    Some(pb::JsonSchema { schema: Some(Schema::Json(schema.to_owned())) })
}

const fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

pub(super) fn labels(labels: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    labels.into_iter().collect()
}

fn identifiers(s: &Scene) -> Vec<Row> {
    let id = "session_id";
    vec![
        invalid("no session", s.get_session(|it| it.session_id.clear()), &[(id, F::Required)]),
        invalid("a session id too long", s.list_turns(|it| it.session_id = "x".repeat(129)), &[(id, F::TooLarge)]),
        invalid("a slash in a session id", s.list_messages(|it| it.session_id = "a/b".into()), &[(id, F::Invalid)]),
        invalid("a letter beyond ASCII", s.list_events(|it| it.session_id = "é".into()), &[(id, F::Invalid)]),
        invalid("NUL in a session id", s.watch(|it| it.session_id = "a\0".into()), &[(id, F::Invalid)]),
        invalid("a space in a new session's id", s.execute(|it| it.session_id = "a b".into()), &[(id, F::Invalid)]),
        invalid(
            "a space in a chosen id",
            s.configure(|it| it.session_id = " ".into()),
            &[("session.session_id", F::Invalid)],
        ),
        invalid("no turn", s.get_turn(|_| ()), &[("turn_id", F::Required)]),
        invalid("a turn id too long", s.cancel(|it| it.turn_id = "x".repeat(129)), &[("turn_id", F::TooLarge)]),
        invalid("a slash in a turn id", s.watch(|it| it.turn_id = "a/b".into()), &[("turn_id", F::Invalid)]),
        invalid(
            "neither session nor turn",
            s.get_turn(|it| it.session_id.clear()),
            &[(id, F::Required), ("turn_id", F::Required)],
        ),
        invalid(
            "a request id too long",
            s.create(|it| it.request_id = "x".repeat(129)),
            &[("request_id", F::TooLarge)],
        ),
        invalid(
            "a line break in a request id",
            s.execute(|it| it.request_id = "a\n".into()),
            &[("request_id", F::Invalid)],
        ),
        invalid("NUL in a request id", s.cancel(|it| it.request_id = "\0".into()), &[("request_id", F::Invalid)]),
        invalid("no call id", s.answers(&[""]), &[("results[0].call_id", F::Required)]),
        invalid("a call id too long", s.answers(&[&"x".repeat(257)]), &[("results[0].call_id", F::TooLarge)]),
        invalid("NUL in a call id", s.answers(&["\0"]), &[("results[0].call_id", F::Invalid)]),
    ]
}

fn messages(s: &Scene) -> Vec<Row> {
    let reasoning = Content::Reasoning(pb::Reasoning::default());
    let media = Content::Media(pb::Media::default());
    let noted = |json: &str| pb::Part { provider_metadata_json: json.into(), ..text("Hello") };
    let cited = pb::Part { citations: vec![pb::Citation::default()], ..text("Hello") };
    let many = (0..33).map(|i| (i.to_string(), String::new()));
    let key = "k".repeat(65);
    let value = "v".repeat(1_025);
    let metadata = format!("input.metadata[\"{}\"]", "k".repeat(40));
    vec![
        invalid("no parts", s.say_so(|it| it.parts.clear()), &[("input.parts", F::Required)]),
        invalid("257 parts", s.say_so(|it| it.parts = vec![text("Hello"); 257]), &[("input.parts", F::TooLarge)]),
        invalid("a part without content", s.say(pb::Part::default()), &[("input.parts[0]", F::Invalid)]),
        invalid("an empty text", s.say(text("")), &[("input.parts[0].text", F::Required)]),
        invalid("a text over 1 MiB", s.say(text(&"x".repeat(MIB + 1))), &[("input.parts[0].text", F::TooLarge)]),
        invalid("reasoning of the user's", s.say(part(reasoning)), &[("input.parts[0].reasoning", F::Unsupported)]),
        invalid(
            "a result out of place",
            s.say(part(Content::ToolResult(result("c", "fine")))),
            &[("input.parts[0].tool_result", F::Unsupported)],
        ),
        invalid(
            "an empty image",
            s.say(part(media)),
            &[("input.parts[0].media.media_type", F::Required), ("input.parts[0].media", F::Invalid)],
        ),
        invalid("citations of the user's", s.say(cited), &[("input.parts[0].citations", F::Unsupported)]),
        invalid(
            "metadata that is not JSON",
            s.say(noted("{")),
            &[("input.parts[0].provider_metadata_json", F::NotJson)],
        ),
        invalid(
            "metadata that is no object",
            s.say(noted("[]")),
            &[("input.parts[0].provider_metadata_json", F::NotJson)],
        ),
        invalid(
            "the assistant's words",
            s.say_so(|it| it.set_role(pb::Role::Assistant)),
            &[("input.role", F::Unsupported)],
        ),
        invalid("a role that is not known", s.say_so(|it| it.role = 99), &[("input.role", F::Unknown)]),
        invalid(
            "an answer of a model",
            s.say_so(|it| it.response = Some(Default::default())),
            &[("input.response", F::Unsupported)],
        ),
        invalid(
            "words of another time",
            s.say_so(|it| it.create_time = Some(Timestamp::default())),
            &[("input.create_time", F::Unsupported)],
        ),
        invalid("33 labels", s.say_so(|it| it.metadata = labels(many)), &[("input.metadata", F::TooLarge)]),
        invalid(
            "a long label",
            s.say_so(|it| it.metadata = labels([(key, value)])),
            &[(&metadata, F::TooLarge), (&metadata, F::TooLarge)],
        ),
        invalid(
            "a label without a key",
            s.say_so(|it| it.metadata = labels([Default::default()])),
            &[("input.metadata[\"\"]", F::Required)],
        ),
    ]
}

fn turns(s: &Scene) -> Vec<Row> {
    let heartbeat = |heartbeat_interval| pb::StreamOptions { heartbeat_interval, ..Default::default() };
    let malformed = Some(Duration { seconds: 2, nanos: -1 });
    vec![
        invalid(
            "input and transcript",
            s.execute(|it| it.continue_transcript = true),
            &[("continue_transcript", F::Conflict)],
        ),
        invalid(
            "two ids for a session",
            s.execute(|it| it.session.iter_mut().for_each(|session| session.session_id = "b".into())),
            &[("session.session_id", F::Conflict)],
        ),
        invalid("a negative cursor", s.execute(|it| it.after_seq = -1), &[("after_seq", F::OutOfRange)]),
        invalid("a negative cursor of a watch", s.watch(|it| it.after_seq = -1), &[("after_seq", F::OutOfRange)]),
        invalid("a policy that is not known", s.execute(|it| it.busy_policy = 99), &[("busy_policy", F::Unknown)]),
        invalid("a model reference too long", s.execute(|it| it.model = "x".repeat(257)), &[("model", F::TooLarge)]),
        invalid(
            "too few heartbeats",
            s.execute(|it| it.stream = Some(heartbeat(seconds(11)))),
            &[("stream.heartbeat_interval", F::OutOfRange)],
        ),
        invalid(
            "too many heartbeats",
            s.watch(|it| it.stream = Some(heartbeat(seconds(0)))),
            &[("stream.heartbeat_interval", F::OutOfRange)],
        ),
        invalid(
            "a malformed duration",
            s.watch(|it| it.stream = Some(heartbeat(malformed))),
            &[("stream.heartbeat_interval", F::Invalid)],
        ),
        invalid(
            "a wait of no time",
            s.execute(|it| it.cancel_after_disconnect = seconds(0)),
            &[("cancel_after_disconnect", F::OutOfRange)],
        ),
        invalid(
            "too much grace",
            s.bound(|it| it.grace_period = seconds(3_601)),
            &[("limits.grace_period", F::OutOfRange)],
        ),
        invalid(
            "a negative wait",
            s.execute(|it| it.cancel_after_disconnect = seconds(-1)),
            &[("cancel_after_disconnect", F::OutOfRange)],
        ),
        invalid("too many steps", s.bound(|it| it.max_steps = 1_001), &[("limits.max_steps", F::OutOfRange)]),
        invalid(
            "negative limits",
            s.bound(|it| (it.max_steps, it.max_output_tokens, it.max_total_tokens) = (-1, -1, -1)),
            &[
                ("limits.max_steps", F::OutOfRange),
                ("limits.max_output_tokens", F::OutOfRange),
                ("limits.max_total_tokens", F::OutOfRange),
            ],
        ),
        invalid(
            "a turn of more than a week",
            s.bound(|it| it.turn_timeout = seconds(604_801)),
            &[("limits.turn_timeout", F::OutOfRange)],
        ),
        invalid(
            "a tool of less than no time",
            s.bound(|it| it.tool_timeout = seconds(-1)),
            &[("limits.tool_timeout", F::OutOfRange)],
        ),
        invalid("a cancel mode that is not known", s.cancel(|it| it.mode = 99), &[("mode", F::Unknown)]),
        invalid("a long reason", s.cancel(|it| it.reason = "x".repeat(1_025)), &[("reason", F::TooLarge)]),
    ]
}

fn offers(s: &Scene) -> Vec<Row> {
    let schema = "tools.host_tools[0].input_schema";
    let text = format!("{schema}.json");
    let value = format!("{schema}.value");
    let nan = Value { kind: Some(Kind::NumberValue(f64::NAN)) };
    let nan = pb::JsonSchema { schema: Some(Schema::Value(Struct { fields: [("x".to_owned(), nan)].into() })) };
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(256 * KIB));
    let limits = pb::ToolOutputLimits { max_lines: -1, keep: 99, ..Default::default() };
    let provider = pb::ToolSet { provider_tools: vec![pb::ProviderTool::default()], ..Default::default() };
    vec![
        invalid("a tool without a name", s.offer(|it| it.name.clear()), &[("tools.host_tools[0].name", F::Required)]),
        invalid(
            "a tool's name too long",
            s.offer(|it| it.name = "x".repeat(65)),
            &[("tools.host_tools[0].name", F::TooLarge)],
        ),
        invalid(
            "a dot in a tool's name",
            s.offer(|it| it.name = "a.b".into()),
            &[("tools.host_tools[0].name", F::Invalid)],
        ),
        invalid(
            "two tools of one name",
            s.execute(|it| it.tools = tools(&["look", "feel", "look"])),
            &[("tools.host_tools[2].name", F::Conflict)],
        ),
        invalid(
            "513 tools",
            s.execute(|it| {
                it.tools = tools(
                    &(0..513).map(|i| i.to_string()).collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>(),
                )
            }),
            &[("tools", F::TooLarge)],
        ),
        invalid(
            "a schema that is not JSON",
            s.offer(|it| it.input_schema = json("{\"type\":")),
            &[(&text, F::NotJson)],
        ),
        invalid("a schema that is a text", s.offer(|it| it.input_schema = json("\"object\"")), &[(&text, F::NotJson)]),
        invalid("a schema over 256 KiB", s.offer(|it| it.input_schema = json(&large)), &[(&text, F::TooLarge)]),
        invalid("a schema with what is no number", s.offer(|it| it.input_schema = Some(nan)), &[(&value, F::Invalid)]),
        invalid(
            "a schema that is neither",
            s.offer(|it| it.input_schema = Some(Default::default())),
            &[(schema, F::Invalid)],
        ),
        invalid(
            "a tool of more than a day",
            s.offer(|it| it.timeout = seconds(86_401)),
            &[("tools.host_tools[0].timeout", F::OutOfRange)],
        ),
        invalid(
            "a tool that is a message",
            s.offer(|it| it.set_category(ContextCategory::User)),
            &[("tools.host_tools[0].category", F::Unsupported)],
        ),
        invalid(
            "bad limits of an output",
            s.offer(|it| it.output_limits = Some(limits)),
            &[
                ("tools.host_tools[0].output_limits.max_lines", F::OutOfRange),
                ("tools.host_tools[0].output_limits.keep", F::Unknown),
            ],
        ),
        invalid(
            "a provider's tool without anything",
            s.execute(|it| it.tools = Some(provider)),
            &[
                ("tools.provider_tools[0].provider", F::Required),
                ("tools.provider_tools[0].definition_json", F::NotJson),
            ],
        ),
    ]
}

fn configurations(s: &Scene) -> Vec<Row> {
    let block = |name: &str| pb::PinnedBlock { name: name.into(), text: "text".into(), ..Default::default() };
    let large = pb::PinnedBlock { text: "x".repeat(256 * KIB + 1), ..block("a") };
    let summary = pb::PinnedBlock { category: ContextCategory::Summary.into(), ..block("a") };
    let policy = |change: fn(&mut pb::Policy)| {
        let mut policy = pb::Policy::default();
        change(&mut policy);
        s.configure(|it| it.policy_overrides = Some(policy))
    };
    vec![
        invalid(
            "a long system prompt",
            s.configure(|it| it.system_prompt = "x".repeat(MIB + 1)),
            &[("session.system_prompt", F::TooLarge)],
        ),
        invalid(
            "65 pinned blocks",
            s.configure(|it| it.pinned_blocks = (0..65).map(|i| block(&i.to_string())).collect()),
            &[("session.pinned_blocks", F::TooLarge)],
        ),
        invalid(
            "a block without a name",
            s.configure(|it| it.pinned_blocks = vec![block("")]),
            &[("session.pinned_blocks[0].name", F::Required)],
        ),
        invalid(
            "two blocks of one name",
            s.configure(|it| it.pinned_blocks = vec![block("a"), block("a")]),
            &[("session.pinned_blocks[1].name", F::Conflict)],
        ),
        invalid(
            "a block over 256 KiB",
            s.configure(|it| it.pinned_blocks = vec![large]),
            &[("session.pinned_blocks[0].text", F::TooLarge)],
        ),
        invalid(
            "a block that is a summary",
            s.configure(|it| it.pinned_blocks = vec![summary]),
            &[("session.pinned_blocks[0].category", F::Unsupported)],
        ),
        invalid(
            "a policy's name too long",
            s.configure(|it| it.policy = "x".repeat(129)),
            &[("session.policy", F::TooLarge)],
        ),
        invalid(
            "a time to live of 59 seconds",
            s.configure(|it| it.ttl = Some(prost_types::Duration { seconds: 59, nanos: 0 })),
            &[("session.ttl", F::OutOfRange)],
        ),
        invalid(
            "a time to live of 3,651 days",
            s.configure(|it| it.ttl = Some(prost_types::Duration { seconds: 3_651 * 86_400, nanos: 0 })),
            &[("session.ttl", F::OutOfRange)],
        ),
        invalid("NUL in a model", s.configure(|it| it.model = "scripted/\0".into()), &[("session.model", F::Invalid)]),
        invalid(
            "negative numbers in a policy",
            policy(|it| (it.output_reserve, it.context_window) = (Some(-1), Some(-1))),
            &[
                ("session.policy_overrides.output_reserve", F::OutOfRange),
                ("session.policy_overrides.context_window", F::OutOfRange),
            ],
        ),
        invalid(
            "a share above 1",
            policy(|it| it.compaction.get_or_insert_default().threshold = Some(1.5)),
            &[("session.policy_overrides.compaction.threshold", F::OutOfRange)],
        ),
        invalid(
            "more restarts than there may be",
            policy(|it| it.compaction.get_or_insert_default().guard_max_restarts = Some(101)),
            &[("session.policy_overrides.compaction.guard_max_restarts", F::OutOfRange)],
        ),
        invalid(
            "summaries by what names no model",
            policy(|it| it.compaction.get_or_insert_default().summary_model = "notes".into()),
            &[("session.policy_overrides.compaction.summary_model", F::Invalid)],
        ),
        invalid(
            "a queue without room",
            policy(|it| it.queue.get_or_insert_default().max_pending = Some(0)),
            &[("session.policy_overrides.queue.max_pending", F::OutOfRange)],
        ),
        invalid(
            "limits of no tool",
            policy(|it| _ = it.tools.get_or_insert_default().output_limits.insert("a b".into(), Default::default())),
            &[("session.policy_overrides.tools.output_limits[\"a b\"]", F::Invalid)],
        ),
    ]
}

fn lists(s: &Scene) -> Vec<Row> {
    vec![
        invalid("a view that is not known", s.list_messages(|it| it.view = 99), &[("view", F::Unknown)]),
        invalid("an export in no shape", s.export(|it| it.format = 0), &[("format", F::Required)]),
        invalid(
            "an export in the shape of this API",
            s.export(|it| it.format = pb::PromptFormat::Neutral.into()),
            &[("format", F::Unsupported)],
        ),
        invalid("an export in a shape that is not known", s.export(|it| it.format = 99), &[("format", F::Unknown)]),
        invalid("an export before the beginning", s.export(|it| it.at_seq = -1), &[("at_seq", F::OutOfRange)]),
        invalid("a negative seq", s.list_messages(|it| it.at_seq = -1), &[("at_seq", F::OutOfRange)]),
        ahead("a list ahead of its session", s.list_events(|it| it.after_seq = s.last_seq + 1), s.last_seq),
        ahead("a watch ahead of its session", s.watch(|it| it.after_seq = s.last_seq + 1), s.last_seq),
        ahead(
            "a repeated turn ahead of its session",
            s.execute(|it| *it = pb::ExecuteTurnRequest { after_seq: 999, ..s.first.clone() }),
            s.last_seq,
        ),
    ]
}

fn names(s: &Scene) -> Vec<Row> {
    let turn = "TURN_NOT_FOUND";
    vec![
        missing("an unknown turn", s.get_turn(|it| it.turn_id = "none".into()), turn),
        missing("a turn of another session", s.get_turn(|it| it.turn_id = s.waiting.clone()), turn),
        missing("events of an unknown turn", s.list_events(|it| it.turn_id = "none".into()), turn),
        missing("a watch of an unknown turn", s.watch(|it| it.turn_id = "none".into()), turn),
        missing("a cancel of an unknown turn", s.cancel(|it| it.turn_id = "none".into()), turn),
        missing("a turn's unknown model", s.execute(|it| it.model = "scripted/none".into()), "MODEL_NOT_FOUND"),
        missing("a turn's unknown provider", s.execute(|it| it.model = "none/talks".into()), "MODEL_NOT_FOUND"),
        missing("a session's unknown model", s.configure(|it| it.model = "gpt".into()), "MODEL_NOT_FOUND"),
        missing("an unknown policy", s.configure(|it| it.policy = "none".into()), "POLICY_NOT_FOUND"),
        missing(
            "a new session's unknown policy",
            s.execute(|it| it.session.iter_mut().for_each(|it| it.policy = "none".into())),
            "POLICY_NOT_FOUND",
        ),
        refused(
            "a session that exists",
            s.configure(|it| it.session_id = "talked".into()),
            Code::AlreadyExists,
            "SESSION_ALREADY_EXISTS",
        ),
    ]
}

fn wire(s: &Scene) -> Vec<Row> {
    let nameless = vec![pb::Tool::default(); 30];
    let names: Vec<String> = (0..25).map(|i| format!("tools.host_tools[{i}].name")).collect();
    let names: Vec<(&str, F)> = names.iter().map(|name| (name.as_str(), F::Required)).collect();
    let everything = |it: &mut pb::ExecuteTurnRequest| {
        (it.session_id, it.after_seq, it.busy_policy) = ("?".into(), -1, 7);
        it.input.iter_mut().for_each(|it| it.parts.push(text("")));
    };
    let wrong = [
        ("session_id", F::Invalid),
        ("after_seq", F::OutOfRange),
        ("input.parts[1].text", F::Required),
        ("busy_policy", F::Unknown),
    ];
    vec![
        invalid("several mistakes", s.execute(everything), &wrong),
        invalid(
            "30 mistakes, of which 25 are told",
            s.execute(|it| it.tools = Some(pb::ToolSet { host_tools: nameless, ..Default::default() })),
            &names,
        ),
        refused(
            "a message over the limit",
            s.say(text(&"x".repeat(5 * MIB))),
            Code::ResourceExhausted,
            "REQUEST_TOO_LARGE",
        )
        .with("limit_bytes", 4 * MIB),
        invalid("an unfinished message", s.send(EXECUTE_TURN, b"\x0a\x7fshort"), &[]),
        invalid("a text that is not UTF-8", s.send(EXECUTE_TURN, b"\x0a\x02\xff\xfe"), &[]),
        invalid("a field of another type", s.send("contextd.v1.TurnService/WatchEvents", b"\x08\x01"), &[]),
        invalid(
            "bytes that are nothing",
            s.send("contextd.v1.SessionService/CreateSession", b"\xff\xff\xff\xff\xff\xff"),
            &[],
        ),
        invalid("no message at all", s.post(EXECUTE_TURN, ""), &[]),
        invalid("a frame that is cut off", s.post(EXECUTE_TURN, "\0\0\0\0\u{9}short"), &[]),
        invalid("a frame of another kind", s.post(EXECUTE_TURN, "plain text, not a frame"), &[]),
    ]
}

pub(super) fn table(s: &Scene) -> Vec<Row> {
    let tables = [
        identifiers,
        messages,
        turns,
        offers,
        configurations,
        decisions,
        answers,
        starts,
        lists,
        names,
        conflicts::conflicts,
        rules::pages,
        rules::request_ids,
        rules::absent_sessions,
        updates,
        wire,
        models::rows,
        super::context::rows,
        super::history::table,
        super::media::media,
        super::queue::queue,
    ];
    tables.into_iter().flat_map(|table| table(s)).collect()
}

//! Every field and every enum value that an event can have, from the API description: each is found in an event that a
//! client receives, or is listed here with the part of its comment that explains why not. A new field that is never set
//! fails the test.

mod scenes;

use std::collections::{BTreeMap, BTreeSet};

use contextd::pb::{self, DESCRIPTOR_SET};
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumValueDescriptor, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _,
    Value,
};

use crate::harness::{Host, errors::refusal, transcripts::message};

/// The protobuf package of the API.
const PACKAGE: &str = "contextd.v1";

/// Fields that no event has, with the explanation in their comments.
const UNSET: &[(&str, &str)] = &[
    ("Part.step_start", "Neither sent nor accepted"),
    ("Media.data", "In requests"),
    ("JsonSchema.value", "Returned as `json`"),
    ("Blob.create_time", "Set only by PutBlob and GetBlob"),
    ("Message.is_summary", "Not in events"),
    ("Message.compacted_by", "Not set in events"),
    ("Part.compaction_marker", "Not in events"),
];

/// Messages that no event has, because the fields of their type are all in [`UNSET`].
const UNUSED: &[&str] = &["StepStart", "CompactionMarker"];

/// Enum values that these scenes do not produce, with the test in which they occur in an event, or with the explanation
/// in their comments.
const ELSEWHERE: &[(&str, &str)] = &[
    ("CANCEL_CAUSE_DISCONNECTED", "limits::a_turn_without_readers_is_cancelled_if_it_requested_that"),
    ("COMPACTION_STATE_PLANNED", "validate_only"),
    ("CONTEXT_CATEGORY_DEFERRED_TOOLS", "not part of the total"),
    ("CONTEXT_CATEGORY_QUEUED", "not part of the total"),
    ("DROP_REASON_UNREADABLE", "queue::an_undecodable_queued_message_is_dropped_with_a_reason"),
    (
        "FAILURE_REASON_MODEL_NOT_FOUND",
        "removed_models::a_waiting_turn_whose_model_was_removed_fails_when_its_calls_are_overdue",
    ),
    (
        "FAILURE_REASON_POLICY_NOT_FOUND",
        "removed_models::a_waiting_turn_whose_policy_was_removed_gets_its_results_and_fails",
    ),
    ("FAILURE_REASON_POISONED", "resume::a_turn_with_too_many_owners_is_failed"),
    ("TOKEN_BASIS_ACTUAL", "nothing was added to the prompt since that call"),
    ("TOKEN_BASIS_CALIBRATED", "CountTokens only"),
    ("TOKEN_BASIS_TOKENIZER", "CountTokens only"),
];

/// What was found in events.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// `Message.field`, and the kinds of the events in which it was set.
    fields: BTreeMap<String, BTreeSet<String>>,
    values: BTreeSet<String>,
}

impl Seen {
    /// Records each field and enum value of an event.
    fn note(&mut self, pool: &DescriptorPool, event: &pb::Event) {
        let kind = crate::harness::events::kind(event);
        let descriptor = pool.get_message_by_name("contextd.v1.Event").unwrap();
        self.walk(kind, &DynamicMessage::decode(descriptor, &*event.encode_to_vec()).unwrap());
    }

    fn walk(&mut self, kind: &str, message: &DynamicMessage) {
        for (field, value) in message.fields() {
            self.fields.entry(name_of(&field)).or_default().insert(kind.to_owned());
            // The events of a compaction differ by its state, so their fields are also recorded per kind.
            if field.parent_message().name() == "Compaction" {
                self.fields.entry(format!("{kind}: {}", field.name())).or_default();
            }
            self.look_into(kind, &field, value);
        }
    }

    fn look_into(&mut self, kind: &str, field: &FieldDescriptor, value: &Value) {
        match value {
            Value::Message(message) if message.descriptor().package_name() == PACKAGE => self.walk(kind, message),
            Value::EnumNumber(number) => {
                let Kind::Enum(of) = field.kind() else { unreachable!("a number of an enum") };
                self.values.insert(of.get_value(*number).expect("a value that the API names").name().to_owned());
            }
            Value::List(items) => items.iter().for_each(|item| self.look_into(kind, field, item)),
            _ => {}
        }
    }

    /// The fields of a compaction that were found in events of this kind.
    fn of_compaction(&self, kind: &str) -> BTreeSet<&str> {
        let prefix = format!("{kind}: ");
        self.fields.keys().filter_map(|field| field.strip_prefix(&prefix)).collect()
    }
}

fn name_of(field: &FieldDescriptor) -> String {
    format!("{}.{}", field.parent_message().name(), field.name())
}

/// All fields and enum values that can be in an event.
#[derive(Default)]
struct Reachable {
    messages: BTreeSet<String>,
    fields: BTreeMap<String, FieldDescriptor>,
    values: BTreeMap<String, EnumValueDescriptor>,
}

impl Reachable {
    fn visit(&mut self, message: &MessageDescriptor) {
        if message.package_name() != PACKAGE
            || message.is_map_entry()
            || !self.messages.insert(message.name().to_owned())
        {
            return;
        }
        for field in message.fields() {
            match field.kind() {
                Kind::Message(inner) => self.visit(&inner),
                Kind::Enum(of) => {
                    // The value 0 is that of an unset field.
                    let values = of.values().filter(|value| value.number() != 0);
                    self.values.extend(values.map(|value| (value.name().to_owned(), value)));
                }
                _ => {}
            }
            self.fields.insert(name_of(&field), field);
        }
    }
}

/// The comment on the element at this path of a file, as one line.
fn comment(file: &prost_reflect::FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref().expect("comments");
    let at = info.location.iter().find(|location| location.path == path);
    let words = at.map(|location| location.leading_comments().to_owned()).unwrap_or_default();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Row D25
#[tokio::test(flavor = "multi_thread")]
async fn every_event_field_and_value_is_sent_or_listed_as_unused() {
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).unwrap();
    let mut all = Reachable::default();
    all.visit(&pool.get_message_by_name("contextd.v1.Event").unwrap());
    let mut seen = Seen::default();
    for event in scenes::all().await {
        seen.note(&pool, &event);
    }
    let unused = |field: &&String| UNUSED.iter().any(|message| field.starts_with(&format!("{message}.")));
    let unset = |field: &str| UNSET.iter().any(|(unset, _)| *unset == field);
    let dead: Vec<_> =
        all.fields.keys().filter(|it| !seen.fields.contains_key(*it) && !unset(it)).filter(|it| !unused(it)).collect();
    let elsewhere = |value: &str| ELSEWHERE.iter().any(|(named, _)| *named == value);
    let silent: Vec<_> = all.values.keys().filter(|it| !seen.values.contains(*it) && !elsewhere(it)).collect();
    assert!(dead.is_empty() && silent.is_empty(), "never seen in an event: {dead:#?}, {silent:#?}");
    for (name, words) in UNSET {
        let field = all.fields.get(*name).unwrap_or_else(|| panic!("{name} is no field of an event"));
        assert!(!seen.fields.contains_key(*name), "{name} is sent");
        let comment = comment(&field.parent_file(), field.path());
        assert!(comment.contains(words), "the comment of {name} does not say {words:?}: {comment}");
    }
    for (name, shown) in ELSEWHERE {
        let value = all.values.get(*name).unwrap_or_else(|| panic!("{name} is no value of an event"));
        assert!(!seen.values.contains(*name), "{name} is seen here");
        if !is_seen_by(shown, name) {
            let comment = comment(&value.parent_enum().parent_file(), value.path());
            assert!(comment.contains(shown), "{shown} neither sees {name} nor stands in its comment: {comment}");
        }
    }
    check_compactions(&seen);
}

/// Whether the test exists (`file::test`) and its file mentions the value.
fn is_seen_by(test: &str, value: &str) -> bool {
    let Some((file, name)) = test.rsplit_once("::") else {
        return false;
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(file.replace("::", "/"));
    let source =
        std::fs::read_to_string(root.with_extension("rs")).or_else(|_| std::fs::read_to_string(root.join("mod.rs")));
    // PROVIDER_AUTH is ProviderAuth in Rust.
    let camel = |words: &str| -> String {
        words.split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect()
    };
    let named = |source: &str| {
        (0..value.len())
            .any(|at| value[at..].starts_with('_') && source.contains(&format!("::{}", camel(&value[at + 1..]))))
    };
    source.is_ok_and(|source| source.contains(&format!("fn {name}(")) && named(&source))
}

/// Checks the fields that the comments on compaction events document.
fn check_compactions(seen: &Seen) {
    let started = seen.of_compaction("compaction_started");
    for field in
        ["compaction_id", "session_id", "state", "trigger", "strategy", "tokens_before", "limit_tokens", "create_time"]
    {
        assert!(started.contains(field), "compaction_started has no {field}: {started:?}");
    }
    let completed = seen.of_compaction("compaction_completed");
    for field in pb_fields("contextd.v1.Compaction") {
        let later = ["failure", "revert_time"].contains(&field.as_str());
        assert_eq!(completed.contains(field.as_str()), !later, "{field} of compaction_completed: {completed:?}");
    }
    assert!(seen.of_compaction("compaction_failed").contains("failure"));
    assert!(seen.of_compaction("compaction_reverted").contains("revert_time"));
}

fn pb_fields(message: &str) -> Vec<String> {
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).unwrap();
    pool.get_message_by_name(message).unwrap().fields().map(|field| field.name().to_owned()).collect()
}

/// Row D25
#[tokio::test(flavor = "multi_thread")]
async fn values_that_no_event_carries_are_refused_in_requests() {
    let host = Host::with(crate::harness::Options::default()).await;
    host.create(pb::Session { session_id: "s".to_owned(), ..pb::Session::default() }).await;
    let part = |content| pb::Part { content: Some(content), ..pb::Part::default() };
    let rows = [("step_start", part(pb::part::Content::StepStart(pb::StepStart { step: 1 })))];
    for (field, part) in rows {
        let request = crate::harness::transcripts::append("s", vec![message(pb::Role::Assistant, vec![part])]);
        let refused = refusal(&host.try_append(request).await.unwrap_err());
        assert_eq!(refused.reason, "NOT_IMPLEMENTED", "{field}");
        assert!(refused.metadata["field"].ends_with(field), "{refused:?}");
    }
}

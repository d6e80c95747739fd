//! Queued messages are coalesced into one message: a table of all combinations, with the JSON that is sent to the model
//! service.

use std::collections::BTreeMap;

use contextd::{
    context::{coalesce::coalesce, estimate, prompt},
    model::{
        Content, Contents, Generation, InputMessage, Media, Message, MessageId, NewContent, Part, Role, Seq,
        SessionConfig, ToolSet, Transcript,
        media::{BlobRef, Source},
        message::StoredPart,
    },
    provider::openai::{dialect, encode, encode_options::EncodeOptions},
};
use serde_json::Value;

/// The table: by kind and number of messages, the parts that are sent to the service, or only the text.
const TABLE: &str = include_str!("../fixtures/coalescing.json");

/// Numbers of queued messages.
const NUMBERS: [usize; 4] = [1, 2, 3, 12];

fn medium(media_type: &str, name: String, contents: &mut Contents) -> Part {
    let content = NewContent::new(media_type.to_owned(), name.clone().into_bytes());
    contents.insert(content.id().clone(), content.bytes().into());
    let source = Source::Blob(BlobRef { id: content.id().clone(), bytes: content.bytes().len() as u64, pixels: None });
    Part::new(Content::Media(Media { media_type: media_type.to_owned(), source, filename: name }))
}

/// The n-th message of a kind.
fn message(kind: &str, n: usize, contents: &mut Contents) -> InputMessage {
    let said = || Part::text(format!("Message {n}."));
    let mut picture = || medium("image/png", format!("{n}.png"), contents);
    let parts = match kind {
        "text" => vec![said()],
        "images" => vec![said(), picture()],
        "files" => vec![said(), medium("application/pdf", format!("{n}.pdf"), contents)],
        "mixed" if n % 3 == 1 => vec![said()],
        "mixed" if n % 3 == 2 => vec![picture(), said(), Part::text("And more.")],
        "mixed" => vec![medium("application/pdf", format!("{n}.pdf"), contents)],
        "images only" => vec![picture(), medium("image/jpeg", format!("{n}.jpeg"), contents)],
        other => panic!("no kind {other}"),
    };
    InputMessage::new(Role::User, parts)
}

/// The JSON that is sent to the service for a message.
fn sent(said: InputMessage, contents: Contents) -> Value {
    let stored = |part| StoredPart {
        size: estimate::part(&part, Role::User),
        part,
        estimator: estimate::ESTIMATOR.to_owned(),
        pruned: None,
    };
    let message = Message {
        id: MessageId::new("m"),
        turn: None,
        step: 0,
        seq: Seq(1),
        role: said.role,
        parts: said.parts.into_iter().map(stored).collect(),
        overhead: estimate::MESSAGE_OVERHEAD,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        response: None,
        pinned: false,
        metadata: BTreeMap::new(),
        queued: Vec::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
    };
    let transcript = Transcript::new(vec![message]).close().unwrap();
    let generation = Generation::default();
    let asked = prompt::ModelCallSettings {
        provider: "main",
        model: "gpt-4o",
        supports_tools: false,
        max_output_tokens: None,
        generation,
    };
    let mut prompt = prompt::build(&SessionConfig::default(), &ToolSet::default(), transcript, &asked);
    prompt.contents = contents;
    let form = EncodeOptions { dialect: dialect::named("openai").unwrap(), provider: "main", developer: false };
    let mut body: Value = serde_json::from_slice(&encode::request(&prompt, form).0.body).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(body["messages"][0]["role"], "user");
    body["messages"][0]["content"].take()
}

/// Row D8: one part per line, so that the table is readable.
#[test]
fn queued_messages_are_coalesced_as_the_table_says() {
    let mut shapes = BTreeMap::new();
    for kind in ["text", "images", "files", "mixed", "images only"] {
        for number in NUMBERS {
            let mut contents = Contents::default();
            let waiting: Vec<InputMessage> = (1..=number).map(|n| message(kind, n, &mut contents)).collect();
            let merged = coalesce(waiting).unwrap();
            shapes.insert(format!("{kind}, {number:02}"), sent(merged, contents));
        }
    }
    let table: BTreeMap<String, Value> = serde_json::from_str(TABLE).unwrap();
    assert_eq!(shapes.keys().collect::<Vec<_>>(), table.keys().collect::<Vec<_>>());
    for (shape, sent) in &shapes {
        assert_eq!(*sent, table[shape], "{shape}: {sent:#}");
    }
}

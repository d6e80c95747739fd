//! Tests of assembling streamed responses.

use proptest::prelude::*;

use super::*;
use crate::model::{FinishReason, Usage};

fn text(text: &str) -> Chunk {
    Chunk::Text(text.to_owned())
}

fn reasoning(text: &str) -> Chunk {
    Chunk::Reasoning(text.to_owned())
}

fn call(index: u32, id: &str) -> Chunk {
    Chunk::ToolCall { index, id: id.to_owned(), name: "read".to_owned() }
}

fn input(index: u32, json: &str) -> Chunk {
    Chunk::ToolInput { index, json: json.to_owned() }
}

fn metadata(json: &str) -> Chunk {
    Chunk::PartMetadata(json.to_owned())
}

fn call_metadata(index: u32) -> Chunk {
    Chunk::CallMetadata { index, json: "{1}".to_owned() }
}

fn item(kind: &str) -> Chunk {
    Chunk::Item(ProviderItem { kind: kind.to_owned(), json: "{}".to_owned(), ..ProviderItem::default() })
}

fn finish() -> Finish {
    Finish {
        reason: FinishReason::Stop,
        provider_reason: "stop".to_owned(),
        usage: None,
        provider_model: String::new(),
        response_id: String::new(),
        metadata: None,
        prompt_usage: None,
        prompt_fingerprint: None,
    }
}

/// Applies the chunks. New ids are `new0`, `new1` and so on, by index of the chunk.
fn run(taken: &[&str], max_bytes: usize, chunks: Vec<Chunk>) -> Result<(Assembly, Vec<Delta>), MalformedResponse> {
    let taken = taken.iter().map(|id| CallId::new(*id)).collect();
    let mut assembly = Assembly::new(MessageId::new("m1"), taken, max_bytes);
    let mut deltas = Vec::new();
    for (at, chunk) in chunks.into_iter().enumerate() {
        match assembly.apply(chunk, || CallId::new(format!("new{at}")))? {
            Progress::Delta(delta) => deltas.push(delta),
            Progress::NoDelta | Progress::Finished(_) => {}
        }
    }
    Ok((assembly, deltas))
}

/// A compact form of the parts.
fn shown(parts: &[Part]) -> Vec<String> {
    let show = |part: &Part| {
        let content = match &part.content {
            Content::Text(text) => format!("text {text}"),
            Content::Refusal(text) => format!("refusal {text}"),
            Content::Reasoning { text, redacted } => {
                format!("reasoning {text}{}", if *redacted { "<hidden>" } else { "" })
            }
            Content::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
            Content::ToolResult(_) => "result".to_owned(),
            Content::Media(_) => "medium".to_owned(),
            Content::ProviderItem(item) => format!("item {} {}", item.kind, item.json),
            Content::Unknown(part) => part.kind.clone(),
        };
        format!("{content}{}", part.provider_metadata.as_deref().unwrap_or(""))
    };
    parts.iter().map(show).collect()
}

#[test]
fn a_change_of_chunk_kind_starts_a_new_part() {
    let table: Vec<(Vec<Chunk>, Vec<&str>)> = vec![
        (vec![], vec![]),
        (vec![text("a"), text("b")], vec!["text ab"]),
        (vec![reasoning("r"), text("a"), reasoning("s")], vec!["reasoning r", "text a", "reasoning s"]),
        (vec![Chunk::Refusal("n".into()), Chunk::Refusal("o".into())], vec!["refusal no"]),
        (
            vec![text("a"), call(0, "c"), input(0, "{"), input(0, "}"), text("b")],
            vec!["text a", "call c read {}", "text b"],
        ),
        // Empty chunks write nothing and do not start a part.
        (vec![text(""), call(0, "c")], vec!["call c read {}"]),
        (vec![text("a"), reasoning(""), text("b")], vec!["text ab"]),
        // Parallel calls with interleaved arguments.
        (
            vec![call(0, "a"), call(1, "b"), input(1, "[1"), input(0, "[0"), input(1, "]")],
            vec!["call a read [0", "call b read [1]"],
        ),
        // Metadata ends a part.
        (
            vec![reasoning("r"), metadata("{1}"), reasoning("s"), metadata("{2}")],
            vec!["reasoning r{1}", "reasoning s{2}"],
        ),
        (vec![text("a"), metadata("{1}"), metadata("{2}"), text("b")], vec!["text a{2}", "text b"]),
        (vec![reasoning(""), metadata("{1}"), text("a")], vec!["reasoning <hidden>{1}", "text a"]),
        (vec![call(0, "a"), metadata("{1}"), input(0, "{}")], vec!["call a read {}{1}"]),
        // `PartEnded` ends a part, whatever the kind of the next one.
        (vec![text("a"), Chunk::PartEnded, text("b"), Chunk::PartEnded], vec!["text a", "text b"]),
        (vec![reasoning(""), Chunk::PartEnded, text("b"), metadata("{1}")], vec!["text b{1}"]),
        // Metadata reaches its call at any position.
        (
            vec![call(0, "a"), call(1, "b"), text("t"), call_metadata(0)],
            vec!["call a read {}{1}", "call b read {}", "text t"],
        ),
        // A provider item is a complete part.
        (
            vec![text("a"), item("search"), item("found"), text("b")],
            vec!["text a", "item search {}", "item found {}", "text b"],
        ),
    ];
    for (chunks, expected) in table {
        let (assembly, _) = run(&[], 1_000, chunks.clone()).unwrap();
        assert_eq!(shown(&assembly.finish(finish()).parts), expected, "{chunks:?}");
    }
}

#[test]
fn a_call_gets_a_new_id_where_its_own_is_missing_taken_or_unusable() {
    let long = "x".repeat(129);
    let chunks = vec![call(0, ""), call(1, "old"), call(2, "own"), call(3, "own"), call(4, &long), call(5, "a\nb")];
    let (assembly, deltas) = run(&["old"], 1_000, chunks).unwrap();
    let expected = ["new0", "new1", "own", "new3", "new4", "new5"];
    let told = deltas.iter().map(|delta| match &delta.kind {
        DeltaKind::ToolInput { call, name: _ } => call.as_str(),
        DeltaKind::Text | DeltaKind::Reasoning => "",
    });
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let assembled = assembly.finish(finish());
    assert_eq!(assembled.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn a_cancelled_answer_keeps_its_text() {
    let chunks = vec![reasoning("r"), text("a"), call(0, "c"), input(0, "{\"x"), reasoning(""), metadata("{}")];
    let (assembly, _) = run(&[], 1_000, chunks).unwrap();
    assert_eq!(shown(&assembly.parts), ["reasoning r", "text a", "call c read {\"x", "reasoning <hidden>{}"]);
    assert_eq!(shown(&assembly.into_partial()), ["reasoning r", "text a"]);
}

#[test]
fn characters_that_cannot_be_stored_are_replaced_and_flagged() {
    let (assembly, deltas) = run(&[], 1_000, vec![text("a\0"), text("b"), reasoning("\u{fffd}")]).unwrap();
    assert_eq!(deltas[1].offset, 4);
    let parts = assembly.finish(finish()).parts;
    assert_eq!(shown(&parts), ["text a\u{fffd}b", "reasoning \u{fffd}"]);
    assert_eq!(parts.iter().map(|part| part.sanitized).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn what_is_replaced_beside_the_text_of_a_part_flags_it_too() {
    let named = |name: &str| Chunk::ToolCall { index: 0, id: "c".to_owned(), name: name.to_owned() };
    let about_call = |json: &str| Chunk::CallMetadata { index: 0, json: json.to_owned() };
    let cited = |title: &str| Chunk::Citation(Citation { title: title.to_owned(), ..Citation::default() });
    let item = |title: &str| Chunk::Item(ProviderItem { title: title.to_owned(), ..ProviderItem::default() });
    let table = [
        (vec![text("a"), metadata("{}")], false),
        (vec![text("a"), metadata("\0")], true),
        (vec![named("read")], false),
        (vec![named("re\0ad")], true),
        (vec![named("read"), about_call("{}")], false),
        (vec![named("read"), about_call("\0")], true),
        (vec![text("a"), cited("t")], false),
        (vec![text("a"), cited("t\0")], true),
        (vec![item("t")], false),
        (vec![item("t\0")], true),
    ];
    for (chunks, expected) in table {
        let told = format!("{chunks:?}");
        let (assembly, _) = run(&[], 1_000, chunks).unwrap();
        let parts = assembly.finish(finish()).parts;
        assert_eq!(parts[0].sanitized, expected, "{told}");
    }
}

#[test]
fn an_answer_has_a_maximum_size() {
    assert!(run(&[], 8, vec![text("1234"), call(0, "c")]).is_ok());
    let table = [
        (vec![text("12345678"), text("9")], MalformedResponse::TooLarge(8)),
        (vec![text("12345"), call(0, "c")], MalformedResponse::TooLarge(8)),
        (vec![text("1234"), metadata("56789")], MalformedResponse::TooLarge(8)),
        (vec![call(0, "c"), call(0, "c")], MalformedResponse::RepeatedCall(0)),
        (vec![call(0, "c"), input(1, "{}")], MalformedResponse::UnknownCall(1)),
        (vec![metadata("{}")], MalformedResponse::StrayMetadata),
    ];
    for (chunks, expected) in table {
        assert_eq!(run(&[], 8, chunks.clone()).map(|_| ()), Err(expected), "{chunks:?}");
    }
    let calls = |count| (0..count).map(|index| call(index, "")).collect();
    assert!(run(&[], 10_000, calls(128)).is_ok());
    assert_eq!(run(&[], 10_000, calls(129)).map(|_| ()), Err(MalformedResponse::TooManyCalls));
    let parts = |count| (0..count).flat_map(|_| [reasoning(""), metadata("")]).collect();
    assert!(run(&[], 0, parts(4_096)).is_ok());
    assert_eq!(run(&[], 0, parts(4_097)).map(|_| ()), Err(MalformedResponse::TooManyParts));
}

#[test]
fn a_malformed_answer_is_a_failed_call() {
    let error = MalformedResponse::TooLarge(8).into_error("scripted");
    assert_eq!(
        (error.kind, error.to_string().as_str()),
        (Kind::Broken, "scripted: response too large: more than 8 bytes")
    );
}

fn any_chunk() -> impl Strategy<Value = Chunk> {
    prop_oneof![
        "[aé\\x00]{0,3}".prop_map(Chunk::Text),
        "[bü]{0,3}".prop_map(Chunk::Reasoning),
        "[c]{0,2}".prop_map(Chunk::Refusal),
        (0u32..3).prop_map(|index| call(index, "same")),
        (0u32..3, "[0-9]{1,3}").prop_map(|(index, json)| input(index, &json)),
        Just(metadata("{}")),
        Just(Chunk::PartEnded),
        (0u32..3).prop_map(|index| Chunk::CallMetadata { index, json: "{}".to_owned() }),
        Just(Chunk::Citation(Citation::default())),
        Just(Chunk::Item(ProviderItem::default())),
    ]
}

proptest! {
    #[test]
    fn deltas_add_up_to_the_parts(chunks in proptest::collection::vec(any_chunk(), 0..30)) {
        let mut assembly = Assembly::new(MessageId::new("m1"), BTreeSet::new(), 10_000);
        let mut texts: Vec<String> = Vec::new();
        for (at, chunk) in chunks.into_iter().enumerate() {
            let Ok(Progress::Delta(delta)) = assembly.apply(chunk, || CallId::new(format!("new{at}"))) else { continue };
            let part = delta.part as usize;
            texts.resize(texts.len().max(part + 1), String::new());
            prop_assert_eq!(delta.offset as usize, texts[part].len());
            texts[part].push_str(&delta.text);
        }
        let parts = assembly.parts.clone();
        texts.resize(texts.len().max(parts.len()), String::new());
        let written = parts.iter().map(|part| match &part.content {
            Content::Text(text) | Content::Refusal(text) | Content::Reasoning { text, .. } => text.clone(),
            Content::ToolCall(call) => call.arguments.clone(),
            Content::ProviderItem(_) => String::new(),
            Content::ToolResult(_) | Content::Media(_) | Content::Unknown(_) => "never".to_owned(),
        });
        prop_assert_eq!(written.collect::<Vec<_>>(), texts);
        let ids: BTreeSet<_> = assembly.clone().finish(finish()).calls.into_iter().map(|call| call.id).collect();
        prop_assert_eq!(ids.len(), assembly.finish(finish()).calls.len());
    }
}

#[test]
fn a_citation_belongs_to_the_text_that_was_written_last() {
    let cite = |title: &str| Chunk::Citation(Citation { title: title.to_owned(), ..Citation::default() });
    let chunks = vec![text("a"), cite("1"), Chunk::PartEnded, text("b"), cite("2"), text("c")];
    let (assembly, _) = run(&[], 1_000, chunks).unwrap();
    let parts = assembly.finish(finish()).parts;
    let titles = |part: &Part| part.citations.iter().map(|citation| citation.title.clone()).collect::<Vec<_>>();
    assert_eq!(parts.iter().map(titles).collect::<Vec<_>>(), [["1"], ["2"]]);
    assert_eq!(run(&[], 1_000, vec![reasoning("r"), cite("1")]).unwrap_err(), MalformedResponse::StrayCitation);
}

#[test]
fn calls_of_the_providers_tools_are_counted_with_the_usage() {
    let check = |kinds: &[&str], reported: u32, expected: u32| {
        let finish = Finish { usage: Some(Usage { provider_tool_calls: reported, ..Usage::default() }), ..finish() };
        let chunks = kinds.iter().map(|kind| item(kind)).collect();
        let (assembly, _) = run(&[], usize::MAX, chunks).expect("an answer");
        let answer = assembly.finish(finish);
        let counted = answer.finish.usage.map(|usage| usage.provider_tool_calls);
        assert_eq!(counted, Some(expected), "{kinds:?}, {reported} reported");
    };
    check(&["server_tool_use", "web_search_tool_result"], 0, 1);
    check(&["web_search_call", "reasoning", "code_interpreter_call"], 1, 2);
    check(&["executableCode", "codeExecutionResult", "toolCall"], 0, 2);
    check(&["mcp_list_tools", "mcp_approval_request"], 0, 0);
    check(&[], 3, 3);
}

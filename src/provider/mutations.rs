//! Mutates recorded responses in the ways that broken services and gateways do. Each must decode to
//! the correct response or to a typed error: a response that is taken as complete never lacks or
//! duplicates streamed content.
//!
//! The correct response is the recorded one, or what a strict reader makes of the mutated stream,
//! where the stream does not contradict itself.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    anthropic,
    assemble::{AssembledResponse, Assembly, Progress},
    gemini,
    http::{Decoder, sse},
    openai,
    recordings::{self, Random},
    responses,
};
use crate::model::{CallId, Content, MessageId};

/// Number of mutated recordings for each protocol.
const ROUNDS: usize = 2_000;

/// Longer recordings, in bytes, are not mutated.
const MAX_RECORDING_BYTES: usize = 24 << 10;

/// Number of failures to print.
const SHOWN: usize = 8;

/// A way to change a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mutation {
    /// The numbers that tell which item an event belongs to are missing.
    DropNumbers,
    DropMarker,
    /// The whole response arrives in the first event.
    AtOnce,
    /// An event is repeated.
    Duplicate,
    /// Two events are swapped.
    Swap,
    /// The names of tool calls are missing.
    DropNames,
    DropEvent,
    Truncate,
}

const MUTATIONS: [Mutation; 8] = [
    Mutation::DropNumbers,
    Mutation::DropMarker,
    Mutation::AtOnce,
    Mutation::Duplicate,
    Mutation::Swap,
    Mutation::DropNames,
    Mutation::DropEvent,
    Mutation::Truncate,
];

/// The content of a response, for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ResponseContent {
    text: String,
    reasoning: String,
    refusal: String,
    /// Names and arguments, sorted.
    calls: Vec<(String, String)>,
    /// Number of parts that only the service can read.
    items: usize,
}

impl ResponseContent {
    fn of(answer: &AssembledResponse) -> Self {
        let mut said = Self::default();
        for part in &answer.parts {
            match &part.content {
                Content::Text(text) => said.text.push_str(text),
                Content::Reasoning { text, .. } => said.reasoning.push_str(text),
                Content::Refusal(text) => said.refusal.push_str(text),
                Content::ToolCall(call) => said.call(&call.name, &call.arguments),
                Content::ProviderItem(_) => said.items += 1,
                Content::Media(_) | Content::ToolResult(_) | Content::Unknown(_) => {}
            }
        }
        said.sorted()
    }

    fn call(&mut self, name: &str, arguments: &str) {
        let arguments = match serde_json::from_str::<Value>(arguments) {
            Ok(json) => json.to_string(),
            Err(_) if arguments.trim().is_empty() => "{}".to_owned(),
            Err(_) => arguments.to_owned(),
        };
        self.calls.push((name.to_owned(), arguments));
    }

    /// Sorts the calls and trims trailing spaces, which services leave out when they repeat a text.
    fn sorted(mut self) -> Self {
        self.calls.sort();
        for text in [&mut self.text, &mut self.reasoning, &mut self.refusal] {
            text.truncate(text.trim_end().len());
        }
        self
    }
}

/// A protocol: how its streams are mutated, and its strict reader.
#[derive(Debug, Clone, Copy)]
struct Protocol {
    dialect: &'static str,
    /// The field that identifies items, where it is an integer.
    number: &'static str,
    /// Whether the `name` of this object is the name of a tool call.
    named: fn(&Value) -> bool,
    is_end: fn(&sse::Event) -> bool,
    at_once: fn(&[sse::Event]) -> Option<Vec<sse::Event>>,
    /// Returns `None` if the stream contradicts itself, or is one that this reader does not
    /// support.
    read: fn(&[Value]) -> Option<ResponseContent>,
}

/// Mutates recordings of a protocol, and compares what its decoder returns with the correct
/// response.
fn check<D: Decoder>(protocol: Protocol, decoder: impl Fn(&str) -> D) {
    let read = |body: &[u8]| (protocol.read)(&payloads(&recordings::events([body])));
    let recordings: Vec<_> = recordings::answers(protocol.dialect, &decoder)
        .into_iter()
        .filter(|(_, body, _)| body.len() <= MAX_RECORDING_BYTES)
        .map(|(file, body, answer)| (file, body, ResponseContent::of(&answer)))
        .collect();
    let all = recordings.len();
    let recordings: Vec<_> =
        recordings.into_iter().filter(|(_, body, said)| read(body).as_ref() == Some(said)).collect();
    let known = recordings.len();
    assert!(known * 3 > all * 2, "{known} of {all} recordings are plain");
    let mut random = Random::new(0x6d75_7461);
    let mut outcomes: BTreeMap<Mutation, [usize; 2]> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut rounds = 0;
    while rounds < ROUNDS {
        let (file, body, said) = &recordings[random.below(known)];
        let mutation = MUTATIONS[random.below(MUTATIONS.len())];
        let Some(changed) = protocol.mutate(mutation, body, &mut random) else {
            continue;
        };
        rounds += 1;
        let outcome = outcomes.entry(mutation).or_default();
        match answer(decoder(file), &changed) {
            Err(_) => outcome[1] += 1,
            Ok(made) if made == *said || read(&changed).is_some_and(|right| made == right) => {
                outcome[0] += 1;
            }
            Ok(made) => failures.push(format!(
                "{mutation:?} {file}\n  made  {made:?}\n  right {said:?} or {:?}\n{}",
                read(&changed),
                String::from_utf8_lossy(&changed[..changed.len().min(3_000)]),
            )),
        }
    }
    let (shown, failed) = (failures.len().min(SHOWN), failures.len());
    assert!(
        failures.is_empty(),
        "{failed} of {ROUNDS} are wrong; right and refused: {outcomes:?}\n{}",
        failures[..shown].join("\n\n")
    );
    // Otherwise a decoder that rejects everything would pass.
    let right: usize = outcomes.values().map(|[right, _]| right).sum();
    assert!(right * 3 > ROUNDS, "right and refused: {outcomes:?}");
    eprintln!("{}: right and refused: {outcomes:?}", protocol.dialect);
}

/// Decodes a stream. Returns the response that would be committed, or the error.
fn answer(decoder: impl Decoder, body: &[u8]) -> Result<ResponseContent, String> {
    let (chunks, result) = recordings::decode(decoder, [body]);
    result.map_err(|fault| fault.message)?;
    let mut assembly = Assembly::new(MessageId::new("m"), [].into(), 4 << 20);
    for (made, chunk) in chunks.into_iter().enumerate() {
        let applied = assembly.apply(chunk, || CallId::new(format!("made_{made}")));
        match applied.map_err(|error| error.to_string())? {
            Progress::Finished(finish) => return Ok(ResponseContent::of(&assembly.finish(finish))),
            Progress::NoDelta | Progress::Delta(_) => {}
        }
    }
    Err("no end".to_owned())
}

impl Protocol {
    /// Returns the mutated stream. Returns `None` if the mutation does not change it.
    fn mutate(self, mutation: Mutation, body: &[u8], random: &mut Random) -> Option<Vec<u8>> {
        let mut events = recordings::events([body]);
        let end = events.iter().position(self.is_end).unwrap_or(events.len());
        match mutation {
            Mutation::Truncate => return Some(body[..random.below(body.len())].to_vec()),
            Mutation::DropNumbers => {
                if !change(&mut events, &|value| drop_number(value, self.number)) {
                    return None;
                }
            }
            Mutation::DropNames => {
                if !change(&mut events, &|value| drop_name(value, self.named)) {
                    return None;
                }
            }
            Mutation::DropMarker if end == events.len() => return None,
            Mutation::DropMarker => drop(events.remove(end)),
            Mutation::AtOnce => events = (self.at_once)(&events)?,
            Mutation::Duplicate => {
                let at = random.below(end.min(events.len() - 1) + 1);
                events.insert(at, events[at].clone());
            }
            Mutation::Swap if end < 2 => return None,
            Mutation::Swap => {
                let at = random.below(end - 1);
                events.swap(at, at + 1);
            }
            Mutation::DropEvent if end == 0 => return None,
            Mutation::DropEvent => drop(events.remove(random.below(end))),
        }
        let changed = written(&events);
        (changed != written(&recordings::events([body]))).then_some(changed)
    }
}

/// Serializes events as a stream.
fn written(events: &[sse::Event]) -> Vec<u8> {
    let mut body = String::new();
    for sse::Event { name, data } in events {
        if !name.is_empty() {
            body.push_str(&format!("event: {name}\n"));
        }
        for line in data.lines() {
            body.push_str(&format!("data: {line}\n"));
        }
        body.push('\n');
    }
    body.into_bytes()
}

fn payloads(events: &[sse::Event]) -> Vec<Value> {
    let read = |event: &sse::Event| serde_json::from_str(&event.data).unwrap_or_default();
    events.iter().map(read).collect()
}

fn event(payload: &Value) -> sse::Event {
    sse::Event { name: payload["type"].as_str().unwrap_or_default().to_owned(), data: payload.to_string() }
}

/// Changes the payload of each event. Returns whether any of them changed.
fn change(events: &mut [sse::Event], change: &dyn Fn(&mut Value) -> bool) -> bool {
    let mut changed = false;
    for event in events {
        if let Ok(mut payload) = serde_json::from_str::<Value>(&event.data)
            && change(&mut payload)
        {
            event.data = payload.to_string();
            changed = true;
        }
    }
    changed
}

/// Removes the field at every depth where it is a number.
fn drop_number(value: &mut Value, number: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let own = fields.get(number).is_some_and(Value::is_number);
            if own {
                fields.remove(number);
            }
            fields.values_mut().fold(own, |changed, value| drop_number(value, number) | changed)
        }
        Value::Array(values) => values.iter_mut().fold(false, |changed, value| drop_number(value, number) | changed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Removes the names of tool calls.
fn drop_name(value: &mut Value, named: fn(&Value) -> bool) -> bool {
    let mut changed = false;
    if named(value)
        && let Value::Object(fields) = value
    {
        changed |= fields.remove("name").is_some();
    }
    match value {
        Value::Object(fields) => fields.values_mut().fold(changed, |changed, value| drop_name(value, named) | changed),
        Value::Array(values) => values.iter_mut().fold(changed, |changed, value| drop_name(value, named) | changed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => changed,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Chat Completions.
const CHAT: Protocol = Protocol {
    dialect: "openai_chat",
    number: "index",
    named: |value| value.get("arguments").is_some(),
    is_end: |event| event.data.trim() == "[DONE]",
    at_once: chat_at_once,
    read: chat,
};

/// The assembled fragments of tool calls: number, id, name and arguments.
type Fragments = Vec<(i64, String, String, String)>;

fn chat(payloads: &[Value]) -> Option<ResponseContent> {
    let (mut said, mut calls) = (ResponseContent::default(), Fragments::new());
    for payload in payloads {
        for choice in list(&payload["choices"]) {
            if choice["index"].as_i64().unwrap_or(0) != 0 {
                continue;
            }
            let delta = &choice["delta"];
            if delta.get("function_call").is_some_and(Value::is_object) {
                return None;
            }
            match &delta["content"] {
                Value::String(text) => said.text.push_str(text),
                Value::Array(parts) => {
                    for part in parts {
                        said.text.push_str(text(&part["text"]));
                        for part in list(&part["thinking"]) {
                            said.reasoning.push_str(text(&part["text"]));
                        }
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
            }
            said.refusal.push_str(text(&delta["refusal"]));
            let thought = [&delta["reasoning_content"], &delta["reasoning"]];
            let thought = thought.map(text).into_iter().find(|text| !text.is_empty());
            said.reasoning.push_str(thought.unwrap_or_default());
            for fragment in list(&delta["tool_calls"]) {
                join(&mut calls, fragment)?;
            }
        }
    }
    for (_, _, name, arguments) in &calls {
        if name.is_empty() {
            return None;
        }
        said.call(name, arguments);
    }
    Some(said.sorted())
}

fn join(calls: &mut Fragments, fragment: &Value) -> Option<()> {
    let number = fragment["index"].as_i64()?;
    let id = text(&fragment["id"]);
    let function = &fragment["function"];
    let at = calls.iter().rposition(|(known, known_id, ..)| {
        *known == number && (id.is_empty() || known_id.is_empty() || known_id == id)
    });
    let at = at.unwrap_or_else(|| {
        calls.push((number, id.to_owned(), String::new(), String::new()));
        calls.len() - 1
    });
    let (_, _, name, arguments) = &mut calls[at];
    if name.is_empty() {
        text(&function["name"]).clone_into(name);
    }
    match &function["arguments"] {
        Value::String(piece) => arguments.push_str(piece),
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => return None,
    }
    Some(())
}

fn chat_at_once(events: &[sse::Event]) -> Option<Vec<sse::Event>> {
    let payloads = payloads(events);
    let said = chat(&payloads)?;
    let mut first = payloads.first()?.clone();
    let calls: Vec<Value> = (0..)
        .zip(&said.calls)
        .map(|(index, (name, arguments))| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function})
        })
        .collect();
    let reasons = payloads.iter().flat_map(|payload| list(&payload["choices"]));
    let reason = reasons.rev().find_map(|choice| choice["finish_reason"].as_str())?;
    let mut delta = json!({"role": "assistant", "content": said.text});
    for (field, words) in [("reasoning_content", said.reasoning), ("refusal", said.refusal)] {
        if !words.is_empty() {
            delta[field] = json!(words);
        }
    }
    if !calls.is_empty() {
        delta["tool_calls"] = json!(calls);
    }
    first["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
    let mut events = vec![event(&first)];
    events[0].name.clear();
    events.push(sse::Event { name: String::new(), data: "[DONE]".to_owned() });
    Some(events)
}

/// Anthropic Messages.
const MESSAGES: Protocol = Protocol {
    dialect: "anthropic",
    number: "index",
    named: |value| value["type"] == "tool_use",
    is_end: |event| event.data.contains(r#""message_stop""#),
    at_once: messages_at_once,
    read: |payloads| {
        let mut said = ResponseContent::default();
        for block in blocks(payloads)? {
            match text(&block["type"]) {
                "text" => said.text.push_str(text(&block["text"])),
                "thinking" => said.reasoning.push_str(text(&block["thinking"])),
                "redacted_thinking" => {}
                "tool_use" if text(&block["name"]).is_empty() => return None,
                "tool_use" => said.call(text(&block["name"]), &arguments(&block)),
                _ => said.items += 1,
            }
        }
        Some(said.sorted())
    },
};

/// The input of a call: the streamed fragments, or the initial input if there are none.
fn arguments(block: &Value) -> String {
    match text(&block["partial_json"]) {
        "" => block["input"].to_string(),
        pieces => pieces.to_owned(),
    }
}

/// Assembles the blocks of a stream.
fn blocks(payloads: &[Value]) -> Option<Vec<Value>> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut open: BTreeMap<i64, usize> = BTreeMap::new();
    for payload in payloads {
        let index = || payload["index"].as_i64();
        match text(&payload["type"]) {
            "message_start" if !blocks.is_empty() => return None,
            "message_start" => blocks.extend_from_slice(list(&payload["message"]["content"])),
            "content_block_start" => {
                blocks.push(payload["content_block"].clone());
                if open.insert(index()?, blocks.len() - 1).is_some() {
                    return None;
                }
            }
            "content_block_delta" => {
                let block = &mut blocks[*open.get(&index()?)?];
                for field in ["text", "thinking", "signature", "partial_json"] {
                    if let Some(piece) = payload["delta"][field].as_str() {
                        block[field] = json!(format!("{}{piece}", text(&block[field])));
                    }
                }
            }
            "content_block_stop" => drop(open.remove(&index()?)),
            _ => {}
        }
    }
    Some(blocks)
}

fn messages_at_once(events: &[sse::Event]) -> Option<Vec<sse::Event>> {
    let payloads = payloads(events);
    let mut blocks = blocks(&payloads)?;
    for block in &mut blocks {
        if block["partial_json"].is_string() {
            block["input"] = serde_json::from_str(text(&block["partial_json"])).ok()?;
        }
        block.as_object_mut()?.remove("partial_json");
    }
    let of = |kind: &str| payloads.iter().find(|payload| payload["type"] == kind);
    let mut first = of("message_start")?.clone();
    first["message"]["content"] = json!(blocks);
    let rest = [of("message_delta")?, of("message_stop")?];
    Some([&first].into_iter().chain(rest).map(event).collect())
}

/// The Responses API.
const RESPONSES: Protocol = Protocol {
    dialect: "openai_responses",
    number: "output_index",
    named: |value| value["type"] == "function_call",
    is_end: |event| {
        let ends = ["completed", "incomplete", "done"];
        ends.iter().any(|end| event.data.contains(&format!(r#""type":"response.{end}""#)))
            || ends.iter().any(|end| event.name == format!("response.{end}"))
    },
    at_once: |events| {
        let last = events.iter().find(|event| (RESPONSES.is_end)(event))?;
        let payload: Value = serde_json::from_str(&last.data).ok()?;
        let is_whole = !list(&payload["response"]["output"]).is_empty();
        is_whole.then(|| vec![last.clone()])
    },
    read: responses_to_the_letter,
};

/// The content of a Responses API item in each form in which a stream repeats it: as deltas, as
/// complete texts, as a complete item, and in the complete response.
#[derive(Debug, Default)]
struct Versions {
    kind: String,
    name: String,
    words: BTreeMap<&'static str, [String; 4]>,
}

impl Versions {
    fn add(&mut self, voice: &'static str, version: usize, words: &Value) {
        self.words.entry(voice).or_default()[version].push_str(text(words));
    }

    fn item(&mut self, item: &Value, version: usize) {
        text(&item["type"]).clone_into(&mut self.kind);
        if !text(&item["name"]).is_empty() {
            text(&item["name"]).clone_into(&mut self.name);
        }
        self.add("arguments", version, &item["arguments"]);
        for part in list(&item["summary"]) {
            self.add("summary", version, &part["text"]);
        }
        for part in list(&item["content"]) {
            let voice = if item["type"] == "reasoning" { "reasoning" } else { "text" };
            self.add(voice, version, &part["text"]);
            self.add("refusal", version, &part["refusal"]);
        }
    }

    /// The text of one kind. Returns `None` if the forms differ.
    fn words(&self, voice: &str) -> Option<String> {
        let versions = self.words.get(voice).into_iter().flatten();
        let mut said = versions.filter(|words| !words.is_empty());
        let Some(first) = said.next() else {
            return Some(String::new());
        };
        said.all(|words| words == first).then(|| first.clone())
    }
}

fn responses_to_the_letter(payloads: &[Value]) -> Option<ResponseContent> {
    let mut items: BTreeMap<i64, Versions> = BTreeMap::new();
    let mut done: BTreeMap<i64, usize> = BTreeMap::new();
    for payload in payloads {
        let kind = text(&payload["type"]).trim_start_matches("response.");
        if let "completed" | "incomplete" | "done" = kind {
            for (index, item) in (0..).zip(list(&payload["response"]["output"])) {
                items.entry(index).or_default().item(item, 3);
            }
            break;
        }
        let (voice, version, words) = match kind {
            "output_item.added" | "output_item.done" => {
                let index = payload["output_index"].as_i64()?;
                let item = items.entry(index).or_default();
                if kind == "output_item.done" {
                    *done.entry(index).or_default() += 1;
                    item.item(&payload["item"], 2);
                } else {
                    item.item(&json!({"type": payload["item"]["type"], "name": payload["item"]["name"]}), 2);
                }
                continue;
            }
            "output_text.delta" => ("text", 0, &payload["delta"]),
            "output_text.done" => ("text", 1, &payload["text"]),
            "refusal.delta" => ("refusal", 0, &payload["delta"]),
            "refusal.done" => ("refusal", 1, &payload["refusal"]),
            "reasoning_summary_text.delta" => ("summary", 0, &payload["delta"]),
            "reasoning_summary_text.done" => ("summary", 1, &payload["text"]),
            "reasoning_text.delta" => ("reasoning", 0, &payload["delta"]),
            "reasoning_text.done" => ("reasoning", 1, &payload["text"]),
            "function_call_arguments.delta" => ("arguments", 0, &payload["delta"]),
            "function_call_arguments.done" => ("arguments", 1, &payload["arguments"]),
            _ => continue,
        };
        let index = payload["output_index"].as_i64()?;
        items.entry(index).or_default().add(voice, version, words);
    }
    let mut said = ResponseContent::default();
    for item in items.values() {
        match item.kind.as_str() {
            "message" | "reasoning" => {}
            "function_call" if item.name.is_empty() => return None,
            "function_call" => said.call(&item.name, &item.words("arguments")?),
            "" => return None,
            _ => said.items += 1,
        }
        said.text.push_str(&item.words("text")?);
        said.refusal.push_str(&item.words("refusal")?);
        said.reasoning.push_str(&item.words("summary")?);
        said.reasoning.push_str(&item.words("reasoning")?);
    }
    done.values().all(|times| *times == 1).then(|| said.sorted())
}

/// Gemini.
const GEMINI: Protocol = Protocol {
    dialect: "gemini",
    number: "index",
    named: |value| value.get("args").is_some(),
    // Gemini has no end marker: the last event is dropped instead.
    is_end: |event| event.data.contains(r#""finishReason""#),
    at_once: |events| {
        let payloads = payloads(events);
        let mut first = payloads.last()?.clone();
        let parts: Vec<&Value> = payloads.iter().flat_map(gemini_parts).collect();
        first["candidates"][0]["content"] = json!({"role": "model", "parts": parts});
        let mut events = vec![event(&first)];
        events[0].name.clear();
        Some(events)
    },
    read: |payloads| {
        let mut said = ResponseContent::default();
        for part in payloads.iter().flat_map(gemini_parts) {
            let call = &part["functionCall"];
            match (call.is_object(), part["text"].as_str()) {
                (true, _) if text(&call["name"]).is_empty() => return None,
                (true, _) if !call["args"].is_object() => return None,
                (true, _) => said.call(text(&call["name"]), &call["args"].to_string()),
                (false, Some(words)) if part["thought"] == true => said.reasoning.push_str(words),
                (false, Some(words)) => said.text.push_str(words),
                (false, None) => said.items += 1,
            }
        }
        Some(said.sorted())
    },
};

fn gemini_parts(payload: &Value) -> &[Value] {
    list(&payload["candidates"][0]["content"]["parts"])
}

#[test]
fn no_changed_answer_of_chat_completions_lacks_or_doubles_what_was_streamed() {
    check(CHAT, |file| {
        let name = file.split('/').next().unwrap_or_default();
        let dialect = openai::dialect::named(name).unwrap_or(&openai::dialect::COMPATIBLE);
        openai::decode::Decoder::new(dialect, None)
    });
}

#[test]
fn no_changed_answer_of_messages_lacks_or_doubles_what_was_streamed() {
    check(MESSAGES, |_| anthropic::decode::Decoder::new(None));
}

#[test]
fn no_changed_answer_of_responses_lacks_or_doubles_what_was_streamed() {
    check(RESPONSES, |file| {
        let name = match file.split('/').next().unwrap_or_default() {
            "openai-responses" => "openai",
            folder => folder,
        };
        responses::decode::Decoder::new(responses::dialect::named(name).expect("a dialect"))
    });
}

#[test]
fn no_changed_answer_of_gemini_lacks_or_doubles_what_was_streamed() {
    check(GEMINI, |_| gemini::decode::Decoder::default());
}

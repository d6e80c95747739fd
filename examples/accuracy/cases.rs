//! Reads recorded requests back into prompts.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Read,
    path::Path,
};

use contextd::model::{
    CallId, Content, Contents, Generation, Message, MessageId, Part, Prompt, Role, Seq, TokenBasis, TokenCount, Tool,
    ToolCall, ToolCategory, ToolOutcome, ToolResult, Transcript,
    generation::{ReasoningEffort, ToolChoice},
    message::StoredPart,
};
use serde::Deserialize;
use serde_json::Value;

/// A recorded request with the usage that the provider reported.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) id: String,
    /// The protocol: `openai_chat`, `openai_responses`, `anthropic` or `gemini`.
    pub(crate) dialect: String,
    pub(crate) provider: String,
    pub(crate) model: String,
    /// The recording that contains the request.
    pub(crate) file: String,
    /// The date of the recording, for example `2026-08-31`.
    pub(crate) recorded: String,
    /// Tokens of the prompt, as reported.
    pub(crate) input_tokens_actual: u32,
    /// Tokens of the response including reasoning, as reported.
    pub(crate) output_tokens: Option<u32>,
    /// The reasoning tokens among them, if the provider reports them.
    pub(crate) reasoning_tokens: Option<u32>,
    /// The body of the request.
    pub(crate) request: Value,
}

/// A request as contextd would have made it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) recorded: Recorded,
    pub(crate) prompt: Prompt,
}

impl Case {
    /// The provider's name in the templates.
    pub(crate) fn service(&self) -> &str {
        match (self.recorded.dialect.as_str(), self.recorded.provider.as_str()) {
            ("openai_responses", "openai" | "azure" | "chatgpt" | "bedrock-mantle") => "openai-responses",
            (_, other) => other,
        }
    }

    /// Whether the provider has changed its hidden prompt since the recording, so that the request does not represent
    /// current ones. It is scored like any other, but nothing is fitted to it.
    pub(crate) fn is_superseded(&self) -> bool {
        let Recorded { provider, model, recorded, .. } = &self.recorded;
        let thinks = self.prompt.generation.reasoning_effort != Some(ReasoningEffort::None);
        // Since August 2026, DeepSeek adds 79 tokens about the reasoning effort to the prompt of a reasoning model.
        provider == "deepseek" && model.contains("-v4") && thinks && recorded.as_str() < "2026-08"
    }

    /// A key that is equal for requests of the same conversation.
    pub(crate) fn setting(&self) -> String {
        let tools: Vec<_> =
            self.prompt.tools.iter().map(|tool| (&tool.name, &tool.description, &tool.input_schema)).collect();
        format!("{} {} {:?} {tools:?}", self.recorded.provider, self.recorded.model, self.prompt.system)
    }
}

/// Loads the cases of a file, compressed or not.
pub(crate) fn load(path: &Path) -> std::io::Result<Vec<Case>> {
    let bytes = std::fs::read(path)?;
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    } else {
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let case = |line: &str| -> std::io::Result<Case> {
        let recorded: Recorded = serde_json::from_str(line)?;
        let prompt = prompt(&recorded);
        Ok(Case { recorded, prompt })
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(case).collect()
}

/// The prompt of a request.
fn prompt(recorded: &Recorded) -> Prompt {
    let request = &recorded.request;
    let mut reading = Reading::default();
    match recorded.dialect.as_str() {
        "openai_chat" => reading.chat(request),
        "openai_responses" => reading.responses(request),
        "anthropic" => reading.anthropic(request),
        "gemini" => reading.gemini(request),
        other => panic!("{}: dialect {other:?} is not known", recorded.id),
    }
    let Reading { system, messages, tools, choice, .. } = reading;
    let transcript = Transcript::new(messages).close().unwrap_or_else(|error| panic!("{}: {error}", recorded.id));
    Prompt {
        model: recorded.model.clone(),
        system: vec![system.join("\n\n")],
        provider_tools: Vec::new(),
        transcript,
        contents: Contents::default(),
        tools,
        max_output_tokens: None,
        generation: Generation { tool_choice: choice, reasoning_effort: effort(request), ..Generation::default() },
        size: TokenCount { tokens: 0, basis: TokenBasis::Heuristic, margin: 0, estimator: String::new() },
    }
}

/// Whether reasoning was enabled, in the request formats of Anthropic and DeepSeek, of OpenRouter, and of OpenAI.
/// Returns `None` if the request does not specify it.
fn effort(request: &Value) -> Option<ReasoningEffort> {
    let switched = |on| {
        if on { ReasoningEffort::High } else { ReasoningEffort::None }
    };
    if let Some(kind) = request["thinking"]["type"].as_str() {
        return Some(switched(kind != "disabled"));
    }
    let reasoning = &request["reasoning"];
    if let Some(enabled) = reasoning["enabled"].as_bool() {
        return Some(switched(enabled));
    }
    let effort = reasoning["effort"].as_str().or(request["reasoning_effort"].as_str());
    match effort {
        Some(effort) => Some(switched(effort != "none")),
        None => reasoning["max_tokens"].as_u64().map(|most| switched(most > 0)),
    }
}

/// A prompt that is being read. Call ids in recordings are not reliable, so each result is assigned to the oldest open
/// call.
#[derive(Debug, Default)]
struct Reading {
    system: Vec<String>,
    messages: Vec<Message>,
    tools: Vec<Tool>,
    choice: Option<ToolChoice>,
    open: VecDeque<CallId>,
    calls: usize,
}

impl Reading {
    fn chat(&mut self, request: &Value) {
        for message in items(&request["messages"]) {
            let text = text(&message["content"]);
            match message["role"].as_str().unwrap_or_default() {
                "system" | "developer" => self.system(text),
                "user" => self.say(Role::User, vec![Content::Text(text)]),
                "tool" => self.result(text),
                _ => {
                    let mut parts: Vec<Content> = Vec::new();
                    if !text.is_empty() {
                        parts.push(Content::Text(text));
                    }
                    for call in items(&message["tool_calls"]) {
                        let function = &call["function"];
                        parts.push(self.call(&string(&function["name"]), string(&function["arguments"])));
                    }
                    self.say(Role::Assistant, parts);
                }
            }
        }
        for tool in items(&request["tools"]) {
            self.tool(&tool["function"], "parameters");
        }
        self.choose(&request["tool_choice"]);
    }

    fn responses(&mut self, request: &Value) {
        if let Some(instructions) = request["instructions"].as_str() {
            self.system(instructions.to_owned());
        }
        if let Some(input) = request["input"].as_str() {
            self.say(Role::User, vec![Content::Text(input.to_owned())]);
        }
        for item in items(&request["input"]) {
            match (item["type"].as_str().unwrap_or("message"), item["role"].as_str().unwrap_or_default()) {
                ("message", "system" | "developer") => self.system(text(&item["content"])),
                ("message", "assistant") => self.say(Role::Assistant, vec![Content::Text(text(&item["content"]))]),
                ("message", _) => self.say(Role::User, vec![Content::Text(text(&item["content"]))]),
                ("function_call", _) => {
                    let call = self.call(&string(&item["name"]), string(&item["arguments"]));
                    self.join(Role::Assistant, call);
                }
                ("function_call_output", _) => self.result(text(&item["output"])),
                _ => {}
            }
        }
        for tool in items(&request["tools"]) {
            self.tool(tool, "parameters");
        }
        self.choose(&request["tool_choice"]);
    }

    fn anthropic(&mut self, request: &Value) {
        let system = text(&request["system"]);
        if !system.is_empty() {
            self.system(system);
        }
        for message in items(&request["messages"]) {
            let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
            if let Some(text) = message["content"].as_str() {
                self.say(role, vec![Content::Text(text.to_owned())]);
                continue;
            }
            let mut parts: Vec<Content> = Vec::new();
            for block in items(&message["content"]) {
                match block["type"].as_str().unwrap_or_default() {
                    "text" => parts.push(Content::Text(string(&block["text"]))),
                    "tool_use" => parts.push(self.call(&string(&block["name"]), block["input"].to_string())),
                    "tool_result" => self.result(text(&block["content"])),
                    _ => {}
                }
            }
            if !parts.is_empty() {
                self.say(role, parts);
            }
        }
        for tool in items(&request["tools"]) {
            self.tool(tool, "input_schema");
        }
        self.choose(&request["tool_choice"]["type"]);
    }

    fn gemini(&mut self, request: &Value) {
        let system = either(request, &["systemInstruction", "system_instruction"]);
        let system = text(&system["parts"]);
        if !system.is_empty() {
            self.system(system);
        }
        for content in items(&request["contents"]) {
            let role = if content["role"] == "model" { Role::Assistant } else { Role::User };
            let mut parts: Vec<Content> = Vec::new();
            for part in items(&content["parts"]) {
                let call = either(part, &["functionCall", "function_call"]);
                let answer = either(part, &["functionResponse", "function_response"]);
                if call.is_object() {
                    let arguments =
                        call["args"].as_object().map_or("{}".to_owned(), |args| Value::from(args.clone()).to_string());
                    parts.push(self.call(&string(&call["name"]), arguments));
                } else if answer.is_object() {
                    self.result(answer["response"].to_string());
                } else if let Some(text) = part["text"].as_str() {
                    parts.push(Content::Text(text.to_owned()));
                }
            }
            if !parts.is_empty() {
                self.say(role, parts);
            }
        }
        let tools = &request["tools"];
        let sets: Vec<&Value> = if tools.is_object() { vec![tools] } else { items(tools).collect() };
        for set in sets {
            for tool in items(either(set, &["functionDeclarations", "function_declarations"])) {
                self.tool(tool, "parameters");
            }
        }
        let config = either(request, &["toolConfig", "tool_config"]);
        self.choose(&either(config, &["functionCallingConfig", "function_calling_config"])["mode"]);
    }

    /// Providers see the system prompts one after another; contextd has one at the beginning and others inside the
    /// conversation.
    fn system(&mut self, text: String) {
        if self.system.is_empty() && self.messages.is_empty() {
            self.system.push(text);
        } else {
            self.say(Role::System, vec![Content::Text(text)]);
        }
    }

    fn say(&mut self, role: Role, parts: Vec<Content>) {
        self.messages.push(message(role, parts));
    }

    /// Adds a part to the last message if it has that role, otherwise to a new message.
    fn join(&mut self, role: Role, part: Content) {
        match self.messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.parts.push(stored(part)),
            None => self.say(role, vec![part]),
        }
    }

    fn call(&mut self, name: &str, arguments: String) -> Content {
        let id = CallId::new(format!("call-{}", self.calls));
        self.calls += 1;
        self.open.push_back(id.clone());
        Content::ToolCall(ToolCall { id, name: name.to_owned(), arguments })
    }

    fn result(&mut self, text: String) {
        let Some(call) = self.open.pop_front() else {
            return;
        };
        let result = ToolResult {
            call,
            name: String::new(),
            parts: vec![text.into()],
            outcome: ToolOutcome::Success,
            truncation: None,
            display_text: String::new(),
        };
        // Each result is a separate message, as most providers expect.
        self.say(Role::Tool, vec![Content::ToolResult(result)]);
    }

    fn tool(&mut self, definition: &Value, schema: &str) {
        let schema = either(definition, &[schema, "parametersJsonSchema", "parameters_json_schema"]);
        self.tools.push(Tool {
            mcp: None,
            name: string(&definition["name"]),
            description: string(&definition["description"]),
            input_schema: schema.is_object().then(|| schema.to_string()),
            requires_approval: false,
            timeout: None,
            output_limits: None,
            category: ToolCategory::Tools,
            deferred: false,
            strict: definition["strict"].as_bool(),
        });
    }

    fn choose(&mut self, choice: &Value) {
        let mode = choice.as_str().map(str::to_lowercase);
        self.choice = match mode.as_deref() {
            Some("none") => Some(ToolChoice::None),
            Some("required" | "any") => Some(ToolChoice::Required),
            Some("tool") => Some(ToolChoice::Required),
            Some(_) => Some(ToolChoice::Auto),
            None if choice.is_object() => {
                let name = either(either(choice, &["function"]), &["name"]);
                let name = name.as_str().or(choice["name"].as_str());
                Some(name.map_or(ToolChoice::Required, |name| ToolChoice::Tool(name.to_owned())))
            }
            None => None,
        };
    }
}

fn message(role: Role, parts: Vec<Content>) -> Message {
    Message {
        id: MessageId::new("m"),
        turn: None,
        step: 0,
        seq: Seq(1),
        role,
        parts: parts.into_iter().map(stored).collect(),
        overhead: 0,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        response: None,
        pinned: false,
        metadata: BTreeMap::new(),
        is_summary: false,
        compacted_by: None,
        voided_at: None,
        queued: Vec::new(),
    }
}

fn stored(content: Content) -> StoredPart {
    let size = contextd::model::PartSize { tokens: 0, category: contextd::model::Category::User };
    StoredPart { part: Part::new(content), size, estimator: String::new(), pruned: None }
}

/// The elements of a list; nothing for any other value.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The first of these members that is present.
fn either<'a>(value: &'a Value, names: &[&str]) -> &'a Value {
    names.iter().map(|name| &value[*name]).find(|member| !member.is_null()).unwrap_or(&Value::Null)
}

/// All texts in a content value.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text).collect(),
        Value::Object(part) => part.get("text").map(text).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

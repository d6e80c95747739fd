//! The names of spans, and of the attributes of spans and metrics. Names of OpenTelemetry's
//! conventions where there is one, else `contextd.*`.

/// The conventions that the names of spans and metrics are of (GenAI conventions are on top of them).
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev";
/// The target of lines of the audit.
pub const AUDIT: &str = "contextd::audit";
/// The instrumentation scope.
pub const SCOPE: &str = "contextd";

/// Names of spans, beside RPCs (their method), model calls (`chat` and the model), tool calls
/// (`execute_tool` and the tool) and database operations (as `db.operation.name` has them).
pub mod span {
    /// A turn, for as long as it runs on one replica.
    pub const TURN: &str = "invoke_agent";
    /// An attempt at a step.
    pub const STEP: &str = "contextd.step";
    /// With the model, a call of it.
    pub const CHAT: &str = "chat";
    /// With the tool, a call of it that contextd itself makes.
    pub const EXECUTE_TOOL: &str = "execute_tool";
    /// From the request of tools until the last of them was answered.
    pub const TOOL_WAIT: &str = "contextd.tool_wait";
    /// A compaction.
    pub const COMPACTION: &str = "contextd.compaction";
    /// A turn is begun for a message that waits, by no request.
    pub const QUEUE_START: &str = "contextd.queue.start";
}

/// Attributes.
pub mod attribute {
    /// Of spans: the session.
    pub const CONVERSATION: &str = "gen_ai.conversation.id";
    /// Of spans: the turn.
    pub const TURN: &str = "contextd.turn.id";
    /// Of spans: the step, from 1.
    pub const STEP: &str = "contextd.step";
    /// Of spans: the attempt at it, from 1.
    pub const ATTEMPT: &str = "contextd.attempt";
    /// Of spans: the model that answered.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// Of spans: the provider's id of the answer.
    pub const RESPONSE_ID: &str = "gen_ai.response.id";
    /// Of spans: why the answer ended.
    pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// Of spans: seconds until the first of the answer.
    pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
    /// Of spans: tokens of the prompt.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Of spans: tokens of the answer.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// Of spans: those of them that were reasoning.
    pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
    /// Of spans: tokens of the prompt that were read from a cache.
    pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// Of spans: those that were written to it.
    pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
    /// Of spans: tokens of the context before a compaction.
    pub const TOKENS_BEFORE: &str = "contextd.compaction.tokens_before";
    /// Of spans: and after it.
    pub const TOKENS_AFTER: &str = "contextd.compaction.tokens_after";
    /// `grpc`.
    pub const RPC_SYSTEM: &str = "rpc.system.name";
    /// Fully qualified; `_OTHER` for what is no RPC of ours.
    pub const RPC_METHOD: &str = "rpc.method";
    /// Such as `DEADLINE_EXCEEDED`.
    pub const RPC_STATUS: &str = "rpc.response.status_code";
    /// What went wrong, of few values.
    pub const ERROR_TYPE: &str = "error.type";
    /// Of a rejection: the reason of its ErrorInfo, or why a caller was not known. Of a connection: why it
    /// was ended.
    pub const REASON: &str = "contextd.reason";
    /// Of a turn's start: `execute` or `queue`.
    pub const TURN_ORIGIN: &str = "contextd.turn.origin";
    /// `completed`, `cancelled` or `failed`.
    pub const TURN_STATE: &str = "contextd.turn.state";
    /// `before_call` or `after_call`.
    pub const PHASE: &str = "contextd.phase";
    /// Of spans: the tool, as its MCP server calls it.
    pub const TOOL: &str = "gen_ai.tool.name";
    /// Configured name of the MCP server.
    pub const MCP_SERVER: &str = "contextd.mcp.server";
    /// `invoke_agent`, `chat` or `execute_tool`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// Configured name of the provider.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// The model, without its provider.
    pub const MODEL: &str = "gen_ai.request.model";
    /// `input` or `output`.
    pub const TOKEN_TYPE: &str = "gen_ai.token.type";
    /// What a call is for: `turn` or `compaction`.
    pub const PURPOSE: &str = "contextd.purpose";
    /// How something came out.
    pub const RESULT: &str = "contextd.result";
    /// Which of several numbers: `before`, `after` or `saved`.
    pub const MEASURE: &str = "contextd.measure";
    /// Of what kind.
    pub const KIND: &str = "contextd.kind";
    /// `sent` or `heard`.
    pub const DIRECTION: &str = "contextd.direction";
    /// `postgresql`.
    pub const DB_SYSTEM: &str = "db.system.name";
    /// The function of the store, such as `turn::append`.
    pub const DB_OPERATION: &str = "db.operation.name";
    /// `requests` or `reserved`.
    pub const DB_POOL: &str = "db.client.connection.pool.name";
    /// `idle` or `used`.
    pub const DB_STATE: &str = "db.client.connection.state";
    /// Of the build.
    pub const VERSION: &str = "version";
    /// The commit that it was built from, where that is known.
    pub const COMMIT: &str = "git_sha";
    /// The newest migration that it knows.
    pub const SCHEMA_VERSION: &str = "schema_version";
}

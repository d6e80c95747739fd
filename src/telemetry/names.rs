//! The names of spans, and of the attributes of spans and metrics. They follow the OpenTelemetry conventions where one
//! exists, otherwise `contextd.*`.

/// The schema of the conventions that the names follow; the GenAI conventions are additional.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev";
/// The log target of audit lines.
pub const AUDIT: &str = "contextd::audit";
/// The instrumentation scope.
pub const SCOPE: &str = "contextd";

/// Names of spans. Others are derived: an RPC has the name of its method, a model call `chat` and the model, a tool
/// call `execute_tool` and the tool, a database operation its `db.operation.name`.
pub mod span {
    /// A turn, for the time that it runs on one replica.
    pub const TURN: &str = "invoke_agent";
    /// An attempt at a step.
    pub const STEP: &str = "contextd.step";
    /// A model call; followed by the model's name.
    pub const CHAT: &str = "chat";
    /// A tool call that contextd makes; followed by the tool's name.
    pub const EXECUTE_TOOL: &str = "execute_tool";
    /// From the request for tool calls until the last result has arrived.
    pub const TOOL_WAIT: &str = "contextd.tool_wait";
    /// A compaction.
    pub const COMPACTION: &str = "contextd.compaction";
    /// The start of a turn for a queued message, without a request.
    pub const QUEUE_START: &str = "contextd.queue.start";
}

/// Names of attributes.
pub mod attribute {
    /// On spans: the session id.
    pub const CONVERSATION: &str = "gen_ai.conversation.id";
    /// On spans: the turn id.
    pub const TURN: &str = "contextd.turn.id";
    /// On spans: the step, counted from 1.
    pub const STEP: &str = "contextd.step";
    /// On spans: the attempt at the step, counted from 1.
    pub const ATTEMPT: &str = "contextd.attempt";
    /// On spans: the model that the provider reports to have used.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// On spans: the provider's id of the response.
    pub const RESPONSE_ID: &str = "gen_ai.response.id";
    /// On spans: the finish reason of the response.
    pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// On spans: seconds until the first chunk of the response.
    pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
    /// On spans: tokens of the prompt.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// On spans: tokens of the response.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// On spans: the reasoning tokens among the output tokens.
    pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
    /// On spans: tokens of the prompt that were read from the prompt cache.
    pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// On spans: tokens of the prompt that were written to the prompt cache.
    pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
    /// On spans: tokens of the context before a compaction.
    pub const TOKENS_BEFORE: &str = "contextd.compaction.tokens_before";
    /// On spans: tokens of the context after a compaction.
    pub const TOKENS_AFTER: &str = "contextd.compaction.tokens_after";
    /// Always `grpc`.
    pub const RPC_SYSTEM: &str = "rpc.system.name";
    /// The fully qualified method; `_OTHER` if it is not one of our RPCs.
    pub const RPC_METHOD: &str = "rpc.method";
    /// For example `DEADLINE_EXCEEDED`.
    pub const RPC_STATUS: &str = "rpc.response.status_code";
    /// The error type; one of few values.
    pub const ERROR_TYPE: &str = "error.type";
    /// On rejections: the reason of the ErrorInfo, or why authentication failed. On connections: why the server closed
    /// it.
    pub const REASON: &str = "contextd.reason";
    /// What started a turn: `execute` or `queue`.
    pub const TURN_ORIGIN: &str = "contextd.turn.origin";
    /// `completed`, `cancelled` or `failed`.
    pub const TURN_STATE: &str = "contextd.turn.state";
    /// `before_call` or `after_call`.
    pub const PHASE: &str = "contextd.phase";
    /// On spans: the tool, by the name that its MCP server uses.
    pub const TOOL: &str = "gen_ai.tool.name";
    /// The MCP server's configured name.
    pub const MCP_SERVER: &str = "contextd.mcp.server";
    /// `invoke_agent`, `chat` or `execute_tool`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// The provider's configured name.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// The model's name, without the provider.
    pub const MODEL: &str = "gen_ai.request.model";
    /// `input` or `output`.
    pub const TOKEN_TYPE: &str = "gen_ai.token.type";
    /// The purpose of a model call: `turn` or `compaction`.
    pub const PURPOSE: &str = "contextd.purpose";
    /// The outcome of an operation.
    pub const RESULT: &str = "contextd.result";
    /// Distinguishes several values of one instrument: `before`, `after` or `saved`.
    pub const MEASURE: &str = "contextd.measure";
    /// The kind of what was counted.
    pub const KIND: &str = "contextd.kind";
    /// `sent` or `heard`.
    pub const DIRECTION: &str = "contextd.direction";
    /// Always `postgresql`.
    pub const DB_SYSTEM: &str = "db.system.name";
    /// The store function, for example `turn::append`.
    pub const DB_OPERATION: &str = "db.operation.name";
    /// `requests` or `reserved`.
    pub const DB_POOL: &str = "db.client.connection.pool.name";
    /// `idle` or `used`.
    pub const DB_STATE: &str = "db.client.connection.state";
    /// The version of the build.
    pub const VERSION: &str = "version";
    /// The commit of the build, if known.
    pub const COMMIT: &str = "git_sha";
    /// The newest migration that the build knows.
    pub const SCHEMA_VERSION: &str = "schema_version";
}

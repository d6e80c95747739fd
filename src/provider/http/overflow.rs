//! Recognizes messages of services about a prompt that is too long, and distinguishes them from
//! similar ones.

use std::sync::LazyLock;

use regex::{RegexSet, RegexSetBuilder};

/// Phrases about rate limits. Some of them mention tokens too.
const ABOUT_RATES: &[&str] = &[
    r"rate[\s_-]?limit",
    r"too many requests",
    r"per[\s_-]?(?:second|min|minute|hour|day|month)\b",
    r"\b[rt]p[smhd]\b", // requests or tokens in a time
    r"\b(?:hourly|daily|weekly|monthly)\b.{0,40}(?:limit|quota)",
    r"^(throttling error|service unavailable):",
];

/// Phrases about the length of the response or of a single item rather than the prompt.
const ABOUT_SOMETHING_ELSE: &[&str] = &[
    r"string_above_max_length|string too long",
    r"maximum allowed number of output tokens",
    r"max_(?:completion_|output_|new_)?tokens[`'\x22]?:? (?:is|are|value|\S{0,3}\d[\d,]*\S? (?:is|exceeds)) ",
    r"(?:output|completion) token(?:s| limit)",
    r"(?:number|count) of (?:the )?(?:images?|tools?|functions?|messages?|files?|documents?|stop sequences|requests?|choices|parts)\b",
    r"(?:image|audio|video|file|document|attachment|pdf|tool name|schema|metadata|header)s?\b[^.:;]{0,40}(?:exceeds? (?:the )?(?:limit|\d|maximum (?:size|number|of|allowed))|(?:is|are) too (?:large|long|big)|length limit)",
    r"cached content is too small",
];

/// Phrases about the context window that count whatever else the message mentions: vLLM reports
/// that `max_tokens` exceeds the space that the prompt leaves.
const ABOUT_THE_WINDOW: &[&str] = &[
    r"maximum context length",
    r"exceeds? (?:the |this model'?s |the model'?s )?(?:available |maximum )?context (?:window|size|length|limit)",
];

/// Phrases about the length of the prompt, with the services that use them.
const TOO_LONG: &[&str] = &[
    r"prompt (?:is )?too long",                    // Anthropic, Z.ai, Ollama
    r"prompt exceeds max length",                  // Z.ai
    r"request_too_large|request entity too large", // 413 of any server
    // A server's own limit in bytes: Go, Gemini, LiteLLM, axum, and proxies in front of them.
    r"(?:request|payload) (?:body |payload )?(?:size )?(?:is )?too large|^(?:\d+ )?content too large",
    r"request (?:body|payload|size)[^.]{0,20} exceeds the (?:maximum|limit|allowed)",
    r"body: length limit exceeded",
    r"input is too long",                                               // Bedrock
    r"exceeds? context limit",                                          // Anthropic: both together
    r"exceeds the context window",                                      // OpenAI
    r"context window exceeded",                                         // LiteLLM
    r"maximum context length is [\d,]+ tokens",                         // OpenAI, OpenRouter, vLLM, DeepSeek
    r"exceeds (?:the )?(?:model'?s )?maximum context length",           // SGLang, LiteLLM
    r"input tokens exceed the configured limit",                        // OpenAI
    r"input token count.*exceeds the maximum",                          // Gemini
    r"tokens in request more than max tokens allowed",                  // several
    r"maximum prompt length is \d+",                                    // xAI
    r"reduce the length of the (?:messages|input|prompt)",              // Groq, OpenAI, vLLM
    r"exceeds (?:the )?maximum allowed input length of [\d,]+ tokens?", // Poolside
    r"longer than the model'?s context length",                         // Together
    r"(?:prompt|input) (?:token )?(?:count|length|size) (?:of )?[\d,]+ exceeds the limit of [\d,]+(?: tokens)?(?:$|[^\w ]| \()", // Copilot
    r"exceeds the available context size",                             // llama.cpp
    r"context size has been exceeded",                                 // llama.cpp and LM Studio, mid-stream
    r"greater than the context length|n_keep .*n_ctx",                 // LM Studio
    r"trying to keep the first \d+ tokens|context length of only \d+", // LM Studio
    r"context length is only \d+ tokens",                              // vLLM
    r"input length.*exceeds.*context length",                          // vLLM, Ollama
    r"your request has \d+ input tokens|prompt contains (?:at least )?\d+ input tokens", // vLLM
    r"context window exceeds limit",                                   // MiniMax
    r"exceeded model token limit",                                     // Moonshot
    r"too large for model with \d+ maximum context length",            // Mistral
    r"prompt has [\d,]+ tokens?, but the configured context size is",  // DS4
    r"model_context_window_exceeded",
    r"exceeded (?:max )?context length",    // Ollama
    r"range of input length should be",     // DashScope
    r"current length is .* while limit is", // Cerebras
    r"input too long: .* input tokens, limit is",
    r"`inputs` tokens \+ `max_new_tokens` must be", // TGI
    r"context[_ ]length[_ ]exceeded",
    r"too many tokens|(?:^|context |input |prompt |model )token limit exceeded",
];

/// Phrases about a single request that exceeds a rate limit, which a retry cannot resolve.
const BEYOND_RATES: &[&str] = &[
    // Groq and OpenAI: "... on tokens per minute (TPM): Limit 6000, Requested 9000".
    r"request too large for .*per[\s_-]?min",
];

/// Whether the message states that a single request exceeds a rate limit.
pub(super) fn exceeds_rate_limit(words: &str) -> bool {
    static BEYOND: LazyLock<RegexSet> = LazyLock::new(|| set(BEYOND_RATES));
    BEYOND.is_match(words)
}

/// Whether the message is about a rate rather than a length.
pub(super) fn is_rate_limit(words: &str) -> bool {
    static RATES: LazyLock<RegexSet> = LazyLock::new(|| set(ABOUT_RATES));
    RATES.is_match(words)
}

/// Whether the message states that the prompt is too long. Phrases about something else take
/// precedence over those in `TOO_LONG`, but not over those about the context window.
pub(super) fn is_prompt_too_long(words: &str) -> bool {
    static OTHERS: LazyLock<RegexSet> = LazyLock::new(|| set(ABOUT_SOMETHING_ELSE));
    static LENGTHS: LazyLock<RegexSet> = LazyLock::new(|| set(TOO_LONG));
    static WINDOW: LazyLock<RegexSet> = LazyLock::new(|| set(ABOUT_THE_WINDOW));
    !is_rate_limit(words) && (WINDOW.is_match(words) || !OTHERS.is_match(words) && LENGTHS.is_match(words))
}

/// Matches any of these patterns, in upper or lower case.
pub(super) fn set(patterns: &[&str]) -> RegexSet {
    RegexSetBuilder::new(patterns).case_insensitive(true).build().expect("the patterns are constants, and tested")
}

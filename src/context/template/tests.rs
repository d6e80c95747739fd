//! Templates against what is known of them.

use super::*;

#[test]
fn models_find_their_family() {
    let table = [
        ("openai", "gpt-4o", "gpt-4-chat"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4-chat"),
        ("openai", "gpt-4", "unknown"),
        ("openai", "gpt-4-turbo", "gpt-3.5"),
        ("openai", "gpt-5-mini", "gpt-5-chat"),
        ("openai-responses", "gpt-5.2", "gpt-5-responses"),
        ("openrouter", "openai/gpt-4.1-mini", "openrouter-gpt-4"),
        ("openrouter", "anthropic/claude-haiku-4.5", "claude-4.5"),
        ("anthropic", "claude-opus-4-8", "claude-4.7"),
        ("groq", "meta-llama/llama-4-scout-17b-16e-instruct", "groq-llama-4"),
        ("llamacpp", "Qwen3-1.7B-Q4_K_M", "qwen-3"),
        ("llamacpp", "SmolLM2-135M-Instruct.Q4_1", "smollm-2"),
        ("compatible", "foo1-bar", "unknown"),
        ("compatible", "", "unknown"),
    ];
    for (service, model, name) in table {
        assert_eq!(Template::of(service, model).name, name, "{service} {model}");
    }
}

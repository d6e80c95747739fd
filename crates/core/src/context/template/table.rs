//! The families: the vocabulary of each, and the cost of each term of a prompt.
//!
//! The structure is that of the families' known chat templates. The prices were fitted to recorded requests and the
//! tokens that providers reported for them (`examples/accuracy`, `script/fit-templates`). No row is specific to a
//! single request.

use super::{Costs, Definitions, Template, Term::*, family::Rule};
use crate::context::tokens::Vocabulary;

/// Rules that map models to templates, specific rules before general ones. An unlisted model of a known vendor gets the
/// newest family of that vendor.
pub(super) static RULES: &[Rule] = &[
    rule(&["openai-responses"], &["gpt-3.5", "gpt-4", "chatgpt-4o"], "gpt-4-responses"),
    rule(&["openai-responses", "openrouter-responses"], &["gpt-oss"], "gpt-oss"),
    rule(&["openai-responses"], &[], "gpt-5-responses"),
    rule(&["groq"], &["gpt-oss"], "groq-gpt-oss"),
    rule(&[], &["gpt-oss"], "gpt-oss"),
    rule(&["groq"], &["llama-4"], "groq-llama-4"),
    rule(&["groq"], &["llama-3", "llama3"], "groq-llama-3"),
    rule(&["venice"], &["qwen"], "venice-qwen-3.5"),
    rule(&["venice"], &[], "venice-mistral"),
    rule(&["llamacpp", "lmstudio", "ollama"], &["mistral-small"], "llamacpp-mistral"),
    rule(&["mistralrs"], &["qwen"], "mistralrs-qwen-3"),
    rule(&["gemini-vertex"], &["gemini-2.5"], "vertex-gemini-2.5"),
    rule(&["gemini-vertex"], &["gemini-1", "gemini-2", "gemini-pro$"], "gemini-2.0"),
    rule(&["gemini-vertex"], &["gemini"], "vertex-gemini-3"),
    rule(&["openrouter"], &["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"], "gpt-5-responses"),
    rule(&["openrouter"], &["gpt-4o", "gpt-4.1", "gpt-4.5", "chatgpt-4o"], "openrouter-gpt-4"),
    rule(&[], &["gpt-4o", "gpt-4.1", "gpt-4.5", "chatgpt-4o"], "gpt-4-chat"),
    rule(&[], &["gpt-3.5", "gpt-35", "gpt-4"], "gpt-3.5"),
    rule(&[], &["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"], "gpt-5-chat"),
    rule(&[], &["claude-3-haiku", "claude-3-5-haiku", "claude-3.5-haiku", "claude-haiku-3"], "claude-haiku-3.5"),
    rule(
        &[],
        &[
            "claude-instant",
            "claude-2",
            "claude-3",
            "claude-sonnet-4$",
            "claude-opus-4$",
            "claude-sonnet-4-0",
            "claude-opus-4-0",
            "claude-opus-4-1",
            "claude-opus-4.1",
            "claude-sonnet-4-2025",
            "claude-opus-4-2025",
            "claude-sonnet-4@",
            "claude-opus-4@",
        ],
        "claude-4",
    ),
    rule(
        &[],
        &[
            "claude-haiku-4-5",
            "claude-haiku-4.5",
            "claude-sonnet-4-5",
            "claude-sonnet-4.5",
            "claude-sonnet-4-6",
            "claude-sonnet-4.6",
            "claude-opus-4-5",
            "claude-opus-4.5",
            "claude-opus-4-6",
            "claude-opus-4.6",
        ],
        "claude-4.5",
    ),
    rule(&[], &["claude-opus-4-7", "claude-opus-4.7"], "claude-4.7"),
    rule(&[], &["claude-opus-4-8", "claude-opus-4.8"], "claude-4.8"),
    rule(&[], &["claude"], "claude-5"),
    rule(&[], &["gemini-2.5"], "gemini-2.5"),
    rule(&[], &["gemini-1", "gemini-2", "gemini-pro$"], "gemini-2.0"),
    rule(&[], &["gemini"], "gemini-3"),
    rule(&[], &["gemma"], "gemma"),
    rule(&[], &["mixtral", "open-mixtral", "mistral-7b", "mistral-tiny"], "mixtral"),
    rule(&[], &["mistral-small-latest", "mistral-small-26", "mistral-small-4"], "mistral-small"),
    rule(&[], &["mistral", "ministral", "codestral", "devstral", "magistral", "pixtral", "voxtral"], "mistral"),
    rule(&[], &["deepseek-r1", "deepseek-reasoner"], "deepseek-r1"),
    rule(&["deepseek"], &["deepseek-v4"], "deepseek-v4-thinking"),
    rule(&[], &["deepseek"], "deepseek-v4"),
    rule(&[], &["qwen3.5", "qwen3-5", "qwen3.6", "qwen3-6", "qwen3.7", "qwen4"], "qwen-3.5"),
    rule(&[], &["qwen3-coder", "qwen-3-coder"], "qwen-3-coder"),
    rule(&[], &["qwen", "qwq"], "qwen-3"),
    rule(&[], &["smollm2"], "smollm-2"),
    rule(&[], &["llama-2", "llama2"], "llama-2"),
    rule(&[], &["llama-4", "llama4"], "llama-4"),
    rule(&[], &["llama-3", "llama3"], "llama-3"),
    rule(&[], &["grok-2", "grok-3"], "grok-3"),
    rule(&[], &["grok"], "grok-4"),
    rule(&[], &["glm-4", "glm4", "glm-5$", "glm-5-", "glm-5.0", "glm-5.1"], "glm"),
    rule(&[], &["glm"], "glm-5.2"),
    rule(&[], &["minimax"], "minimax"),
];

/// The templates.
#[rustfmt::skip] // a family reads best in a few lines
pub(super) static TEMPLATES: &[Template] = &[
    Template {
        name: "gpt-4-chat", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 10,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 16.0), (ToolsBesideSystem, -4.0),
            (Definition, 1.0), (DescribedTool, -1.0), (Property, -1.0), (DescribedProperty, 1.0), (Nullable, 1.5),
            (Call, 2.0), (CallText, 1.0), (ParallelCall, 19.0), (Result, 6.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "openrouter-gpt-4", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 4,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 16.0), (ToolsBesideSystem, -4.0),
            (ForcedBesideSystem, 12.0), (Definition, 1.0), (DescribedTool, -1.0), (Property, -1.0),
            (DescribedProperty, 1.0), (Nullable, 1.5), (Call, 2.0), (CallText, 1.0), (ParallelCall, 19.0), (Result, 6.0),
            (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gpt-4-responses", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 4,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 10.0), (ToolsBesideSystem, -1.0),
            (ForcedBesideSystem, 12.0), (Definition, 1.0), (Property, -1.0), (Nullable, 0.5), (Call, 3.0),
            (CallText, 1.0), (ParallelCall, 24.0), (Result, 6.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gpt-5-chat", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 3,
        costs: Costs::new(&[
            (Prompt, 2.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 97.0), (ToolsBesideSystem, 5.0),
            (Definition, 1.0), (Property, -1.0), (Nullable, 0.5), (Call, 3.0), (CallText, 1.0), (ParallelCall, 19.0),
            (Result, 9.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gpt-5-responses", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 2.0), (Text, 1.0), (Message, 4.0), (Answer, 2.0), (System, 4.0), (Tools, 15.0), (Definition, 1.0),
            (Property, -1.0), (DescribedProperty, 1.0), (Nullable, 0.5), (Call, 9.0), (CallText, 1.0),
            (ParallelCall, 18.0), (Result, 6.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gpt-3.5", vocabulary: Vocabulary::Cl100k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 10,
        costs: Costs::new(&[(Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Definition, 1.0), (CallText, 1.0), (ResultText, 1.0)]),
    },
    Template {
        name: "gpt-oss", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 63.0), (Text, 1.0), (Message, 4.0), (System, 8.0), (Tools, 33.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "groq-gpt-oss", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 63.0), (Text, 1.0), (Message, 4.0), (System, 8.0), (Tools, 33.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "claude-4.5", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 3, margin_percent: 4,
        costs: Costs::new(&[
            (Prompt, 0.5), (ThinkingRequested, 30.0), (Text, 1.04), (Message, 4.0), (Answer, -2.0), (System, 4.0),
            (NoSystem, 2.5), (Tools, 495.0), (ToolsBesideSystem, 0.5), (Forced, 94.5), (Forbidden, 2.0),
            (Definition, 1.04), (Tool, 11.5), (Property, 4.0), (DescribedProperty, 0.5), (List, 2.5), (Nullable, -1.5),
            (Call, 14.0), (CallText, 1.44), (Argument, 12.0), (ParallelCall, 16.0), (Result, 25.0), (ResultText, 0.72)
        ]),
    },
    Template {
        name: "claude-4.7", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 3, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 9.5), (Text, 1.3), (Message, 1.0), (System, 4.0), (NoSystem, 2.5), (Tools, 679.0),
            (ToolsBesideSystem, 0.5), (Forced, 131.5), (Definition, 1.4), (Tool, 16.0), (Property, 5.0),
            (DescribedProperty, 0.5), (List, 2.5), (Nullable, -1.5), (Call, 21.0), (CallText, 1.3), (Argument, 13.0),
            (ParallelCall, 11.0), (Result, 32.0), (ResultText, 1.02)
        ]),
    },
    Template {
        name: "claude-4.8", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 3, margin_percent: 3,
        costs: Costs::new(&[
            (Prompt, 9.5), (Text, 1.3), (Message, 1.0), (System, 4.0), (NoSystem, 2.5), (Tools, 290.0),
            (ToolsBesideSystem, 0.5), (Forced, 122.5), (Definition, 1.4), (Tool, 16.0), (Property, 5.0),
            (DescribedProperty, 0.5), (List, 2.5), (Nullable, -1.5), (Call, 21.0), (CallText, 1.3), (Argument, 13.0),
            (ParallelCall, 11.0), (Result, 32.0), (ResultText, 1.02)
        ]),
    },
    Template {
        name: "claude-5", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 3, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 9.5), (Text, 1.3), (Message, 1.0), (System, 4.0), (NoSystem, 2.5), (Tools, 354.0),
            (ToolsBesideSystem, 0.5), (Forced, 122.5), (Definition, 1.4), (Tool, 16.0), (Property, 5.0),
            (DescribedProperty, 0.5), (List, 2.5), (Nullable, -1.5), (Call, 21.0), (CallText, 1.3), (Argument, 13.0),
            (ParallelCall, 11.0), (Result, 32.0), (ResultText, 1.02)
        ]),
    },
    Template {
        name: "claude-4", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 3, margin_percent: 30,
        costs: Costs::new(&[
            (Prompt, -1.0), (ThinkingRequested, 30.0), (Text, 1.0), (Message, 4.0), (Answer, 11.0), (System, 4.0),
            (NoSystem, 4.0), (Tools, 315.0), (ToolsBesideSystem, 0.5), (Forced, 7.0), (Definition, 1.0), (Tool, 12.0),
            (Property, 1.5), (DescribedProperty, 0.5), (List, 2.5), (Nullable, -1.5), (Call, 4.0), (CallText, 1.0),
            (Argument, 10.0), (ParallelCall, 11.0), (Result, 25.0), (ResultText, 0.72)
        ]),
    },
    Template {
        name: "claude-haiku-3.5", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 3, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 0.5), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 2.5), (Tools, 264.0),
            (ToolsBesideSystem, 0.5), (Forced, 93.5), (Definition, 1.0), (Tool, 12.0), (Property, 4.0),
            (DescribedProperty, 0.5), (List, 2.5), (Nullable, -1.5), (Call, 14.0), (CallText, 1.0), (Argument, 10.0),
            (ParallelCall, 11.0), (Result, 25.0), (ResultText, 0.72)
        ]),
    },
    Template {
        name: "gemini-2.5", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::NamesAndTexts,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 1.0), (NoSystem, -1.0), (Definition, 1.0), (Tool, 18.0),
            (Property, 10.0), (DescribedProperty, -1.0), (NestedObject, 56.5), (Nullable, 5.5), (Call, 8.0),
            (CallText, 1.0), (Result, 8.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "vertex-gemini-2.5", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::NamesAndTexts,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Text, 1.0), (Definition, 1.0), (Tool, 18.0), (Property, 10.0), (Call, 8.0), (CallText, 1.0), (Result, 8.0),
            (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gemini-3", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::NamesAndTexts,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 12,
        costs: Costs::new(&[
            (Text, 1.0), (NoSystem, 1.0), (Tools, -1.0), (ToolsBesideSystem, 2.0), (Forced, 12.0), (Definition, 1.0),
            (Tool, 14.0), (DescribedTool, 5.0), (Property, 10.0), (Call, 8.0), (CallText, 1.0), (Result, 8.0),
            (ResultText, 1.0)
        ]),
    },
    Template {
        name: "vertex-gemini-3", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::NamesAndTexts,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Text, 1.0), (Tools, -14.0), (Definition, 1.0), (Tool, 14.0), (Property, 10.0), (Call, 8.0), (CallText, 1.0),
            (Result, 8.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gemini-2.0", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::NamesAndTexts,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 28,
        costs: Costs::new(&[
            (Text, 1.0), (Definition, 1.0), (Tool, 1.0), (CallText, 1.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "gemma", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 4.0), (Text, 1.0), (Message, 5.0), (System, 1.0), (Definition, 1.0), (Call, 3.0), (CallText, 1.0),
            (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "mistral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: true, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 2.0), (Answer, -1.0), (System, 2.0), (Tools, 2.0),
            (ToolsBesideSystem, -1.0), (Definition, 1.0), (Tool, 2.0), (Call, 3.0), (CallText, 1.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "mistral-small", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: true, answer_end: 0, margin_percent: 7,
        costs: Costs::new(&[
            (Prompt, 13.0), (Text, 1.0), (Message, 2.0), (Answer, -1.0), (System, 2.0), (Tools, 2.0),
            (ToolsBesideSystem, -7.0), (Forced, 3.0), (Definition, 1.0), (Tool, 2.0), (DescribedTool, 3.0),
            (Property, -1.5), (Call, 2.0), (CallText, 1.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "venice-mistral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 955.0), (Text, 1.0), (Message, 2.0), (Answer, -1.0), (System, 2.0), (NoSystem, 630.0), (Tools, 2.0),
            (ToolsBesideSystem, -1.0), (Definition, 1.0), (Tool, 2.0), (Call, 10.0), (CallText, 1.0), (Result, 8.0),
            (ResultText, 1.0)
        ]),
    },
    Template {
        name: "llamacpp-mistral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 2.0), (Answer, -1.0), (System, 2.0), (NoSystem, 550.0), (Tools, 6.0),
            (ToolsBesideSystem, -1.0), (Definition, 1.0), (Tool, 2.0), (Call, 3.0), (CallText, 1.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "qwen-3", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 5.0), (System, 5.0), (Tools, 82.0), (ToolsBesideSystem, -5.0),
            (Definition, 1.0), (Tool, 1.0), (List, -2.0), (Call, 11.0), (CallText, 1.0), (Result, 5.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "qwen-3-coder", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Xml,
        drops_thinking: true, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 5.0), (System, 5.0), (Tools, 217.0), (ToolsBesideSystem, -24.0),
            (Definition, 1.0), (Call, 11.0), (CallText, 1.0), (Argument, 8.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    // ChatML with its own system prompt. Its vocabulary splits English and numbers like Qwen's.
    Template {
        name: "smollm-2", vocabulary: Vocabulary::Qwen, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 10,
        costs: Costs::new(&[
            (Prompt, 3.5), (Text, 1.0), (Message, 5.5), (System, 5.0), (NoSystem, 21.0), (Definition, 1.0),
            (CallText, 1.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "mistralrs-qwen-3", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 5,
        costs: Costs::new(&[
            (Prompt, 3.5), (Text, 1.0), (Message, 4.0), (System, 5.0), (Tools, 66.0), (ToolsBesideSystem, -5.0),
            (Definition, 1.0), (Tool, 1.0), (List, -2.0), (Call, 11.0), (CallText, 1.0), (Result, 5.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "qwen-3.5", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: false, answer_end: 0, margin_percent: 3,
        costs: Costs::new(&[
            (Prompt, 5.0), (Text, 1.0), (Message, 5.0), (System, 5.0), (Tools, 202.0), (ToolsBesideSystem, -5.0),
            (Forced, 6.0), (Definition, 1.0), (Tool, 1.0), (List, -2.0), (Call, 11.0), (CallText, 1.0), (Argument, 8.0),
            (Result, 5.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "venice-qwen-3.5", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 928.0), (Text, 1.0), (Message, 5.0), (System, 5.0), (NoSystem, 632.0), (Tools, 205.0),
            (ToolsBesideSystem, -5.0), (Definition, 1.0), (Tool, 1.0), (List, -2.0), (Call, 11.0), (CallText, 1.0),
            (Argument, 8.0), (Result, 5.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "deepseek-v4", vocabulary: Vocabulary::DeepSeek, own_vocabulary: true, definitions: Definitions::Spaced,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: true, answer_end: 0, margin_percent: 50,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 3.0), (Answer, -1.0), (Tools, 222.0), (Forced, 8.0), (Definition, 1.0),
            (Call, 10.0), (CallText, 1.0), (Argument, 10.0), (Result, 8.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "deepseek-v4-thinking", vocabulary: Vocabulary::DeepSeek, own_vocabulary: true, definitions: Definitions::Spaced,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: true, answer_end: 0, margin_percent: 19,
        costs: Costs::new(&[
            (Prompt, 1.0), (Thinking, 79.0), (Text, 1.0), (Message, 3.0), (Tools, 221.0), (Forced, 7.0),
            (Definition, 1.0), (Call, 15.0), (CallText, 1.0), (Argument, 10.0), (Result, 8.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "deepseek-r1", vocabulary: Vocabulary::DeepSeek, own_vocabulary: true, definitions: Definitions::Spaced,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: true, answer_end: 0, margin_percent: 7,
        costs: Costs::new(&[
            (Prompt, 1.0), (Thinking, 2.0), (Text, 1.0), (Tools, 222.0), (Forced, 8.0), (Definition, 1.0), (Call, 10.0),
            (CallText, 1.0), (Argument, 10.0), (Result, 8.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "llama-3", vocabulary: Vocabulary::Llama3, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 30.0), (Text, 1.0), (Message, 5.0), (Tools, 79.0), (ToolsBesideSystem, -10.0), (Forbidden, 27.0),
            (Definition, 1.0), (Tool, 12.0), (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "groq-llama-3", vocabulary: Vocabulary::Llama3, own_vocabulary: true, definitions: Definitions::Shallow,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, answer_end: 0, margin_percent: 17,
        costs: Costs::new(&[
            (Prompt, 30.0), (Text, 1.0), (Message, 5.0), (Tools, 116.0), (ToolsBesideSystem, -10.0), (Forced, 16.0),
            (Forbidden, 27.0), (Definition, 1.0), (Tool, 12.0), (Call, 3.0), (CallText, 1.0), (Result, 4.0),
            (ResultText, 1.0)
        ]),
    },
    Template {
        name: "llama-4", vocabulary: Vocabulary::Llama3, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 5.0), (Text, 1.0), (Message, 5.0), (System, 5.0), (Tools, 90.0), (Definition, 1.0), (Tool, 35.0),
            (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "groq-llama-4", vocabulary: Vocabulary::Llama3, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 5.0), (Text, 1.0), (Message, 5.0), (System, 5.0), (Tools, 643.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "grok-3", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 129.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 59.0), (Tools, 39.0), (Forced, -4.0),
            (Definition, 1.0), (Tool, 8.0), (Property, 5.0), (Call, 3.0), (CallText, 1.0), (Result, 4.0),
            (ResultText, 1.0)
        ]),
    },
    Template {
        name: "grok-4", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 3,
        costs: Costs::new(&[
            (Prompt, 123.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 43.0), (Forced, 2.5), (Definition, 1.0),
            (Tool, 8.0), (Property, 3.5), (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "glm", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 2.0), (System, 2.0), (Tools, 86.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "glm-5.2", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 10.0), (Text, 1.0), (Message, 2.0), (System, 2.0), (Tools, 86.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "minimax", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 34.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "mixtral", vocabulary: Vocabulary::MistralV1, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 7.0), (Answer, -6.0), (System, 2.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "llama-2", vocabulary: Vocabulary::Llama2, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 7.0), (Answer, -5.0), (System, 12.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
];

/// The template for unknown models.
#[rustfmt::skip]
pub(super) static UNKNOWN: Template = Template {
        name: "unknown", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, answer_end: 0, margin_percent: 10,
        costs: Costs::new(&[(Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Definition, 1.0), (CallText, 1.0), (ResultText, 1.0)]),
    };

const fn rule(services: &'static [&'static str], models: &'static [&'static str], template: &'static str) -> Rule {
    Rule { services, models, template }
}

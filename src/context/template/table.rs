//! The families: what each is counted with, and what a prompt's terms cost it.
//!
//! Structure is what is known of the families' chat templates; prices were fitted on recorded requests beside the tokens that
//! providers reported for them (`examples/accuracy`, `script/fit-templates`). No row knows a single request.

use super::{Costs, Definitions, Template, Term::*, family::Rule};
use crate::context::tokens::Vocabulary;

/// Which template is whose, the particular before the general.
pub(super) static RULES: &[Rule] = &[
    rule(&["openai-responses"], &["gpt-3.5", "gpt-4"], "gpt-4-responses"),
    rule(&["openai-responses", "openrouter-responses"], &["gpt-oss"], "gpt-oss"),
    rule(&["openai-responses"], &[], "gpt-5-responses"),
    rule(&["groq"], &["gpt-oss"], "groq-gpt-oss"),
    rule(&[], &["gpt-oss"], "gpt-oss"),
    rule(&["groq"], &["llama-4"], "groq-llama-4"),
    rule(&["groq"], &["llama-3", "llama3"], "groq-llama-3"),
    rule(&["venice"], &["mistral", "ministral"], "venice-mistral"),
    rule(&["venice"], &["qwen"], "venice-qwen-3.5"),
    rule(&["llamacpp", "lmstudio", "ollama"], &["mistral"], "llamacpp-mistral"),
    rule(&["mistralrs"], &["qwen"], "mistralrs-qwen-3"),
    rule(&["gemini-vertex"], &["gemini-3"], "vertex-gemini-3"),
    rule(&["gemini-vertex"], &["gemini-2.5"], "vertex-gemini-2.5"),
    rule(&["openrouter"], &["gpt-4o", "gpt-4.1"], "openrouter-gpt-4"),
    rule(&["openrouter"], &["gpt-5", "o1", "o3", "o4"], "gpt-5-responses"),
    rule(&[], &["gpt-3.5", "gpt-4-", "gpt-4-turbo"], "gpt-3.5"),
    rule(&[], &["gpt-4o", "gpt-4.1", "gpt-4.5", "chatgpt-4o"], "gpt-4-chat"),
    rule(&[], &["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"], "gpt-5-chat"),
    rule(&[], &["claude-3"], "claude-3"),
    rule(
        &[],
        &[
            "claude-sonnet-4-0",
            "claude-opus-4-0",
            "claude-opus-4-1",
            "claude-sonnet-4-2025",
            "claude-opus-4-2025",
            "claude-opus-4.1",
        ],
        "claude-4",
    ),
    rule(
        &[],
        &[
            "claude-opus-4-7",
            "claude-opus-4-8",
            "claude-sonnet-5",
            "claude-opus-5",
            "claude-haiku-5",
            "claude-opus-4.7",
            "claude-opus-4.8",
        ],
        "claude-4.7",
    ),
    rule(&[], &["claude"], "claude-4.5"),
    rule(&[], &["gemini-3"], "gemini-3"),
    rule(&[], &["gemini-1", "gemini-2.0", "gemini-pro"], "gemini-2.0"),
    rule(&[], &["gemini", "gemma"], "gemini-2.5"),
    rule(&[], &["ministral"], "ministral"),
    rule(&[], &["mixtral", "mistral-7b"], "mixtral"),
    rule(&[], &["mistral", "codestral", "devstral", "magistral", "pixtral"], "mistral"),
    rule(&[], &["deepseek-r1", "deepseek-reasoner"], "deepseek-r1"),
    rule(&[], &["deepseek"], "deepseek-v4"),
    rule(&[], &["qwen3.5", "qwen3-5", "qwen3.6", "qwen3-6"], "qwen-3.5"),
    rule(&[], &["qwen", "qwq"], "qwen-3"),
    rule(&[], &["smollm2"], "smollm-2"),
    rule(&[], &["llama-2", "llama2"], "llama-2"),
    rule(&[], &["llama-3", "llama3", "llama-4", "llama4"], "llama-3"),
    rule(&[], &["grok-4", "grok-5"], "grok-4"),
    rule(&[], &["grok"], "grok-3"),
    rule(&[], &["glm"], "glm"),
    rule(&[], &["minimax"], "minimax"),
];

/// The templates.
#[rustfmt::skip] // a family reads best in a few lines
pub(super) static TEMPLATES: &[Template] = &[
    Template {
        name: "gpt-4-chat", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 16.0), (ToolsBesideSystem, -4.0),
            (Definition, 1.0), (DescribedTool, -1.0), (Property, -1.0), (DescribedProperty, 1.0), (NestedObject, 7.0),
            (Nullable, 1.5), (Call, 3.06), (CallText, 1.0), (ParallelCall, 24.44), (ResultText, 0.94), (History, 5.0)
        ]),
    },
    Template {
        name: "gpt-4-responses", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 3,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 10.0), (Forced, 12.0), (Definition, 1.0),
            (DescribedTool, -1.0), (Property, -1.0), (NestedObject, 7.0), (Nullable, 0.5), (Call, 3.06), (CallText, 0.62),
            (ParallelCall, 31.36), (Result, 8.0), (ResultText, 1.44)
        ]),
    },
    Template {
        name: "gpt-5-chat", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 2.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 98.0), (ToolsBesideSystem, 3.0),
            (Definition, 1.0), (Tool, -1.0), (DescribedTool, -1.0), (DescribedProperty, 1.0), (NestedObject, 7.0),
            (Nullable, 1.5), (Call, 3.06), (CallText, 0.62), (ParallelCall, 26.36), (Result, 8.0), (ResultText, 0.94),
            (History, 5.0)
        ]),
    },
    Template {
        name: "gpt-5-responses", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 1.0), (Text, 1.0), (Message, 5.0), (System, 4.0), (Tools, 15.0), (Definition, 1.0), (Property, -1.0),
            (DescribedProperty, 1.0), (NestedObject, 7.0), (Nullable, 1.5), (Call, 3.06), (CallText, 0.32),
            (ParallelCall, 21.36), (Result, 11.09), (ResultText, 0.94), (History, 6.0)
        ]),
    },
    Template {
        name: "openrouter-gpt-4", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 8,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 26.0), (ToolsBesideSystem, 6.0),
            (Definition, 1.0), (Tool, -10.0), (DescribedTool, -1.0), (Property, -2.0), (DescribedProperty, 2.0),
            (NestedObject, 7.0), (Nullable, 4.33), (Call, 3.06), (CallText, 0.62), (ParallelCall, 25.78), (Result, 2.0),
            (ResultText, 0.84), (History, 5.0)
        ]),
    },
    Template {
        name: "gpt-3.5", vocabulary: Vocabulary::Cl100k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 10,
        costs: Costs::new(&[(Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Definition, 1.0), (CallText, 1.0), (ResultText, 1.0)]),
    },
    Template {
        name: "gpt-oss", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 60.0), (Tools, 97.0), (Definition, 1.0),
            (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "groq-gpt-oss", vocabulary: Vocabulary::O200k, own_vocabulary: true, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 60.0), (Tools, 97.0), (Definition, 1.0),
            (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "claude-4.5", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 4,
        costs: Costs::new(&[
            (Prompt, -3.97), (Text, 1.04), (Message, 3.04), (System, 8.89), (NoSystem, 7.64), (Tools, 494.9),
            (ToolsBesideSystem, 1.09), (Forced, 92.83), (Forbidden, 1.97), (Definition, 1.04), (Tool, 11.69),
            (DescribedTool, 0.04), (Property, 4.54), (DescribedProperty, 0.04), (NestedObject, -2.01), (List, 3.51),
            (Nullable, -1.88), (Call, 31.1), (CallText, 1.88), (ParallelCall, 19.4), (Result, 25.82), (ResultText, 0.2)
        ]),
    },
    Template {
        name: "claude-4.7", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 24,
        costs: Costs::new(&[
            (Prompt, 7.48), (Text, 1.04), (Message, 2.75), (System, 8.89), (NoSystem, 7.64), (Tools, 867.18),
            (ToolsBesideSystem, 1.09), (Forced, 0.63), (Forbidden, 1.97), (Definition, 1.04), (Tool, 11.69),
            (DescribedTool, 0.04), (Property, 4.54), (DescribedProperty, 0.04), (NestedObject, -2.01), (List, 3.51),
            (Nullable, -1.88), (Call, 31.1), (CallText, 1.6), (ParallelCall, 19.4), (Result, 20.0), (ResultText, 0.5)
        ]),
    },
    Template {
        name: "claude-4", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, -3.97), (Text, 1.04), (Message, 3.04), (System, 8.89), (NoSystem, 7.64), (Tools, 308.26),
            (ToolsBesideSystem, 1.09), (Forced, -1.58), (Forbidden, 1.97), (Definition, 1.04), (Tool, 11.69),
            (DescribedTool, 0.04), (Property, 4.54), (DescribedProperty, 0.04), (NestedObject, -2.01), (List, 3.51),
            (Nullable, -1.88), (Call, 31.1), (CallText, 1.6), (ParallelCall, 19.4), (Result, 20.0), (ResultText, 0.5)
        ]),
    },
    Template {
        name: "claude-3", vocabulary: Vocabulary::Tekken, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 48,
        costs: Costs::new(&[
            (Prompt, -17.19), (Text, 1.04), (Message, 14.75), (System, 8.89), (NoSystem, 9.4), (Tools, 313.31),
            (ToolsBesideSystem, 1.09), (Forced, 0.63), (Forbidden, 1.97), (Definition, 1.04), (Tool, 11.69),
            (DescribedTool, 0.04), (Property, 4.54), (DescribedProperty, 0.04), (NestedObject, -2.01), (List, 3.51),
            (Nullable, -1.88), (Call, 15.61), (CallText, 1.6), (ParallelCall, 19.4), (ResultText, 0.5)
        ]),
    },
    Template {
        name: "gemini-2.5", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::Words,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, -3.0), (Text, 1.0), (Message, 1.0), (System, 4.0), (NoSystem, 3.0), (Definition, 1.0), (Tool, 18.0),
            (Property, 10.0), (DescribedProperty, -1.0), (NestedObject, 65.8), (List, -24.47), (Nullable, 5.33),
            (CallText, 1.39), (ResultText, 1.84), (History, 6.72)
        ]),
    },
    Template {
        name: "vertex-gemini-2.5", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::Words,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, -4.0), (Text, 1.0), (System, 4.0), (NoSystem, 4.0), (Tools, -5.0), (ToolsBesideSystem, 2.0),
            (Definition, 1.0), (Tool, 18.0), (Property, 10.0), (DescribedProperty, -1.0), (NestedObject, 65.8),
            (List, -24.47), (Nullable, 5.33), (CallText, 0.89), (ResultText, 1.34)
        ]),
    },
    Template {
        name: "gemini-3", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::Words,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 13,
        costs: Costs::new(&[
            (Prompt, -4.0), (Text, 1.0), (System, 4.0), (NoSystem, 5.0), (Tools, -5.0), (ToolsBesideSystem, 2.0),
            (Forced, 32.47), (Definition, 1.0), (Tool, 18.0), (DescribedTool, 5.0), (Property, 10.0),
            (DescribedProperty, -1.0), (NestedObject, 65.8), (List, -24.47), (Nullable, 5.33), (CallText, 0.89),
            (ResultText, 1.34)
        ]),
    },
    Template {
        name: "vertex-gemini-3", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::Words,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, -4.0), (Text, 1.0), (System, 4.0), (NoSystem, 4.0), (Tools, -18.0), (ToolsBesideSystem, 2.0),
            (Definition, 1.0), (Tool, 18.0), (Property, 10.0), (DescribedProperty, -1.0), (NestedObject, 65.8),
            (List, -24.47), (Nullable, 5.33), (CallText, 0.89), (ResultText, 1.34)
        ]),
    },
    Template {
        name: "gemini-2.0", vocabulary: Vocabulary::Gemma, own_vocabulary: true, definitions: Definitions::Words,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 50,
        costs: Costs::new(&[
            (Prompt, -4.0), (Text, 1.0), (System, 4.0), (NoSystem, 4.0), (Tools, -26.0), (ToolsBesideSystem, 9.0),
            (Definition, 1.0), (Tool, 18.0), (Property, 10.0), (DescribedProperty, -1.0), (NestedObject, 65.8),
            (List, -24.47), (Nullable, 5.33), (CallText, 0.59), (ResultText, 1.04)
        ]),
    },
    Template {
        name: "mistral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: true, margin_percent: 40,
        costs: Costs::new(&[
            (Prompt, -0.5), (Text, 1.0), (Message, 1.5), (System, 4.0), (NoSystem, 2.0), (Tools, 14.0),
            (ToolsBesideSystem, -7.0), (Forced, 3.0), (Forbidden, -112.0), (Definition, 1.0), (Tool, 5.0),
            (Property, -1.5), (Nullable, -2.96), (Call, 2.17), (CallText, 1.22), (ResultText, 0.78)
        ]),
    },
    Template {
        name: "ministral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: true, margin_percent: 7,
        costs: Costs::new(&[
            (Prompt, -0.5), (Text, 1.0), (Message, 1.5), (System, 4.0), (NoSystem, 2.0), (Tools, 2.0),
            (ToolsBesideSystem, -7.0), (Forced, 3.0), (Forbidden, -112.0), (Definition, 1.0), (Tool, 5.0),
            (Property, -1.5), (DescribedProperty, -1.5), (Nullable, -2.96), (Call, 2.17), (CallText, 1.22),
            (ResultText, 0.78)
        ]),
    },
    Template {
        name: "venice-mistral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 37,
        costs: Costs::new(&[
            (Prompt, -0.5), (Text, 1.0), (Message, 1.5), (System, 4.0), (NoSystem, 2.0), (Tools, 1577.0),
            (ToolsBesideSystem, -625.0), (Forced, 3.0), (Forbidden, -112.0), (Definition, 1.0), (Tool, 5.0),
            (Nullable, -2.96), (Call, 2.17), (CallText, 1.22), (ResultText, 0.78), (History, 13.63)
        ]),
    },
    Template {
        name: "llamacpp-mistral", vocabulary: Vocabulary::Tekken, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, -0.5), (Text, 1.0), (Message, 1.5), (System, 4.0), (NoSystem, 2.0), (Tools, 556.0),
            (ToolsBesideSystem, -7.0), (Forced, 3.0), (Forbidden, -112.0), (Definition, 1.0), (Tool, 5.0),
            (Property, -1.5), (Nullable, -2.96), (Call, 2.17), (CallText, 1.22), (ResultText, 0.78)
        ]),
    },
    Template {
        name: "qwen-3", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: false, forced_hides_others: false, margin_percent: 2,
        costs: Costs::new(&[
            (Prompt, 4.5), (Text, 1.0), (Message, 4.5), (System, 4.0), (NoSystem, -1.0), (Tools, 82.0),
            (ToolsBesideSystem, -5.0), (Definition, 1.0), (DescribedTool, 1.0), (List, -2.0), (Nullable, 2.0),
            (Call, 3.0), (CallText, 1.32), (Result, 10.55), (ResultText, 0.89), (History, 2.5)
        ]),
    },
    // ChatML with a system prompt of its own. Its vocabulary parts English and numbers as Qwen's does.
    Template {
        name: "smollm-2", vocabulary: Vocabulary::Qwen, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 10,
        costs: Costs::new(&[
            (Prompt, 3.5), (Text, 1.0), (Message, 5.5), (System, 5.0), (NoSystem, 21.0), (Definition, 1.0),
            (CallText, 1.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "mistralrs-qwen-3", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: false, forced_hides_others: false, margin_percent: 22,
        costs: Costs::new(&[
            (Prompt, 4.5), (Text, 1.0), (Message, 4.5), (System, 4.0), (NoSystem, -1.0), (Tools, 65.5),
            (ToolsBesideSystem, -5.0), (Forced, 0.5), (Definition, 1.0), (DescribedTool, 1.0), (List, -2.0),
            (Nullable, 2.0), (Call, 3.0), (CallText, 1.32), (Result, 10.55), (ResultText, 0.89), (History, 2.5)
        ]),
    },
    Template {
        name: "qwen-3.5", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: false, margin_percent: 4,
        costs: Costs::new(&[
            (Prompt, 6.5), (Text, 1.0), (Message, 4.5), (System, 4.0), (NoSystem, -1.0), (Tools, 198.0),
            (ToolsBesideSystem, -5.0), (Forced, 9.0), (Definition, 1.0), (Tool, 4.0), (DescribedTool, 1.0),
            (Property, -1.0), (List, -2.0), (Nullable, 2.0), (Call, 3.0), (CallText, 1.32), (Result, 10.55),
            (ResultText, 0.89), (History, 2.5)
        ]),
    },
    Template {
        name: "venice-qwen-3.5", vocabulary: Vocabulary::Qwen, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: true, none_hides_tools: false, forced_hides_others: false, margin_percent: 17,
        costs: Costs::new(&[
            (Prompt, 930.5), (Text, 1.0), (Message, 4.5), (System, 4.0), (NoSystem, -1.0), (Tools, 203.5),
            (ToolsBesideSystem, -5.0), (Forced, 0.5), (Definition, 1.0), (DescribedTool, 1.0), (List, -2.0),
            (Nullable, 2.0), (Call, 3.0), (CallText, 1.32), (Result, 10.55), (ResultText, 0.89), (History, 2.5)
        ]),
    },
    Template {
        name: "deepseek-v4", vocabulary: Vocabulary::DeepSeek, own_vocabulary: true, definitions: Definitions::Spaced,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: true, margin_percent: 26,
        costs: Costs::new(&[
            (Prompt, -2.0), (Text, 1.0), (Message, 2.0), (System, 4.0), (NoSystem, 4.0), (Tools, 225.5),
            (ToolsBesideSystem, -4.5), (Forced, 2.5), (Definition, 1.0), (Property, 0.81), (DescribedProperty, -0.81),
            (Nullable, -0.81), (Call, 3.0), (CallText, 2.1), (Result, 7.4), (ResultText, 1.0), (History, 13.9)
        ]),
    },
    Template {
        name: "deepseek-r1", vocabulary: Vocabulary::DeepSeek, own_vocabulary: true, definitions: Definitions::Spaced,
        drops_thinking: true, none_hides_tools: true, forced_hides_others: true, margin_percent: 7,
        costs: Costs::new(&[
            (Text, 1.0), (System, 4.0), (NoSystem, 3.0), (Tools, 225.5), (ToolsBesideSystem, -4.5), (Forced, 2.5),
            (Definition, 1.0), (Property, 0.81), (DescribedProperty, -0.81), (Nullable, -0.81), (Call, 3.0),
            (CallText, 1.6), (Result, 7.4), (ResultText, 1.0), (History, 13.9)
        ]),
    },
    Template {
        name: "llama-3", vocabulary: Vocabulary::Llama3, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 26.8), (Text, 1.0), (Message, 8.2), (System, 4.0), (Tools, 89.0), (ToolsBesideSystem, 13.0),
            (Forced, 16.0), (Definition, 1.0), (Tool, 12.0), (Property, -5.0), (CallText, 1.0), (ResultText, 1.0),
            (History, 4.4)
        ]),
    },
    Template {
        name: "groq-llama-3", vocabulary: Vocabulary::Llama3, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, margin_percent: 35,
        costs: Costs::new(&[
            (Prompt, 26.8), (Text, 1.0), (Message, 8.2), (System, 4.0), (NoSystem, 27.0), (Tools, 89.0),
            (ToolsBesideSystem, 13.0), (Forced, 16.0), (Definition, 1.0), (Tool, 12.0), (Property, -5.0), (CallText, 1.0),
            (ResultText, 1.0), (History, 4.4)
        ]),
    },
    Template {
        name: "groq-llama-4", vocabulary: Vocabulary::Llama3, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: true, forced_hides_others: false, margin_percent: 50,
        costs: Costs::new(&[
            (Prompt, 26.8), (Text, 1.0), (Message, 8.2), (System, 4.0), (NoSystem, -25.0), (Tools, 631.0),
            (ToolsBesideSystem, 13.0), (Forced, 16.0), (Definition, 1.0), (Tool, 12.0), (Property, -5.0), (CallText, 1.0),
            (ResultText, 1.0), (History, 26.6)
        ]),
    },
    Template {
        name: "grok-3", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 13,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 168.25), (Forced, -1.88),
            (Definition, 1.0), (Tool, 6.12), (Property, 5.12), (NestedObject, -3.69), (List, -3.62), (Nullable, -1.29),
            (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "grok-4", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Compact,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 3,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Tools, 166.75), (Forced, -1.88),
            (Definition, 1.0), (Tool, 6.12), (Property, 5.12), (NestedObject, -3.69), (List, -3.62), (Nullable, -1.29),
            (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "glm", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 26,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 5.0), (Tools, 86.0), (Definition, 1.0),
            (Call, 3.0), (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "minimax", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (NoSystem, 34.0), (Definition, 1.0), (Call, 3.0),
            (CallText, 1.0), (Result, 4.0), (ResultText, 1.0)
        ]),
    },
    Template {
        name: "mixtral", vocabulary: Vocabulary::MistralV1, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, -0.5), (Text, 1.0), (Message, 1.5), (System, 4.0), (NoSystem, 2.0), (Tools, 14.0),
            (ToolsBesideSystem, -7.0), (Forced, 3.0), (Forbidden, -112.0), (Definition, 1.0), (Tool, 5.0),
            (Property, -1.5), (Nullable, -2.96), (Call, 2.17), (CallText, 1.22), (ResultText, 0.78)
        ]),
    },
    Template {
        name: "llama-2", vocabulary: Vocabulary::Llama2, own_vocabulary: true, definitions: Definitions::Functions,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 25,
        costs: Costs::new(&[
            (Prompt, 26.8), (Text, 1.0), (Message, 8.2), (System, 4.0), (Tools, 89.0), (ToolsBesideSystem, 13.0),
            (Forced, 16.0), (Definition, 1.0), (Tool, 12.0), (Property, -5.0), (CallText, 1.0), (ResultText, 1.0),
            (History, 4.4)
        ]),
    },
];

/// Of a model that nobody knows.
#[rustfmt::skip]
pub(super) static UNKNOWN: Template = Template {
        name: "unknown", vocabulary: Vocabulary::O200k, own_vocabulary: false, definitions: Definitions::TypeScript,
        drops_thinking: false, none_hides_tools: false, forced_hides_others: false, margin_percent: 10,
        costs: Costs::new(&[(Prompt, 3.0), (Text, 1.0), (Message, 4.0), (System, 4.0), (Definition, 1.0), (CallText, 1.0), (ResultText, 1.0)]),
    };

const fn rule(services: &'static [&'static str], models: &'static [&'static str], template: &'static str) -> Rule {
    Rule { services, models, template }
}

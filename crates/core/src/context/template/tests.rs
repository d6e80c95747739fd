//! Tests of the templates against published and recorded counts.

use super::*;
use crate::context::testing;

#[test]
fn models_find_their_family() {
    let table = [
        ("openai", "gpt-4o", "gpt-4-chat"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4-chat"),
        ("openai", "ft:gpt-4.1-mini:org", "gpt-4-chat"),
        ("openai", "gpt-4", "gpt-3.5"),
        ("openai", "gpt-4-0613", "gpt-3.5"),
        ("openai", "gpt-4-turbo", "gpt-3.5"),
        ("azure", "gpt-35-turbo", "gpt-3.5"),
        ("openai", "gpt-5-mini", "gpt-5-chat"),
        ("openai", "gpt-5.9-2027-01-31", "gpt-5-chat"),
        ("openai-responses", "gpt-5.2", "gpt-5-responses"),
        ("openai-responses", "chatgpt-4o-latest", "gpt-4-responses"),
        ("openrouter", "openai/gpt-4.1-mini", "openrouter-gpt-4"),
        ("openrouter", "openai/gpt-oss-120b:free", "gpt-oss"),
        ("openrouter", "anthropic/claude-haiku-4.5", "claude-4.5"),
        ("openrouter", "anthropic/claude-sonnet-4", "claude-4"),
        ("openrouter", "anthropic/claude-sonnet-4:beta", "claude-4"),
        ("openrouter", "anthropic/claude-3.7-sonnet:thinking", "claude-4"),
        ("openrouter", "anthropic/claude-3.5-haiku", "claude-haiku-3.5"),
        ("cerebras", "qwen-3-coder-480b", "qwen-3-coder"),
        ("ollama", "qwen3-coder:30b", "qwen-3-coder"),
        ("bedrock", "us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-4"),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-4.5"),
        ("vertex", "claude-opus-4@20250514", "claude-4"),
        ("anthropic", "claude-opus-4-7", "claude-4.7"),
        ("openrouter", "anthropic/claude-opus-4.8", "claude-4.8"),
        ("anthropic", "claude-opus-4-8", "claude-4.8"),
        ("anthropic", "claude-sonnet-5", "claude-5"),
        ("anthropic", "claude-sonnet-6", "claude-5"),
        ("gemini", "models/gemini-2.5-flash-lite", "gemini-2.5"),
        ("gemini", "gemini-pro", "gemini-2.0"),
        ("gemini", "gemini-pro-latest", "gemini-3"),
        ("gemini", "gemini-4-flash", "gemini-3"),
        ("gemini-vertex", "gemini-2.0-flash-001", "gemini-2.0"),
        ("ollama", "gemma3:27b", "gemma"),
        ("mistral", "mistral-small-latest", "mistral-small"),
        ("mistral", "mistral-small-2506", "mistral"),
        ("mistral", "mistral-medium-2604", "mistral"),
        ("mistral", "ministral-8b-2512", "mistral"),
        ("mistral", "open-mixtral-8x22b", "mixtral"),
        ("venice", "llama-3.3-70b", "venice-mistral"),
        ("together", "deepseek-ai/DeepSeek-V3.1", "deepseek-v4"),
        ("deepseek", "deepseek-v4-flash", "deepseek-v4-thinking"),
        ("deepseek", "deepseek-chat", "deepseek-v4"),
        ("doubleword", "deepseek-ai/DeepSeek-V4-Flash", "deepseek-v4"),
        ("cerebras", "zai-glm-4.6", "glm"),
        ("zai", "glm-5", "glm"),
        ("crusoe", "zai/GLM-5.2", "glm-5.2"),
        ("zai", "glm-6-air", "glm-5.2"),
        ("groq", "meta-llama/llama-4-scout-17b-16e-instruct", "groq-llama-4"),
        ("together", "meta-llama/Llama-4-Maverick-17B", "llama-4"),
        ("llamacpp", "Qwen3-1.7B-Q4_K_M", "qwen-3"),
        ("llamacpp", "SmolLM2-135M-Instruct.Q4_1", "smollm-2"),
        ("compatible", "accounts/fireworks/models/qwen3p5-235b", "qwen-3"),
        ("xai", "grok-3-mini-fast", "grok-3"),
        ("xai", "grok-code-fast-1", "grok-4"),
        ("compatible", "foo1-bar", "unknown"),
        ("compatible", "", "unknown"),
    ];
    for (service, model, name) in table {
        let found = Template::of(service, model);
        assert_eq!(found.name, name, "{service} {model}");
        assert!(Template::all().any(|template| template == found), "{name} is one of all");
    }
}

#[test]
fn fixed_text_of_a_template_is_counted_once() {
    let template = Template::named("mistral").unwrap();
    let said = vec![testing::user("Hello"), testing::assistant("Hello"), testing::user("Hello")];
    let terms = template.terms(&testing::prompt(said));
    assert_eq!((terms.get(Term::Prompt), terms.get(Term::Message), terms.get(Term::Answer)), (1.0, 3.0, 1.0));
    // <s>[INST]Hello[/INST]Hello</s>[INST]Hello[/INST]
    assert_eq!(template.count(&terms).tokens, 9);
}

#[test]
fn arguments_are_the_members_of_an_object() {
    let table = [("{}", 0.0), (r#"{"a": {"b": 1, "c": 2}, "d": [1, 2]}"#, 2.0), ("[1, 2]", 0.0), ("", 0.0), ("{", 0.0)];
    for (json, expected) in table {
        assert_eq!(arguments(json), expected, "{json}");
    }
}

/// OpenAI's published example of how tools are counted, with the number reported by its API.
#[test]
fn tool_prompt_costs_equal_the_published_ones() {
    let weather = Tool {
        name: "get_current_weather".to_owned(),
        description: "Get the current weather in a given location".to_owned(),
        input_schema: Some(
            r#"{"type": "object", "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {"type": "string", "description": "The unit of temperature to return", "enum": ["celsius", "fahrenheit"]}},
              "required": ["location"]}"#
                .to_owned(),
        ),
        ..testing::tool("")
    };
    let prompt = Prompt {
        system: vec!["You are a helpful assistant that can answer to questions about the weather.".to_owned()],
        tools: vec![weather],
        ..testing::prompt(vec![testing::user("What's the weather like in San Francisco?")])
    };
    let template = Template::named("gpt-4-chat").unwrap();
    assert_eq!(template.count(&template.terms(&prompt)).tokens, 101);
}

#[test]
fn tools_that_may_not_be_called_are_left_out_where_the_family_does_that() {
    let tools = [testing::tool("look")];
    for (name, definitions) in [("mistral", 0.0), ("gpt-4-chat", 1.0)] {
        let template = Template::named(name).unwrap();
        let terms = template.terms_of_tools(&tools, Some(&ToolChoice::None));
        assert_eq!((terms.get(Term::Forbidden), terms.get(Term::Tool)), (1.0, definitions), "{name}");
    }
}

#[test]
fn a_forced_call_hides_other_tools_in_families_that_do_so() {
    let description = "Hears whatever is to be heard, near and far.".to_owned();
    let tools = [testing::tool("look"), Tool { description, ..testing::tool("listen") }];
    for (name, told) in [("mistral", 1.0), ("gpt-4-chat", 2.0)] {
        let template = Template::named(name).unwrap();
        let terms = |choice| template.terms_of_tools(&tools, Some(&choice));
        let forced = terms(ToolChoice::Tool("listen".to_owned()));
        assert_eq!((forced.get(Term::Forced), forced.get(Term::Tool)), (1.0, told), "{name}");
        assert_eq!(terms(ToolChoice::Required).get(Term::Tool), 2.0, "{name}");
    }
    let template = Template::named("mistral").unwrap();
    let forced = template.terms_of_tools(&tools, Some(&ToolChoice::Tool("listen".to_owned())));
    let [other, called] = [0, 1].map(|tool| template.terms_of_tool(&tools[tool]).get(Term::Definition));
    assert_ne!(other, called);
    assert_eq!(forced.get(Term::Definition), called);
}

#[test]
fn past_reasoning_is_left_out_in_families_that_drop_it() {
    let text = |name, message: &Message| Template::named(name).unwrap().terms_of_message(message).get(Term::Text);
    let thought = "<think>Hmm, hmm, hmm.</think>\n\nYes";
    let said = testing::assistant(thought);
    let asked = testing::user(thought);
    let brief = testing::assistant("Yes");
    assert_eq!(text("qwen-3", &said), text("qwen-3", &brief));
    assert!(text("qwen-3", &asked) > text("qwen-3", &brief), "a user's words stay");
    assert!(text("mistral", &said) > text("mistral", &brief), "and so do those of a model whose family keeps them");
}

#[test]
fn reasoning_models_have_extra_prompt_tokens_where_their_service_adds_them() {
    let counted = |service, model, effort| {
        let template = Template::of(service, model);
        let generation = Generation { reasoning_effort: effort, ..Generation::default() };
        template.count(&template.terms_of("", &[], &[testing::user("Hello")], &generation)).tokens
    };
    let off = Some(ReasoningEffort::None);
    let on = Some(ReasoningEffort::High);
    let table = [("deepseek", "deepseek-v4-flash", 79), ("deepseek", "deepseek-chat", 0), ("openai", "gpt-5", 0)];
    for (service, model, more) in table {
        let without = counted(service, model, off);
        assert_eq!(counted(service, model, on), without + more, "{service} {model}");
        assert_eq!(counted(service, model, None), without + more, "{service} {model} thinks unless it is asked not to");
    }
}

/// The size of the block that Anthropic adds for tools, as documented in November 2026.
#[test]
fn the_block_about_tools_has_the_size_that_anthropic_documents() {
    let table = [
        ("claude-opus-4-8", 290.0, 410.0),
        ("claude-opus-4-7", 675.0, 804.0),
        ("claude-opus-4-6", 497.0, 589.0),
        ("claude-haiku-4-5", 496.0, 588.0),
        ("claude-sonnet-5", 354.0, 474.0),
        ("claude-opus-4-1", 313.0, 315.0),
        ("claude-3-5-haiku-latest", 264.0, 355.0),
    ];
    for (model, auto, forced) in table {
        let template = Template::of("anthropic", model);
        let (tools, more) = (template.cost(Term::Tools), template.cost(Term::Forced));
        assert!((tools - auto).abs() <= 5.0, "{model}: {tools}, not {auto}");
        let both = tools + more;
        assert!((both - forced).abs() <= 8.0, "{model}: {both}, not {forced}");
    }
}

#[test]
fn a_budget_of_thinking_is_counted_where_thinking_is_requested() {
    let counted = |service, model, effort| {
        let template = Template::of(service, model);
        let generation = Generation { reasoning_effort: effort, ..Generation::default() };
        template.count(&template.terms_of("", &[], &[testing::user("Hello")], &generation)).tokens
    };
    for (service, model, more) in [
        ("openrouter", "anthropic/claude-haiku-4.5", 30),
        ("snowflake", "claude-sonnet-4-5", 30),
        ("openai", "gpt-5", 0),
    ] {
        let without = counted(service, model, None);
        assert_eq!(counted(service, model, Some(ReasoningEffort::None)), without);
        assert_eq!(counted(service, model, Some(ReasoningEffort::Low)), without + more, "{service} {model}");
    }
}

#[test]
fn a_forced_call_costs_more_beside_a_system_prompt_where_that_was_recorded() {
    let tools = [testing::tool("look")];
    let counted = |service, model, system, choice| {
        let template = Template::of(service, model);
        let generation = Generation { tool_choice: Some(choice), ..Generation::default() };
        template.count(&template.terms_of(system, &tools, &[testing::user("Hello")], &generation)).tokens
    };
    for (service, model, beside_system) in
        [("openai-responses", "gpt-4o", 12), ("openrouter", "openai/gpt-4o-mini", 12), ("copilot", "gpt-4o", 0)]
    {
        for (system, more) in [("", 0), ("Be brief.", beside_system)] {
            let auto = counted(service, model, system, ToolChoice::Auto);
            let forced = counted(service, model, system, ToolChoice::Required);
            assert_eq!(forced, auto + more, "{service} {system:?}");
        }
    }
}

/// The text around tool definitions in the chat template of Qwen 3 Coder.
const QWEN_CODER_TOOLS: [&str; 2] = [
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks.",
    "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>\n</tools>\n\n\
     If you choose to call a function ONLY reply in the following format with NO suffix:\n\n\
     <tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n\
     </parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\n\
     that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\n\
     Reminder:\n- Function calls MUST follow the specified format: an inner \
     <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n\
     - Required parameters MUST be specified\n- You may provide optional reasoning for your \
     function call in natural language BEFORE the function call, but NOT after\n- If there is no \
     function call available, answer the question like normal with your current knowledge and do \
     not tell the user about function calls\n</IMPORTANT>",
];

#[test]
fn qwen_coder_writes_tools_as_its_published_template_does() {
    let template = Template::of("cerebras", "qwen-3-coder-480b");
    let [system, block] = QWEN_CODER_TOOLS.map(|text| template.tokens(text));
    let system = system + template.cost(Term::System);
    let (tools, beside) = (template.cost(Term::Tools), template.cost(Term::ToolsBesideSystem));
    assert!((tools - system - block).abs() <= 2.0, "{tools}, not {system} + {block}");
    assert!((beside + system).abs() <= 2.0, "{beside}, not {system}");
    let weather = Tool {
        name: "weather".to_owned(),
        description: "How it is.".to_owned(),
        input_schema: Some(
            r#"{"type":"object","properties":{"city":{"type":"string","description":"Where","maxLength":9}},"required":["city"]}"#
                .to_owned(),
        ),
        ..testing::tool("")
    };
    assert_eq!(
        template.definitions.write(&weather).texts,
        ["\n<function>\n<name>weather</name>\n<description>How it is.</description>\n<parameters>\
             \n<parameter>\n<name>city</name>\n<type>string</type>\n<description>Where</description>\
             \n<maxLength>9</maxLength>\n</parameter>\n<required>[\"city\"]</required>\n</parameters>\
             \n</function>"]
    );
}

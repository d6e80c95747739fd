//! Which reasoning and provider items are sent with a later prompt, and what the rest would have
//! cost. The provider's rule is applied to each message.

use std::borrow::Cow;

use crate::{
    context::estimator::KeptReasoning,
    model::{
        Content, Message, ModelResponse, Part, Role,
        message::StoredPart,
        transcript::{calling_turns, loop_begins},
    },
    provider::{PastReasoning, registry::ResolvedModel},
};

/// The position of a part of a response.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct Place {
    /// This model wrote it.
    pub(in crate::turn) own: bool,
    /// There is no user message after it.
    pub(in crate::turn) in_loop: bool,
    /// The responses between the user messages before and after it contain tool calls.
    pub(in crate::turn) in_calling_turn: bool,
}

/// The state of the current tool loop in a prompt that was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::turn) struct SentLoop {
    /// Tokens of reasoning that is no longer sent after the next user message, as reported by the provider, or else
    /// estimated.
    pub(in crate::turn) passing: u32,
    /// The loop contains tool calls.
    pub(in crate::turn) calls: bool,
}

/// Whether a part is reasoning or a provider item that is not sent with the next prompt.
pub(in crate::turn) fn is_unsent(model: &ResolvedModel, part: &Part, place: Place) -> bool {
    match &part.content {
        Content::Reasoning { .. } => !sends(model, part, place),
        Content::ProviderItem(item) => !model.provider.sends_item(&item.provider, place.own),
        Content::Text(_)
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::Unknown(_) => false,
    }
}

/// The part of a response's reasoning that is sent with the next prompt. After a response with
/// calls, the next prompt is in the same loop; otherwise it follows a user message.
pub(in crate::turn) fn kept(model: &ResolvedModel, answer: &[StoredPart], before: SentLoop) -> KeptReasoning {
    let in_loop = !ends_loop(answer);
    let place = Place { own: true, in_loop, in_calling_turn: in_loop || before.calls };
    let mut reasoning = answer.iter().map(|stored| &stored.part).filter(|part| is_reasoning(part)).peekable();
    let hidden = reasoning.peek().is_none();
    if hidden || reasoning.any(|part| !sends(model, part, place)) { KeptReasoning::Nothing } else { KeptReasoning::All }
}

/// Whether the response ends the tool loop because it contains no call.
pub(in crate::turn) fn ends_loop(answer: &[StoredPart]) -> bool {
    !answer.iter().any(|stored| matches!(stored.part.content, Content::ToolCall(_)))
}

/// The state of the tool loop in a prompt that was sent.
pub(in crate::turn) fn tool_loop(model: &ResolvedModel, sent: &[Message]) -> SentLoop {
    let begins = loop_begins(sent);
    let calls = sent.iter().skip(begins).any(Message::calls);
    let passing = |message: &Message| {
        let own = is_own(model, message.response.as_ref());
        let place = |in_loop| Place { own, in_loop, in_calling_turn: calls };
        let passes =
            |part: &Part| is_reasoning(part) && sends(model, part, place(true)) && !sends(model, part, place(false));
        let passing = || message.parts.iter().filter(|stored| passes(&stored.part));
        let estimated = passing().map(|stored| stored.size.tokens).fold(0, u32::saturating_add);
        let usage = message.response.as_ref().and_then(|response| response.usage.as_ref());
        let reported = usage.map(|usage| usage.reasoning).filter(|tokens| *tokens > 0);
        // The estimate may be 0: some model families are assumed never to read their reasoning
        // again.
        if passing().next().is_some() { reported.unwrap_or(estimated) } else { 0 }
    };
    let answers = sent.iter().skip(begins + 1).filter(|message| message.role == Role::Assistant);
    SentLoop { passing: answers.map(passing).fold(0, u32::saturating_add), calls }
}

/// The messages as sent with the next prompt, without the parts that are left out.
pub(in crate::turn) fn as_sent<'a>(model: &ResolvedModel, messages: &'a [Message]) -> Cow<'a, [Message]> {
    let loop_begins = loop_begins(messages);
    let calling = calling_turns(messages.iter().map(|it| (it.role, it.calls())));
    let goes = |message: &Message, part: &Part, at: usize| {
        let place = Place {
            own: is_own(model, message.response.as_ref()),
            in_loop: at > loop_begins,
            in_calling_turn: calling[at],
        };
        !is_unsent(model, part, place)
    };
    let whole = |(at, message): (usize, &Message)| message.parts.iter().all(|stored| goes(message, &stored.part, at));
    if messages.iter().enumerate().all(whole) {
        return Cow::Borrowed(messages);
    }
    let without = |(at, message): (usize, &Message)| {
        let parts = message.parts.iter().filter(|stored| goes(message, &stored.part, at)).cloned().collect();
        Message { parts, ..message.clone() }
    };
    Cow::Owned(messages.iter().enumerate().map(without).collect())
}

fn sends(model: &ResolvedModel, part: &Part, place: Place) -> bool {
    let Place { own, in_loop, in_calling_turn } = place;
    let reasoning = PastReasoning { has_metadata: part.provider_metadata.is_some(), own, in_loop, in_calling_turn };
    model.provider.sends_reasoning(&model.info, reasoning)
}

fn is_reasoning(part: &Part) -> bool {
    matches!(part.content, Content::Reasoning { .. })
}

/// Whether this model produced the response of a message.
pub(in crate::turn) fn is_own(model: &ResolvedModel, response: Option<&ModelResponse>) -> bool {
    response.is_some_and(|response| response.provider == model.provider_name && response.model == model.reference)
}

#[cfg(test)]
pub(in crate::turn) mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::{
        context::testing::{calls, message, prompt, response, results, user},
        model::{Category, Prompt, ProviderItem, Usage},
        provider::{
            Provider, Registry,
            anthropic::Anthropic,
            http::Settings,
            openai::{OpenAi, dialect, dialect::Dialect},
            responses::{self, Responses},
        },
        turn::context::size,
    };

    /// A model of a service with this dialect.
    pub(in crate::turn) fn model(dialect: &'static Dialect) -> ResolvedModel {
        let provider = OpenAi::new("main", Settings::nowhere(), dialect, BTreeMap::new()).expect("a provider");
        resolved(Arc::new(provider))
    }

    fn responses(dialect: &'static responses::dialect::Dialect) -> ResolvedModel {
        let provider = Responses::new("main", Settings::nowhere(), dialect, BTreeMap::new()).expect("a provider");
        resolved(Arc::new(provider))
    }

    fn anthropic() -> ResolvedModel {
        let provider = Anthropic::new("main", Settings::nowhere(), BTreeMap::new()).expect("a provider");
        resolved(Arc::new(provider))
    }

    fn resolved(provider: Arc<dyn Provider>) -> ResolvedModel {
        Registry::default().with("main", provider).resolve("main/m").expect("a model")
    }

    /// Reasoning before a response and before a call, by this model and by another one, with and
    /// without the details of OpenRouter.
    pub(in crate::turn) fn conversation() -> Vec<Message> {
        conversation_with(|text| {
            format!(r#"{{"openai":{{"reasoning_details":[{{"type":"reasoning.text","text":"{text}"}}]}}}}"#)
        })
    }

    /// Like [`conversation`], with other details of the reasoning.
    fn conversation_with(details: impl Fn(&str) -> String) -> Vec<Message> {
        let thought = |n: u32, with_details: bool| {
            let text = format!("thought-{n}!");
            let metadata = with_details.then(|| details(&text));
            let content = Content::Reasoning { text, redacted: false };
            Part { provider_metadata: metadata, ..Part::new(content) }
        };
        let by = |model: &str, parts: Vec<Part>| {
            let usage = Some(Usage { reasoning: 1_000, ..Usage::default() });
            let (provider, _) = model.split_once('/').expect("a reference");
            let response = ModelResponse { provider: provider.to_owned(), usage, ..response(model) };
            Message { response: Some(response), ..message(Role::Assistant, parts) }
        };
        let call = |tool: &str| calls(&[tool]).parts[0].part.clone();
        vec![
            user("One."),
            by("main/m", vec![thought(1, false), Part::text("a")]),
            by("main/m", vec![thought(2, true), Part::text("b")]),
            user("Two."),
            by("main/m", vec![thought(3, false), call("look")]),
            results(&[("look", "seen")]),
            by("main/m", vec![thought(4, true), call("list")]),
            results(&[("list", "seen")]),
            by("other/m", vec![thought(5, true), call("find")]),
            results(&[("find", "seen")]),
        ]
    }

    #[test]
    fn reasoning_is_counted_as_the_request_includes_it() {
        let chat = dialect::DIALECTS.iter().map(|dialect| (dialect.name, model(dialect), conversation()));
        let encrypted = |_: &str| r#"{"openai-responses":{"id":"rs_1","encrypted_content":"x"}}"#.to_owned();
        let items = responses::dialect::DIALECTS
            .iter()
            .map(|dialect| (dialect.name, responses(dialect), conversation_with(encrypted)));
        for (name, model, messages) in chat.chain(items) {
            let sent = as_sent(&model, &messages);
            let prompt = Prompt { model: "m".to_owned(), ..prompt(messages.clone()) };
            let body = model.provider.request(&prompt).expect("a request").body;
            let body = String::from_utf8(body).expect("UTF-8");
            for n in 1..=5 {
                let text = format!("thought-{n}!");
                let counted = sent.iter().flat_map(|message| &message.parts).any(
                    |stored| matches!(&stored.part.content, Content::Reasoning { text: known, .. } if *known == text),
                );
                assert_eq!(counted, body.contains(&text), "{name} {text}");
            }
            let all = |messages: &[Message]| {
                let parts = messages.iter().flat_map(|message| &message.parts);
                parts.filter(|stored| is_reasoning(&stored.part)).map(|stored| stored.size.tokens).sum::<u32>()
            };
            let unsent = size::unsupported(&model, &size::Excerpt::whole(&messages));
            let unsent = unsent.get(&Category::Reasoning).copied().unwrap_or_default();
            assert_eq!(unsent, all(&messages) - all(&sent), "{}", name);
        }
    }

    #[test]
    fn an_item_of_another_provider_is_not_counted() {
        let item = |provider: &str| ProviderItem {
            provider: provider.to_owned(),
            kind: "web_search_call".to_owned(),
            json: r#"{"found":"a"}"#.to_owned(),
            title: String::new(),
        };
        let answer = |provider: &str| Message {
            response: Some(ModelResponse { provider: "main".to_owned(), ..response("main/m") }),
            ..message(Role::Assistant, vec![Part::new(Content::ProviderItem(item(provider)))])
        };
        let messages = vec![user("Search."), answer("main"), answer("other")];
        let size = messages[1].parts[0].size.tokens;
        assert!(size > 0);
        // Chat Completions has no items.
        let table = [(anthropic(), size), (model(dialect::named("openai").expect("a dialect")), 2 * size)];
        for (model, expected) in table {
            let unsent = size::unsupported(&model, &size::Excerpt::whole(&messages));
            let kind = model.provider.kind();
            assert_eq!(unsent.values().sum::<u32>(), expected, "{kind}");
            let kept = as_sent(&model, &messages);
            let kept = kept.iter().flat_map(|message| &message.parts);
            let kept = kept.map(|stored| stored.size.tokens).sum::<u32>();
            let all: u32 = size * 2 + messages[0].parts[0].size.tokens;
            assert_eq!(all - kept, expected, "{kind}");
        }
    }

    #[test]
    fn reasoning_within_a_tool_loop_is_sent_back() {
        let (all, nothing) = (KeptReasoning::All, KeptReasoning::Nothing);
        let table = [
            ("deepseek", 0, all, nothing),
            ("zai", 2_000, all, nothing),
            ("openrouter", 0, nothing, nothing),
            ("openai", 0, nothing, nothing),
        ];
        let messages = conversation();
        for (name, expected, within, after) in table {
            let model = model(dialect::named(name).expect("a dialect"));
            let before = tool_loop(&model, &messages);
            let sent = SentLoop { passing: expected, calls: true };
            assert_eq!(before, sent, "{name}");
            // Reasoning without details: before a call, and at the end of the loop.
            assert_eq!(kept(&model, &messages[4].parts, SentLoop::default()), within, "{name}");
            let ends = |before| kept(&model, &messages[1].parts, before);
            assert_eq!(ends(SentLoop::default()), after, "{name}");
            let after_calls = if name == "deepseek" { all } else { after };
            assert_eq!(ends(before), after_calls, "{name}");
        }
        let model = model(dialect::named("openrouter").expect("a dialect"));
        assert_eq!(kept(&model, &messages[2].parts, SentLoop::default()), all, "details are always sent back");
        assert_eq!(kept(&model, &user("Hidden.").parts, SentLoop::default()), nothing, "hidden text is never sent");
    }
}

//! CountTokens: counts the tokens of a prompt without sending it.

use std::sync::Arc;

use crate::{
    context::{
        count::{CountInput, Counts},
        media::leave_out,
        prompt,
        size::ContextSize,
    },
    model::{
        Message, Prompt, SessionConfig, SessionKey, TenantId, Tool, ToolSet, Transcript,
        command::{CountTokens, TurnRequest},
    },
    turn::{
        Error,
        context::{
            estimators::template, measured::unstored, media::cannot_read, prompt_call::PromptCall, reasoning,
            session_view::SessionView,
        },
        engine::Prompts,
    },
};

/// The step of the turn that would send the prompt.
const FIRST_STEP: u32 = 1;

/// What the session contributes to the prompt.
#[derive(Default)]
struct SessionPrompt {
    model: String,
    system: String,
    tools: ToolSet,
    config: SessionConfig,
    messages: Vec<Message>,
    /// The session's view, if a call of its model has measured its size.
    view: Option<SessionView>,
}

impl Prompts {
    /// Counts tokens. If the provider cannot count, or the model has no known tokenizer, the
    /// numbers are estimates and marked as such.
    pub async fn count_tokens(&self, tenant: TenantId, command: CountTokens) -> Result<Counts, Error> {
        let CountTokens { session, model, messages, contents, system, tools, exact } = command;
        let mut tools = tools;
        if let Some(tools) = &mut tools {
            self.mcp.resolve(&tenant, tools).await?;
        }
        let mut _memory = None;
        let mut ground = match session {
            Some(session) => {
                let key = SessionKey::new(tenant.clone(), session);
                _memory = Some(self.reserve_session_memory(&key, 0).await?);
                self.session_prompt(&key).await?
            }
            None => {
                SessionPrompt { model: self.rules.models.default_model.clone(), system, ..SessionPrompt::default() }
            }
        };
        let model = self.model(model.as_ref().unwrap_or(&ground.model))?;
        let measured = ground.view.as_ref().and_then(|view| {
            let told = tools.as_ref().unwrap_or(&ground.tools);
            Some(view.size_of(&view.call(&model).with_tools(told)))
                .filter(ContextSize::is_anchored)
                .map(|size| size.size().count)
        });
        let tools = tools.unwrap_or(ground.tools);
        // Counts the prompt that would be sent. For example, not every reasoning model is sent a
        // forced tool call.
        let request = TurnRequest::default();
        let call = PromptCall::new(&ground.config, &request, FIRST_STEP, false, &model).with_tools(&tools);
        let told = |tool: &&Tool| model.info.supports_tools && !tool.deferred;
        let single = messages.len();
        ground.messages.extend(messages.into_iter().map(unstored));
        // Leaves out media that the model would not read.
        leave_out(&mut ground.messages, &model.reference, |media, role| cannot_read(&model, media, role));
        let messages = reasoning::as_sent(&model, &ground.messages).into_owned();
        let arranged = |messages| model.provider.arrangement(&ground.system, messages);
        let all = arranged(&messages);
        let before = arranged(&messages[..messages.len() - single]);
        let counting = CountInput {
            template: template(&model),
            calibration: self.calibration(&tenant, &model.reference).await?,
            system: ground.system,
            tools: tools.tools.iter().filter(told).cloned().collect(),
            generation: call.generation(),
            messages,
            single,
            measured,
            arranged: (all.clone(), all.less(&before)),
        };
        let mut reported = None;
        // A conversation with open calls is never sent to a model.
        if exact
            && model.provider.can_count_tokens()
            && let Ok(transcript) = Transcript::new(counting.messages.clone()).close()
        {
            let (transcript, carried) = self.contents(&tenant, &model, transcript, &contents).await?;
            let system = vec![counting.system.clone()];
            let prompt = Prompt { system, contents: carried.contents(), ..call.prompt(transcript, None) };
            reported = model.provider.count(Arc::new(prompt)).await?;
        }
        // Counting a long conversation takes a while, so that it runs on a blocking thread. The
        // place is held until the count is done, even if the caller disconnects.
        let place = self.counts.acquire(&tenant).await;
        let counts = tokio::task::spawn_blocking(move || {
            let _place = place;
            counting.count(reported)
        })
        .await;
        counts.map_err(|error| Error::Internal(format!("counting failed: {error}")))
    }

    /// The contents of a session's next prompt.
    async fn session_prompt(&self, key: &SessionKey) -> Result<SessionPrompt, Error> {
        let view = self.session_view(key).await?;
        let config = view.session.config.clone();
        Ok(SessionPrompt {
            system: prompt::system(&config),
            model: config.model.clone(),
            tools: config.tools.clone(),
            config,
            messages: view.messages.clone(),
            view: Some(view),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use crate::{
        context::testing::{CASES, assistant, calls, message, prompt, results, user},
        model::{Message, Part, Prompt, Role},
        provider::openai::dialect,
        turn::context::reasoning::tests::model,
    };

    /// The messages of one kind: a user message, a response, a call with its result, or
    /// instructions.
    fn said(kind: usize) -> Vec<Message> {
        match kind {
            0 => vec![user("What is there?")],
            1 => vec![assistant("A tree.")],
            2 => vec![calls(&["look"]), results(&[("look", "seen")])],
            _ => vec![message(Role::System, vec![Part::text("In French.")])],
        }
    }

    /// The number of messages per role, and the number of letters of all texts in a request.
    fn in_request(body: &[u8]) -> ([i64; 4], i64) {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let mut roles = [0; 4];
        let mut letters = 0;
        for message in body["messages"].as_array().expect("messages") {
            let at = match message["role"].as_str().expect("a role") {
                "system" | "developer" => 0,
                "user" => 1,
                "assistant" => 2,
                "tool" => 3,
                other => panic!("{other}"),
            };
            roles[at] += 1;
            letters += message["content"].as_str().map_or(0, |text| text.len() as i64);
        }
        (roles, letters)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn messages_and_texts_that_are_counted_are_those_that_the_request_holds(
            kinds in proptest::collection::vec(0_usize..4, 1..9), instructed in any::<bool>(),
        ) {
            let messages: Vec<Message> = kinds.into_iter().flat_map(said).collect();
            let system = if instructed { "Be brief." } else { "" };
            for dialect in dialect::DIALECTS {
                let model = model(dialect);
                let prompt = Prompt { model: "m".to_owned(), system: vec![system.to_owned()], ..prompt(messages.clone()) };
                let sent = in_request(&model.provider.request(&prompt).expect("a request").body);
                let arranged = model.provider.arrangement(system, &messages);
                let mut roles = [i64::from(instructed), 0, 0, 0];
                let mut letters = system.len() as i64;
                for message in &messages {
                    roles[message.role as usize] += 1;
                    let texts = message.parts.iter().map(|stored| match &stored.part.content {
                        crate::model::Content::Text(text) => text.len(),
                        crate::model::Content::ToolResult(result) => result.texts().map(str::len).sum(),
                        crate::model::Content::Reasoning { .. }
                        | crate::model::Content::ToolCall(_)
                        | crate::model::Content::Refusal(_)
                        | crate::model::Content::Media(_)
                        | crate::model::Content::ProviderItem(_) | crate::model::Content::Unknown(_) => 0,
                    });
                    letters += texts.sum::<usize>() as i64;
                }
                for (role, count) in &arranged.messages {
                    roles[*role as usize] += count;
                }
                letters += arranged.texts.iter().map(|(text, count)| text.len() as i64 * count).sum::<i64>();
                prop_assert_eq!((roles, letters), sent, "{}", dialect.name);
            }
        }
    }
}

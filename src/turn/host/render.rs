//! RenderContext: a session's next prompt, without sending it.

use crate::{
    context::notes::notes,
    fair::FairPermit,
    model::{
        Contents, Message, Prompt, PromptFormat, PromptNote, Seq, SessionKey, TenantId, TokenCount, Transcript,
        command::{RenderContext, TurnRequest},
        message::{Pruned, StoredPart},
        transcript::NotClosed,
    },
    provider::{self, Request, registry::ResolvedModel},
    store::{
        message::{Page, View},
        version::Version,
    },
    turn::{
        Error,
        context::{session_view::SessionView, window::budget},
        engine::Prompts,
    },
};

/// A rendered prompt.
#[derive(Debug)]
pub struct Rendered {
    /// Reference of the model that the prompt is for.
    pub model: String,
    pub prompt: Prompt,
    /// The body of the request, if the shape has one.
    pub body: Option<Vec<u8>>,
    /// Version of the transcript. 0 for a past seq.
    pub version: i64,
    /// What was left out of the prompt, and why.
    pub notes: Vec<PromptNote>,
    /// The memory held for it.
    pub memory: Option<FairPermit>,
}

impl Prompts {
    /// The next prompt of a session, or the prompt as of a past seq.
    pub async fn render(&self, tenant: TenantId, command: RenderContext) -> Result<Rendered, Error> {
        let RenderContext { session, model, format: shape, at } = command;
        let key = SessionKey::new(tenant, session);
        let media = self.max_media_bytes(&key, shape).await?;
        let memory = Some(self.reserve_session_memory(&key, media).await?);
        match at {
            Some(at) => {
                let view = self.standing_at(&key, at).await?;
                let model = self.model(view.model(model.as_deref()))?;
                let prompt = self.prompt_from(view, &model)?;
                Ok(Rendered { version: 0, memory, ..self.rendered(&key.tenant, &model, prompt, shape).await? })
            }
            None => {
                let view = self.session_view(&key).await?;
                let model = self.model(view.model(model.as_deref()))?;
                let version = view.version.number();
                let (view, size) = self.as_sent_next(view, &model)?;
                let prompt = Prompt { size, ..self.prompt_from(view, &model)? };
                Ok(Rendered { version, memory, ..self.rendered(&key.tenant, &model, prompt, shape).await? })
            }
        }
    }

    /// The session and the prompt size as the next turn would send them: if the policy requires it,
    /// a turn prunes before its first call.
    fn as_sent_next(&self, mut view: SessionView, model: &ResolvedModel) -> Result<(SessionView, TokenCount), Error> {
        let size = view.size(model).size();
        let policy = self.policy(&view.session.config)?.context;
        let Ok(budget) = budget(&policy, model) else {
            return Ok((view, size.count));
        };
        let due = view.due(&policy, model, budget).filter(|_| view.session.current_turn.is_none());
        let Some((pruning, planned)) = due else {
            return Ok((view, size.count));
        };
        for output in &pruning.outputs {
            let message = view.messages.iter_mut().find(|it| it.id == output.message);
            if let Some(stored) = message.and_then(|it| it.parts.get_mut(output.position)) {
                let pruned = Pruned { at: view.session.last_seq, time: None, original_tokens: stored.size.tokens };
                *stored = StoredPart { pruned: Some(pruned), ..stored.clone() }.as_sent_to_model();
            }
        }
        Ok((view, planned.pruned))
    }

    /// A prompt in its shape, with the media that the model accepts. Their content is read if the
    /// shape is a request body.
    async fn rendered(
        &self,
        tenant: &TenantId,
        model: &ResolvedModel,
        prompt: Prompt,
        shape: PromptFormat,
    ) -> Result<Rendered, Error> {
        let (transcript, carried) = if shape.is_body() {
            self.contents(tenant, model, prompt.transcript, &[]).await?
        } else {
            self.references(model, prompt.transcript)?
        };
        let contents = carried.contents();
        Ok(rendered(model, Prompt { transcript, contents, ..prompt }, shape, carried.notes()))
    }

    /// The next prompt with its size, rendered.
    pub(in crate::turn) async fn shown(
        &self,
        key: &SessionKey,
        view: &SessionView,
        model: &ResolvedModel,
        shape: PromptFormat,
    ) -> Result<Rendered, Error> {
        let prompt = Prompt { size: view.size(model).size().count, ..self.prompt(view, model)? };
        let version = view.version.number();
        Ok(Rendered { version, ..self.rendered(&key.tenant, model, prompt, shape).await? })
    }

    /// The session as of a seq. Rows up to a seq never change.
    async fn standing_at(&self, key: &SessionKey, at: Seq) -> Result<SessionView, Error> {
        let not_found = || Error::SessionNotFound(key.session.clone());
        let revision = self.store.revision_at(key, at).await?.ok_or_else(not_found)?;
        let session = self.store.session_at(key, revision).await?.ok_or_else(not_found)?;
        if at > session.last_seq {
            return Err(Error::AtSeqAhead { last: session.last_seq });
        }
        let placed = self.store.messages(key, View::Live, Some(at), Page::After(Seq(0)), u32::MAX).await?;
        let messages = placed.into_iter().map(|placed| placed.message).collect();
        let version = Version { context: session.context_version, epoch: 0, op: 0, revision };
        Ok(SessionView { session, version, request: TurnRequest::default(), late: false, step: 1, messages })
    }

    /// The prompt that a turn would build from the view.
    pub(in crate::turn) fn prompt(&self, view: &SessionView, model: &ResolvedModel) -> Result<Prompt, Error> {
        self.prompt_of(view, view.messages.clone(), model)
    }

    /// Like [`Prompts::prompt`], without copying the messages.
    fn prompt_from(&self, mut view: SessionView, model: &ResolvedModel) -> Result<Prompt, Error> {
        let messages = std::mem::take(&mut view.messages);
        self.prompt_of(&view, messages, model)
    }

    fn prompt_of(&self, view: &SessionView, messages: Vec<Message>, model: &ResolvedModel) -> Result<Prompt, Error> {
        let transcript = Transcript::new(messages).close().map_err(|error| match error {
            NotClosed::Open(calls) => Error::TranscriptOpen(calls),
            NotClosed::Broken(_) => Error::Internal(error.to_string()),
        })?;
        let limits = self.limits(&view.session.config, &view.request);
        let call = view.call(model);
        Ok(call.prompt(transcript, limits.max_output_tokens))
    }
}

/// A prompt in its shape, without the content of its media. A model whose provider builds no
/// request gets the neutral prompt. `unsupported`: the notes on parts that were replaced.
fn rendered(model: &ResolvedModel, prompt: Prompt, shape: PromptFormat, unsupported: Vec<PromptNote>) -> Rendered {
    let own = shape.is_body().then(|| model.provider.request(&prompt)).flatten();
    let request = own
        .filter(|own| shape == PromptFormat::Native || own.shape == shape)
        .or_else(|| provider::request_in(shape, &prompt, &model.provider_name));
    let mut notes = notes(prompt.transcript.messages());
    notes.extend(unsupported);
    let (body, left_out) =
        request.map_or((None, Vec::new()), |Request { shape: _, body, left_out }| (Some(body), left_out));
    notes.extend(left_out);
    let prompt = Prompt { contents: Contents::default(), ..prompt };
    Rendered { model: model.reference.clone(), prompt, body, version: 0, notes, memory: None }
}

//! A consistent view of a session, from which its next prompt is built.

use crate::{
    context::size::ContextSize,
    model::{Message, ToolSet, command::TurnRequest},
    provider::registry::ResolvedModel,
    store::{session::Session, version::Version},
    turn::{context::size::PromptCall, run::step_tools::tools_in_force},
};

/// A consistent view of a session, from which its next prompt is built.
#[derive(Debug, Clone)]
pub(in crate::turn) struct SessionView {
    pub(in crate::turn) session: Session,
    /// Version of the transcript.
    pub(in crate::turn) version: Version,
    /// The settings of the live turn.
    pub(in crate::turn) request: TurnRequest,
    /// The live turn's time has passed: its last step has no tools.
    pub(in crate::turn) late: bool,
    /// The step that the prompt is for.
    pub(in crate::turn) step: u32,
    /// The transcript as the model sees it.
    pub(in crate::turn) messages: Vec<Message>,
}

impl SessionView {
    /// The model to call: the named one, the live turn's, or the session's.
    pub(in crate::turn) fn model<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        named
            .or(self.request.model.as_deref())
            .unwrap_or(&self.session.config.model)
    }

    /// The tools that are sent to the model.
    pub(in crate::turn) fn tools(&self) -> &ToolSet {
        tools_in_force(&self.request, &self.session.config, self.late)
    }

    /// The size of the prompt.
    pub(in crate::turn) fn size(&self, model: &ResolvedModel) -> ContextSize<'_> {
        self.size_with(self.tools(), model)
    }

    /// The size of the prompt with these tools.
    pub(in crate::turn) fn size_with(
        &self,
        tools: &ToolSet,
        model: &ResolvedModel,
    ) -> ContextSize<'_> {
        let Self {
            session,
            request,
            step,
            messages,
            version: _,
            late: _,
        } = self;
        let call = PromptCall {
            config: &session.config,
            tools,
            request,
            step: *step,
            model: model.into(),
        };
        call.size(session.into(), messages)
    }
}

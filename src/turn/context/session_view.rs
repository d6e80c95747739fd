//! A session at one time: what its next prompt is made of.

use crate::{
    context::size::ContextSize,
    model::{Message, ToolSet, command::TurnRequest},
    provider::registry::Resolved,
    store::{session::Session, version::Version},
    turn::{context::size::PromptCall, run::step_tools::tools_in_force},
};

/// A session at one time: what its next prompt is made of.
#[derive(Debug, Clone)]
pub(in crate::turn) struct SessionView {
    /// The session.
    pub(in crate::turn) session: Session,
    /// What its transcript is.
    pub(in crate::turn) version: Version,
    /// What its live turn does differently.
    pub(in crate::turn) request: TurnRequest,
    /// That turn's time is up: its last step has no tools.
    pub(in crate::turn) late: bool,
    /// The step that the prompt is for.
    pub(in crate::turn) step: u32,
    /// The transcript as the model sees it.
    pub(in crate::turn) messages: Vec<Message>,
}

impl SessionView {
    /// The model to ask: the one that is named, the live turn's, or the session's.
    pub(in crate::turn) fn model<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        named
            .or(self.request.model.as_deref())
            .unwrap_or(&self.session.config.model)
    }

    /// The tools that it is sent.
    pub(in crate::turn) fn tools(&self) -> &ToolSet {
        tools_in_force(&self.request, &self.session.config, self.late)
    }

    /// The size of the prompt.
    pub(in crate::turn) fn size(&self, model: &Resolved) -> ContextSize<'_> {
        self.size_with(self.tools(), model)
    }

    /// The size of the prompt with these tools.
    pub(in crate::turn) fn size_with(&self, tools: &ToolSet, model: &Resolved) -> ContextSize<'_> {
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

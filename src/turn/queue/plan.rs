//! Plans the turn that a queued message starts.

use uuid::Uuid;

use crate::{
    codec,
    model::{
        DropReason, MessageId, Payload, RequestId, SessionKey, TurnId,
        command::{Idempotency, TurnRequest},
    },
    session::{queue::MessageSelection, queue_rows::Withdrawal},
    store::{admission::Admission, following::NextTurn, queue::QueuedMessage},
    turn::{
        Error,
        context::window::budget,
        engine::{Prompts, SessionCommands},
        opening::{OpenedTurn, Opening, StartingPoint},
    },
};

/// A turn that is about to begin for a queued message.
#[derive(Debug)]
pub(in crate::turn) struct PlannedTurn {
    pub(in crate::turn) message: MessageId,
    opened: OpenedTurn,
}

impl PlannedTurn {
    /// The admission of the turn in an idle session.
    pub(in crate::turn) fn admission(&self) -> Admission<'_> {
        self.opened.admission(false)
    }

    /// The admission of the turn as the successor of another one.
    pub(in crate::turn) fn next(&self) -> NextTurn<'_> {
        NextTurn { message: &self.message, admission: self.admission() }
    }
}

impl SessionCommands {
    /// Plans the turn that a queued message starts. Returns `None` if the message cannot be
    /// decoded; it is dropped.
    pub(in crate::turn) async fn plan_for(
        &self,
        key: &SessionKey,
        starter: &QueuedMessage,
        start: StartingPoint<'_>,
    ) -> Result<Option<PlannedTurn>, Error> {
        let readable = codec::queue::decode(&starter.body).and_then(|_| match &starter.execute {
            Some(request) => codec::turn::decode_request(request),
            None => Ok(TurnRequest::default()),
        });
        match readable {
            Ok(request) => self.prompts.plan(&starter.message, starter.request.clone(), &request, start).map(Some),
            Err(error) => {
                tracing::error!(session.id = %key.session, message.id = %starter.message, %error, "cannot decode a queued message; dropping it");
                let (message, reason) = (&starter.message, DropReason::Unreadable);
                let dropped = Payload::QueuedMessageDropped { message: message.clone(), reason };
                let dropped = codec::event::encode(&dropped).payload;
                let which = MessageSelection::These(std::slice::from_ref(message));
                self.withdraw(key, which, Withdrawal::Dropped(reason), &dropped).await?;
                Ok(None)
            }
        }
    }
}

impl Prompts {
    /// Plans the turn that a queued message starts.
    pub(in crate::turn) fn plan(
        &self,
        message: &MessageId,
        request_id: Option<RequestId>,
        request: &TurnRequest,
        start: StartingPoint<'_>,
    ) -> Result<PlannedTurn, Error> {
        let config = start.config;
        let policy = self.policy(config)?;
        let model = self.model(request.model.as_ref().unwrap_or(&config.model))?;
        let opening = Opening {
            turn: TurnId::new(Uuid::now_v7().to_string()),
            idempotency: Idempotency { request: request_id, hash: String::new() },
            request,
            input: None,
            size: None,
            model: &model,
            limits: self.limits(config, request),
            // If no window may be assumed, the turn is started anyway and fails before its first
            // call. Without a turn, the message would stay queued with no visible reason.
            budget: budget(&policy.context, &model).ok(),
            start,
        };
        Ok(PlannedTurn { message: message.clone(), opened: opening.open() })
    }
}

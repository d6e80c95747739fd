//! Plans the turn that a queued message starts.

use uuid::Uuid;

use crate::{
    codec,
    model::{
        DropReason, LimitsOverride, MessageId, RequestId, SessionKey, TurnId,
        command::{Idempotency, TurnRequest},
    },
    session::{change::TurnRow, rows::Rows, start::NewTurn},
    store::{admission::Admission, following::NextTurn, queue::QueuedMessage},
    turn::{
        Error,
        context::window::budget,
        engine::Engine,
        opening::{Opening, StartingPoint, opening},
    },
};

/// A turn that is about to begin for a queued message.
#[derive(Debug)]
pub(in crate::turn) struct PlannedTurn {
    pub(in crate::turn) message: MessageId,
    turn: TurnId,
    rows: Rows,
    timeout: std::time::Duration,
    revision: i64,
    idempotency: Idempotency,
    request: TurnRequest,
    model: String,
}

impl PlannedTurn {
    /// The admission of the turn in an idle session.
    pub(in crate::turn) fn admission(&self) -> Admission<'_> {
        let request_id = self.idempotency.request.as_ref();
        let new = NewTurn {
            turn: &self.turn,
            rows: &self.rows,
            timeout: self.timeout,
            revision: self.revision,
            row: TurnRow { request_id, request: &self.request, model: &self.model },
        };
        Admission { new, idempotency: &self.idempotency, continues: false }
    }

    /// The admission of the turn as the successor of another one.
    pub(in crate::turn) fn next<'a>(&'a self, admission: &'a Admission<'a>) -> NextTurn<'a> {
        NextTurn { message: &self.message, admission }
    }
}

impl Engine {
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
            Ok(request) => self.plan(&starter.message, starter.request.clone(), &request, start).map(Some),
            Err(error) => {
                tracing::error!(session.id = %key.session, message.id = %starter.message, %error, "cannot decode a queued message; dropping it");
                self.drop_queued_message(key, &starter.message, DropReason::Unreadable).await?;
                Ok(None)
            }
        }
    }

    /// Plans the turn that a queued message starts.
    pub(in crate::turn) fn plan(
        &self,
        message: &MessageId,
        request_id: Option<RequestId>,
        request: &TurnRequest,
        start: StartingPoint<'_>,
    ) -> Result<PlannedTurn, Error> {
        let StartingPoint { config, revision, .. } = start;
        let policy = self.policy(config)?;
        let model = self.model(request.model.as_ref().unwrap_or(&config.model))?;
        let limits = self.limits(config, request);
        let turn = TurnId::new(Uuid::now_v7().to_string());
        let rows = opening(Opening {
            request_id: request_id.as_ref(),
            request,
            input: None,
            size: None,
            model: &model,
            limits,
            // If no window may be assumed, the turn is started anyway and fails before its first
            // call. Without a turn, the message would stay queued with no visible reason.
            budget: budget(&policy.context, &model).ok(),
            start,
        });
        // The timeout is fixed now: a later change of the session's turn_timeout applies to later
        // turns.
        let limits_now = LimitsOverride { turn_timeout: Some(limits.turn_timeout), ..request.limits };
        Ok(PlannedTurn {
            message: message.clone(),
            turn,
            rows,
            timeout: limits.turn_timeout,
            revision,
            idempotency: Idempotency { request: request_id, hash: String::new() },
            request: TurnRequest { limits: limits_now, ..request.clone() },
            model: model.reference,
        })
    }
}

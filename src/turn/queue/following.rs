//! Turns for queued messages that start one. Such a turn is begun by the owner that ends the turn
//! before, by the replica that queues the message in an idle session, or by a replica that finds
//! the message there.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::Instant,
};

use futures_util::{StreamExt as _, stream};
use uuid::Uuid;

use crate::{
    codec,
    model::{
        DropReason, LimitsOverride, MessageId, RequestId, SessionKey, TenantId, TurnId,
        command::{Idempotency, TurnRequest},
    },
    session::{SessionState, rows::Rows},
    store::{
        Reach,
        admission::Admission,
        following::{NextTurn, TurnStarters},
        queue::QueuedMessage,
    },
    telemetry::Trace,
    turn::{
        Error,
        context::stats::budget,
        engine::Engine,
        lease::postponed::max_backoff,
        optimistic::attempts,
        run::{
            cause::Cause,
            opening::{Opening, opening},
            starting_point::StartingPoint,
        },
    },
};

/// Sessions read by one query.
const PAGE: u32 = 128;
/// Queries in one round, while there are more sessions.
const PAGES: u32 = 32;
/// Turns that are started concurrently.
const MAX_CONCURRENT_STARTS: usize = 8;

/// A turn that is about to begin for a queued message.
#[derive(Debug)]
pub(in crate::turn) struct PlannedTurn {
    message: MessageId,
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
        Admission {
            turn: &self.turn,
            rows: &self.rows,
            timeout: self.timeout,
            revision: self.revision,
            idempotency: &self.idempotency,
            request: &self.request,
            model: &self.model,
            continues: false,
        }
    }

    /// The admission of the turn as the successor of another one.
    pub(in crate::turn) fn next<'a>(&'a self, admission: &'a Admission<'a>) -> NextTurn<'a> {
        NextTurn {
            message: &self.message,
            admission,
        }
    }
}

impl Engine {
    /// Begins a turn in an idle session for the first queued message that starts one.
    pub(in crate::turn) async fn start_waiting(
        self: &Arc<Self>,
        key: &SessionKey,
    ) -> Result<(), Error> {
        if Trace::current().ids().is_some() {
            return self.try_start_waiting(key).await;
        }
        // No request caused this turn: its trace begins here.
        let span = self.traces.of_stored(None).queue_start();
        let trace = span.trace().clone();
        trace.scope(self.try_start_waiting(key)).await
    }

    /// Does nothing if the session keeps changing: the message will be found again.
    async fn try_start_waiting(self: &Arc<Self>, key: &SessionKey) -> Result<(), Error> {
        let attempt = |()| Box::pin(self.start_first_waiting(key));
        attempts((), attempt).await.map(drop)
    }

    /// One attempt. Returns `Continue` if the session changed between the read and the statement,
    /// or the message was dropped.
    async fn start_first_waiting(
        self: &Arc<Self>,
        key: &SessionKey,
    ) -> Result<ControlFlow<()>, Error> {
        if !self.may_begin(&key.tenant) {
            return Ok(Break(()));
        }
        let Some(session) = self.store.session(key).await? else {
            return Ok(Break(()));
        };
        if session.state != SessionState::Idle || session.open_calls > 0 {
            return Ok(Break(()));
        }
        let Some(starter) = self
            .store
            .queue_at_turn_end(key, TurnStarters::AfterCompletion)
            .await?
            .starter
        else {
            return Ok(Break(()));
        };
        let start = StartingPoint::of(&session);
        let Some(planned) = self.plan_for(key, &starter, start).await? else {
            return Ok(Continue(()));
        };
        let Ok(mut request) = self.request_start(key) else {
            return Ok(Break(())); // other turns took the room
        };
        let started = self
            .store
            .start_idle(key, &planned.message, &planned.admission())
            .await;
        let Some(grant) = request.answered(started)? else {
            return Ok(Continue(()));
        };
        self.start(key.clone(), grant, request.sent(), Cause::Queued);
        Ok(Break(()))
    }

    /// Like [`Engine::start_waiting`], in a task of the server.
    pub(in crate::turn) fn start_waiting_soon(self: &Arc<Self>, key: &SessionKey) {
        let engine = Arc::clone(self);
        let key = key.clone();
        let starting = async move {
            if let Err(error) = engine.start_waiting(&key).await {
                tracing::warn!(session.id = %key.session, %error, "could not start a turn for a queued message; retrying later");
            }
        };
        self.tasks
            .spawn(Reach::in_current_scope(Trace::current().scope(starting)));
    }

    /// Whether one more turn of the tenant may begin here.
    pub(in crate::turn) fn may_begin(&self, tenant: &TenantId) -> bool {
        self.may_start() && self.check_room(tenant).is_ok()
    }

    /// Whether this replica may run one more turn.
    pub(in crate::turn) fn may_start(&self) -> bool {
        !self.draining.is_cancelled() && self.leases.count() < self.rules.turn.max_running_turns
    }

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
            Ok(request) => self
                .plan(&starter.message, starter.request.clone(), &request, start)
                .map(Some),
            Err(error) => {
                tracing::error!(session.id = %key.session, message.id = %starter.message, %error, "cannot decode a queued message; dropping it");
                self.drop_queued_message(key, &starter.message, DropReason::Unreadable)
                    .await?;
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
        let StartingPoint {
            config, revision, ..
        } = start;
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
        let limits_now = LimitsOverride {
            turn_timeout: Some(limits.turn_timeout),
            ..request.limits
        };
        Ok(PlannedTurn {
            message: message.clone(),
            turn,
            rows,
            timeout: limits.turn_timeout,
            revision,
            idempotency: Idempotency {
                request: request_id,
                hash: String::new(),
            },
            request: TurnRequest {
                limits: limits_now,
                ..request.clone()
            },
            model: model.reference,
        })
    }

    /// Starts turns for queued messages in idle sessions.
    pub async fn start_waiting_turns(self: &Arc<Self>) -> Result<(), Error> {
        for _ in 0..PAGES {
            if !self.may_start() {
                break;
            }
            // Sessions of tenants without room would fill the page, but start no turn.
            let full = self.tenants_without_room();
            let full: Vec<&str> = full.iter().map(TenantId::as_str).collect();
            let postponed = self.postponed_starts.at(Instant::now());
            let found = self
                .store
                .sessions_to_start(PAGE, &full, &postponed)
                .await?;
            let more = found.len() == PAGE as usize;
            stream::iter(found)
                .for_each_concurrent(MAX_CONCURRENT_STARTS, |key| self.start_or_postpone(key))
                .await;
            if !more {
                break;
            }
        }
        Ok(())
    }

    async fn start_or_postpone(self: &Arc<Self>, key: SessionKey) {
        let Err(error) = self.start_waiting(&key).await else {
            self.postponed_starts.forget(&key);
            return;
        };
        let pause = max_backoff(&error);
        if self.postponed_starts.postpone(&key, Instant::now(), pause) {
            tracing::warn!(session.id = %key.session, %error, "could not start a turn for a queued message; retrying later");
        } else {
            tracing::debug!(session.id = %key.session, %error, "still could not start a turn for a queued message");
        }
    }
}

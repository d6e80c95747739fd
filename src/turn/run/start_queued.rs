//! Starts turns for queued messages that are found in an idle session. Usually such a turn is begun
//! earlier: by the owner that ends the turn before (`run/ending.rs`), or by the replica that queues
//! the message in an idle session (`run/enqueue.rs`).

use std::{
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::Instant,
};

use futures_util::{StreamExt as _, stream};

use crate::{
    model::{SessionKey, TenantId},
    session::SessionState,
    store::{Reach, following::TurnStarters},
    telemetry::Trace,
    turn::{
        Error, engine::Engine, lease::postponed::max_backoff, opening::StartingPoint, optimistic::attempts,
        run::cause::Cause,
    },
};

/// Sessions read by one query.
const PAGE: u32 = 128;

/// Queries in one round, while there are more sessions.
const PAGES: u32 = 32;

/// Turns that are started concurrently.
const MAX_CONCURRENT_STARTS: usize = 8;

impl Engine {
    /// Begins a turn in an idle session for the first queued message that starts one.
    pub(super) async fn start_waiting(self: &Arc<Self>, key: &SessionKey) -> Result<(), Error> {
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
    async fn start_first_waiting(self: &Arc<Self>, key: &SessionKey) -> Result<ControlFlow<()>, Error> {
        if !self.capacity.may_begin(&key.tenant) {
            return Ok(Break(()));
        }
        let Some(session) = self.store.session(key).await? else {
            return Ok(Break(()));
        };
        if session.state != SessionState::Idle || session.open_calls > 0 {
            return Ok(Break(()));
        }
        let Some(starter) = self.store.queue_at_turn_end(key, TurnStarters::AfterCompletion).await?.starter else {
            return Ok(Break(()));
        };
        let start = StartingPoint::of(&session);
        let Some(planned) = self.sessions.plan_for(key, &starter, start).await? else {
            return Ok(Continue(()));
        };
        let Ok(mut request) = self.capacity.request_start(key) else {
            return Ok(Break(())); // other turns took the room
        };
        let started = self.store.start_idle(key, &planned.message, &planned.admission()).await;
        let Some(grant) = request.answered(started)? else {
            return Ok(Continue(()));
        };
        self.start(key.clone(), grant, request.sent(), Cause::Queued);
        Ok(Break(()))
    }

    /// Like [`Engine::start_waiting`], in a task of the server.
    pub(super) fn start_waiting_soon(self: &Arc<Self>, key: &SessionKey) {
        let engine = Arc::clone(self);
        let key = key.clone();
        let starting = async move {
            if let Err(error) = engine.start_waiting(&key).await {
                tracing::warn!(session.id = %key.session, %error, "could not start a turn for a queued message; retrying later");
            }
        };
        self.capacity.tasks.spawn(Reach::in_current_scope(Trace::current().scope(starting)));
    }

    /// Starts turns for queued messages in idle sessions.
    pub async fn start_waiting_turns(self: &Arc<Self>) -> Result<(), Error> {
        for _ in 0..PAGES {
            if !self.capacity.may_start() {
                break;
            }
            // Sessions of tenants without room would fill the page, but start no turn.
            let full = self.capacity.tenants_without_room();
            let full: Vec<&str> = full.iter().map(TenantId::as_str).collect();
            let postponed = self.capacity.postponed_starts.at(Instant::now());
            let found = self.store.sessions_to_start(PAGE, &full, &postponed).await?;
            let more = found.len() == PAGE as usize;
            stream::iter(found).for_each_concurrent(MAX_CONCURRENT_STARTS, |key| self.start_or_postpone(key)).await;
            if !more {
                break;
            }
        }
        Ok(())
    }

    async fn start_or_postpone(self: &Arc<Self>, key: SessionKey) {
        let Err(error) = self.start_waiting(&key).await else {
            self.capacity.postponed_starts.forget(&key);
            return;
        };
        let pause = max_backoff(&error);
        if self.capacity.postponed_starts.postpone(&key, Instant::now(), pause) {
            tracing::warn!(session.id = %key.session, %error, "could not start a turn for a queued message; retrying later");
        } else {
            tracing::debug!(session.id = %key.session, %error, "still could not start a turn for a queued message");
        }
    }
}

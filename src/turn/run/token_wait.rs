//! Delays model calls of a tenant that has used up its tokens per minute. `quota` determines the
//! delay.

use super::state::{Run, StepContext};

impl Run<'_> {
    /// Waits until the tenant has tokens, or until an event that the turn has to handle. Returns
    /// whether it waited.
    pub(super) async fn wait_for_tokens(&mut self, step: &StepContext<'_>) -> bool {
        let engine = self.engine;
        let tenant = &self.key.tenant;
        let Some(delay) = engine.capacity.quotas.token_wait(tenant) else {
            return false;
        };
        self.memory = None; // others may use it during the wait
        tracing::info!(
            session.id = %self.key.session, turn.id = %self.turn, ?delay,
            "the tenant has used up its tokens per minute; the next model call waits"
        );
        tokio::select! {
            () = engine.capacity.quotas.wait_for_tokens(tenant) => {}
            () = self.wait(step.time_left()) => return true,
        }
        self.watch.waited();
        true
    }
}

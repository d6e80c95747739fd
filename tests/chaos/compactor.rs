//! Manual compactions and reverts by a meddler, in all variants; sometimes the same request is repeated.

use contextd::pb::{self, CompactionState, context_service_client::ContextServiceClient};

use crate::{
    client::{Clients, fresh_id, pause},
    meddler::Meddler,
    policy::any_strategy,
    random::Random,
};

/// Allowed when nothing can be compacted.
const NO_GAIN: [&str; 1] = ["COMPACTION_NO_GAIN"];
/// Allowed when a compaction can no longer be reverted: another one was made concurrently, or it was reverted with its
/// turn.
const NOT_NEWEST: [&str; 2] = ["COMPACTION_SUPERSEDED", "COMPACTION_NOT_FOUND"];
/// How many of the newest compactions are considered.
const NEWEST: i32 = 5;

impl Meddler {
    /// Compacts by the policy or to a target size, with or without waiting for the result.
    pub(crate) async fn compact(&mut self) {
        let random = &mut self.random;
        let target = if random.happens(50) { 150 + random.below(400) } else { 0 };
        let mut request = pb::CompactRequest {
            session_id: self.session.clone(),
            request_id: fresh_id(),
            strategy: any_strategy(random).into(),
            target_tokens: i32::try_from(target).unwrap_or_default(),
            ..pb::CompactRequest::default()
        };
        for _ in 0..1 + usize::from(self.random.happens(40)) {
            request.wait = self.random.happens(50);
            let Some(made) = compact(&self.clients, &request, &mut self.random).await else {
                return;
            };
            self.clients.note(&self.session, |session| session.compactions.push((request.clone(), made)));
            if !request.wait && self.random.happens(50) {
                self.prune().await; // the running compaction then started from an outdated context
            }
            pause(&mut self.random, 0, 60).await;
        }
    }

    /// Reverts the newest compaction, or tries to revert another one.
    pub(crate) async fn revert(&mut self) {
        let list = pb::ListCompactionsRequest {
            session_id: self.session.clone(),
            page_size: NEWEST,
            page_token: String::new(),
        };
        let answer = self.clients.insist(&self.session, &mut self.random, |channel| {
            let list = list.clone();
            async move { ContextServiceClient::new(channel).list_compactions(list).await }
        });
        let Some(listed) = answer.await.map(|answer| answer.compactions) else {
            return;
        };
        let newest = listed.iter().find(|compaction| compaction.state() == CompactionState::Applied);
        let other = (!listed.is_empty()).then(|| self.random.of(&listed));
        let Some(chosen) = newest.filter(|_| self.random.happens(80)).or(other) else {
            return;
        };
        let request = pb::RevertCompactionRequest {
            session_id: self.session.clone(),
            compaction_id: chosen.compaction_id.clone(),
            request_id: if self.random.happens(50) { fresh_id() } else { String::new() },
        };
        for _ in 0..1 + usize::from(self.random.happens(40)) {
            let answer = self.clients.insist_unless(&NOT_NEWEST, &self.session, &mut self.random, |channel| {
                let request = request.clone();
                async move { ContextServiceClient::new(channel).revert_compaction(request).await }
            });
            let Some(reverted) = answer.await.and_then(|answer| answer.compaction) else {
                return;
            };
            if reverted.state() != CompactionState::Reverted || reverted.compaction_id != request.compaction_id {
                self.clients.complain(format!("{}: the reverted compaction is {reverted:?}", self.session));
            }
            self.clients.note(&self.session, |session| session.reverted.extend([reverted.compaction_id]));
        }
    }
}

/// The response to a compaction request.
pub(crate) async fn compact(
    clients: &Clients,
    request: &pb::CompactRequest,
    random: &mut Random,
) -> Option<pb::Compaction> {
    let answer = clients.insist_unless(&NO_GAIN, &request.session_id, random, |channel| {
        let request = request.clone();
        async move { ContextServiceClient::new(channel).compact(request).await }
    });
    answer.await?.compaction
}

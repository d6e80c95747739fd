//! Shares the text of an unfinished message with readers on other replicas. The owner of a turn
//! stores the text as chunks, for all its turns in one statement. Replicas with readers of such a
//! session read them. Chunks are deleted when the message is committed.
//!
//! Chunks are stored only while another replica follows the session. That replica announces it with
//! a wake-up ([`Wakeup::Follow`]): when a reader subscribes, when it learns that a turn continued
//! on another replica, and with each poll. If wake-ups do not arrive, chunks are always stored.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    model::SessionKey,
    session::SessionState,
    store::chunk::ChunkCursor,
    turn::{
        Error,
        engine::Live,
        live::{
            hub::{Channel, Subscription},
            sharing::SharedMessage,
            wakeups::Wakeup,
        },
    },
};

/// Most bytes written by one statement. The rest is written by the next one.
const MAX_BYTES_PER_WRITE: usize = 4 << 20;
/// Sessions read by one statement.
const SESSIONS_PER_READ: usize = 256;

/// Polls that a following replica may miss before chunks are no longer stored for it.
const MAX_MISSED_POLLS: u32 = 3;
/// Additional time for the delivery of its wake-up.
const SPARE: Duration = Duration::from_secs(5);

impl Live {
    /// Stores the new text of messages that are written here, and reads the new text of messages
    /// that are written on other replicas.
    pub async fn share(&self) -> Result<(), Error> {
        self.store_shared_text().await?;
        let elsewhere = self.hub.channels().into_iter().filter(|it| it.runs_remotely() && it.has_readers());
        self.read_shared_text(&elsewhere.collect::<Vec<_>>()).await
    }

    /// How long a replica is assumed to follow a session after its last wake-up.
    pub(in crate::turn) fn follow_lasts(&self) -> Duration {
        self.poll_interval * MAX_MISSED_POLLS + SPARE
    }

    /// Stores the new text of messages that are written here and followed on other replicas.
    pub(in crate::turn) async fn store_shared_text(&self) -> Result<(), Error> {
        let held = self.leases.held();
        let followed: Vec<bool> = {
            let mut followed = self.sharing.followed();
            followed.remove_expired(Instant::now());
            held.iter().map(|held| followed.has(&held.key)).collect()
        };
        let mut sharing = self.sharing.shared.lock().await;
        sharing.retain(|key, shared| held.iter().any(|held| held.key == *key && shared.is_of(held)));
        let mut chunks = Vec::new();
        let mut bytes = 0;
        for (held, _) in held.iter().zip(followed).filter(|(_, followed)| *followed) {
            let Some(channel) = self.hub.get(&held.key) else {
                continue;
            };
            let shared = sharing.entry(held.key.clone()).or_insert_with(|| SharedMessage::new(held));
            if let Some(chunk) = shared.next(&held.key, &channel) {
                bytes += chunk.body.len();
                chunks.push(chunk.clone());
            }
            if bytes >= MAX_BYTES_PER_WRITE {
                break;
            }
        }
        if !chunks.is_empty() {
            self.store.save_chunks(&chunks).await?;
            for chunk in chunks {
                sharing.entry(chunk.key).and_modify(|shared| shared.unsent = None);
            }
        }
        Ok(())
    }

    /// Subscribes a reader to a session, with the text so far even of a message that is written on
    /// another replica.
    pub async fn subscribe(&self, key: &SessionKey) -> Result<Subscription, Error> {
        let channel = self.hub.enter(key);
        if self.has_other_replicas {
            self.read_shared_text(&[Arc::clone(&channel)]).await?;
            if channel.runs_remotely() {
                self.wake(Wakeup::Follow(key.clone()));
            }
        }
        Ok(channel.subscribe())
    }

    /// Reads the new text of these sessions that other replicas have stored.
    async fn read_shared_text(&self, channels: &[Arc<Channel>]) -> Result<(), Error> {
        let channels: BTreeMap<&SessionKey, &Arc<Channel>> = channels
            .iter()
            .filter(|channel| !self.leases.runs(channel.key()))
            .map(|channel| (channel.key(), channel))
            .collect();
        let asked = |channel: &&Arc<Channel>| {
            let (message, n) = channel.applied_chunk();
            ChunkCursor { key: channel.key().clone(), message, n }
        };
        let asked: Vec<ChunkCursor> = channels.values().map(asked).collect();
        for some in asked.chunks(SESSIONS_PER_READ) {
            for seen in self.store.remote_sessions(some).await? {
                let Some(channel) = channels.get(&seen.key) else {
                    continue;
                };
                channel.set_runs_remotely(seen.state == SessionState::Running);
                let last_seq = seen.last_seq;
                channel.apply_chunks(seen);
                channel.advance(last_seq);
            }
        }
        Ok(())
    }

    /// Removes chunks that were stored after the commit of their message.
    pub async fn sweep_chunks(&self) -> Result<(), Error> {
        while self.store.sweep_chunks().await? > 0 {}
        Ok(())
    }
}

//! Finds events of followed sessions that other replicas wrote, and delivered events that the
//! database has lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use crate::{
    model::{Seq, SessionKey},
    session::SessionState,
    store::{
        lease::Followed,
        lost_commits::{SeenEvent, SeenEventCheck},
    },
    turn::{
        Error,
        engine::Live,
        live::{hub::Channel, wakeups::Wakeup},
    },
};

impl Live {
    /// Reads new events of the sessions that are followed here, and which of their turns run on
    /// other replicas.
    pub async fn poll_events(&self) -> Result<(), Error> {
        let channels = self.hub.channels();
        let now = Instant::now();
        channels.iter().for_each(|channel| channel.tidy(now));
        self.poll_events_of_channels(channels).await
    }

    /// Like [`Live::poll_events`], for these sessions only, if they are followed here.
    pub(in crate::turn) async fn poll_events_of_sessions(&self, sessions: &BTreeSet<SessionKey>) -> Result<(), Error> {
        self.poll_events_of_channels(sessions.iter().filter_map(|key| self.hub.get(key)).collect()).await
    }

    async fn poll_events_of_channels(&self, channels: Vec<Arc<Channel>>) -> Result<(), Error> {
        let followed: Vec<Followed> =
            channels.iter().map(|channel| Followed { key: channel.key().clone(), after: channel.seq() }).collect();
        if followed.is_empty() {
            return Ok(());
        }
        let heads = self.store.heads(&followed).await?;
        let heads: BTreeMap<_, _> = heads.into_iter().map(|(key, seq, state)| (key, (seq, state))).collect();
        for channel in channels {
            let head = heads.get(channel.key());
            let running = head.is_some_and(|(_, state)| *state == SessionState::Running);
            channel.set_runs_remotely(running && !self.leases.runs(channel.key()));
            if channel.runs_remotely() && channel.has_readers() {
                self.wake(Wakeup::Follow(channel.key().clone()));
            }
            if let Some((seq, state)) = head {
                channel.advance(*seq);
                if *state == SessionState::Deleted {
                    channel.end();
                }
            }
        }
        Ok(())
    }

    /// Checks that the database still has the events that readers here have seen. A failover may
    /// lose the newest ones, and the rest of such a stream would belong to a history that no longer
    /// exists. Its streams end.
    pub async fn check_lost_events(&self) -> Result<(), Error> {
        let asked: Vec<_> = self.hub.channels().into_iter().map(|channel| (channel.marks(), channel)).collect();
        let marks = |(marks, channel): &(Vec<SeenEvent>, Arc<Channel>)| {
            marks.iter().map(|mark| (channel.key().clone(), *mark)).collect::<Vec<_>>()
        };
        let all: Vec<_> = asked.iter().flat_map(marks).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut found: BTreeMap<SessionKey, Vec<(Seq, SeenEventCheck)>> = BTreeMap::new();
        for (key, seq, verdict) in self.store.check_marks(&all).await? {
            found.entry(key).or_default().push((seq, verdict));
        }
        for (marks, channel) in asked {
            let found = found.get(channel.key()).map(Vec::as_slice).unwrap_or_default();
            if found.iter().any(|(_, verdict)| matches!(verdict, SeenEventCheck::Lost(_))) {
                tracing::error!(session.id = %channel.key().session, "the database lost events that were delivered to readers");
            }
            channel.compared(&marks, found);
        }
        Ok(())
    }
}

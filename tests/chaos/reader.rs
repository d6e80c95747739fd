//! A reader of a session: it reads all events from the first on, disconnects in the middle and reconnects to another
//! replica.

use contextd::pb::{self, turn_service_client::TurnServiceClient};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::{Status, transport::Channel};

use crate::{
    client::{CALL, Clients, SILENCE, pause},
    harness::survivor::passes,
    random::Random,
};

/// Reads until the session is at rest.
pub(crate) async fn read(clients: Clients, session: String, mut random: Random, at_rest: CancellationToken) {
    let mut after = 0;
    while !at_rest.is_cancelled() {
        let replica = clients.any(&mut random);
        let stay = async {
            let channel = clients.reach(replica).await?;
            follow(&clients, channel, &session, &mut after, true, Some(&mut random)).await
        };
        let left = tokio::select! {
            () = at_rest.cancelled() => return,
            left = stay => left,
        };
        match left {
            Ok(()) => {}
            Err(status) if passes(&status) => {}
            Err(status) => clients.complain(format!("{session}: a reader got {status:?}")),
        }
        pause(&mut random, 5, 60).await;
    }
}

/// Reads one stream after a seq, to its end or for a random time. Checks that each durable event has the next seq.
pub(crate) async fn follow(
    clients: &Clients,
    channel: Channel,
    session: &str,
    after: &mut i64,
    live: bool,
    mut random: Option<&mut Random>,
) -> Result<(), Status> {
    let request = pb::WatchEventsRequest {
        session_id: session.to_owned(),
        after_seq: *after,
        follow: live,
        ..pb::WatchEventsRequest::default()
    };
    let mut turns = TurnServiceClient::new(channel);
    let opened = timeout(CALL, turns.watch_events(request)).await;
    let mut stream = opened.unwrap_or_else(|_| Err(Status::unavailable("no response")))?.into_inner();
    loop {
        let next = timeout(SILENCE, stream.message()).await.unwrap_or_else(|_| Err(Status::unavailable("silence")))?;
        let Some(event) = next.and_then(|message| message.event) else {
            return Ok(());
        };
        if event.seq > 0 {
            if event.seq != *after + 1 {
                clients.complain(format!("{session}: a reader got event {} after {}", event.seq, *after));
            }
            *after = event.seq;
            clients.see(session, &event);
        }
        if random.as_mut().is_some_and(|random| random.happens(1)) {
            return Ok(());
        }
    }
}

//! Memory of many concurrent calls that read entire sessions.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use contextd::pb::{
    self, context_service_client::ContextServiceClient, event::Payload, session_service_client::SessionServiceClient,
    turn_service_client::TurnServiceClient,
};
use futures_util::TryStreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tonic::Code;

use super::{
    siege::{Client, Siege, Target},
    wire::Tally,
};
use crate::harness::{
    errors::refusal,
    requests::{text, turn},
    transcripts::{append, fork, message},
    upstream::said,
};

/// The bytes of a text, the texts of a message, and the number of messages appended to a session unless its limit is
/// lower.
const TEXT: usize = 1_000_000;
const TEXTS: usize = 3;
const MESSAGES: usize = 16;
/// Number of concurrent RenderContext calls.
const AT_ONCE: usize = 16;
/// The bytes of an image, and the number of images of a session: the maximum of a prompt.
const PICTURE: usize = 3_000_000;
const PICTURES: u8 = 6;

async fn create(client: &Client, session: &str) {
    let mut sessions = SessionServiceClient::new(client.channel.clone());
    let create = pb::CreateSessionRequest {
        session: Some(pb::Session {
            session_id: session.to_owned(),
            model: "scripted/brief".to_owned(),
            policy_overrides: Some(pb::Policy { context_window: Some(i32::MAX), ..pb::Policy::default() }),
            ..pb::Session::default()
        }),
        ..pb::CreateSessionRequest::default()
    };
    let create = client.request(create);
    sessions.create_session(create).await.unwrap();
}

/// Fills a session up to its size limit. Returns the bytes of its messages.
async fn fill(client: &Client, session: &str) -> usize {
    create(client, session).await;
    let mut sessions = SessionServiceClient::new(client.channel.clone());
    for n in 0..MESSAGES {
        let text = text(&"the same again ".repeat(TEXT / 15));
        let message = message(pb::Role::User, vec![text; TEXTS]);
        let message = client.request(append(session, vec![message]));
        if let Err(refused) = sessions.append_messages(message).await {
            let refused = refusal(&refused);
            assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "REQUEST_TOO_LARGE"));
            assert_eq!(refused.metadata["limit_bytes"], (24 << 20).to_string());
            return n * TEXTS * TEXT;
        }
    }
    MESSAGES * TEXTS * TEXT
}

/// Fills a session with the maximum number of images of a prompt. Returns their bytes.
async fn fill_with_pictures(client: &Client, session: &str) -> usize {
    create(client, session).await;
    let mut sessions = SessionServiceClient::new(client.channel.clone());
    for n in 0..PICTURES {
        // 256 by 256 pixels.
        let mut picture = b"GIF89a\x00\x01\x00\x01".to_vec();
        picture.push(n);
        picture.resize(PICTURE, 0);
        let part = pb::Part {
            content: Some(pb::part::Content::Media(pb::Media {
                media_type: "image/gif".to_owned(),
                source: Some(pb::media::Source::Data(picture)),
                ..pb::Media::default()
            })),
            ..pb::Part::default()
        };
        let message = message(pb::Role::User, vec![part]);
        let message = client.request(append(session, vec![message]));
        sessions.append_messages(message).await.unwrap();
    }
    usize::from(PICTURES) * PICTURE
}

/// Runs a turn to its end. Returns its last event.
async fn run(client: Client, session: String, model: &'static str) -> Payload {
    let mut turns = TurnServiceClient::new(client.channel.clone());
    let request = client.request(turn(&session, model, "And now?"));
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let mut last = None;
    while let Some(message) = stream.message().await.unwrap() {
        last = message.event.and_then(|event| event.payload).or(last);
    }
    last.unwrap()
}

async fn render(client: Client) -> Result<(), tonic::Status> {
    let request = client.request(pb::RenderContextRequest {
        session_id: "large".to_owned(),
        format: pb::PromptFormat::OpenaiChat.into(),
        ..pb::RenderContextRequest::default()
    });
    let contexts = ContextServiceClient::new(client.channel);
    let mut contexts = contexts.max_decoding_message_size(usize::MAX);
    contexts.render_context(request).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn renderings_of_large_sessions_share_a_bounded_memory() {
    // An open database connection keeps the memory of its largest row, so unused connections are closed soon.
    let settings = "[database]\nidle_timeout = '2s'\n";
    let name = "renderings of a large session";
    let (siege, key) = Siege::guarded_from(name, settings, "write").await;
    let siege = siege.growing(256).returning_to(48);
    let attacker = siege.client_with(&key).await;
    let bytes = fill(&attacker, "large").await;
    eprintln!("the session came to {} MiB", bytes >> 20);
    let attack = move |target: Target| async move {
        let mut renderings = JoinSet::new();
        while Instant::now() < target.until {
            while renderings.len() < AT_ONCE {
                renderings.spawn(render(attacker.clone()));
            }
            if let Some(rendered) = renderings.join_next().await {
                let _ = rendered.unwrap(); // a call that waits too long is refused as OVERLOADED
            }
        }
        renderings.shutdown().await;
        Tally::default()
    };
    siege.attacked(attack).await;
}

/// The content of the sessions.
#[derive(Debug, Clone, Copy)]
enum Content {
    Texts,
    Pictures,
}

/// Runs concurrent turns that each send the maximum content of a session to a service that reads all of it.
async fn turns_share_a_bounded_memory(name: &'static str, content: Content) {
    let (service, read) = service().await;
    let settings = format!(
        "[database]\nidle_timeout = '2s'\n[models]\ndiscover = false\ndefault_model = 'main/m'\n\
         [providers.main]\nkind = 'openai'\nbase_url = 'http://{service}/v1'\napi_key = 'k'\n\
         [providers.main.models.m]\ninput_media_types = ['image/*']\n"
    );
    let (siege, key) = Siege::guarded_from(name, &settings, "write").await;
    let siege = siege.growing(256).returning_to(48);
    let attacker = siege.client_with(&key).await;
    let bytes = match content {
        Content::Texts => fill(&attacker, "large-0").await,
        Content::Pictures => fill_with_pictures(&attacker, "large-0").await,
    };
    let sessions: Vec<String> = (0..AT_ONCE).map(|n| format!("large-{n}")).collect();
    for session in &sessions[1..] {
        copy(&attacker, "large-0", session).await;
    }
    eprintln!("each session came to {} MiB", bytes >> 20);
    let attack = move |_: Target| async move {
        let mut running = JoinSet::new();
        for session in sessions {
            running.spawn(run(attacker.clone(), session, "main/m"));
        }
        for ended in running.join_all().await {
            assert!(matches!(ended, Payload::TurnCompleted(_)), "{ended:?}");
        }
        assert!(read.load(Ordering::Relaxed) >= AT_ONCE * bytes, "the service got each session whole");
        Tally::default()
    };
    siege.attacked(attack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_large_sessions_share_a_bounded_memory() {
    turns_share_a_bounded_memory("turns of large sessions", Content::Texts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_with_large_media_share_a_bounded_memory() {
    turns_share_a_bounded_memory("turns with large media", Content::Pictures).await;
}

/// A model service that reads and discards requests and returns a short response. Also returns the number of bytes that
/// it read.
async fn service() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let read = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&read);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            let service = service_fn(move |request| answer(request, Arc::clone(&counted)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    (address, read)
}

async fn answer(request: Request<Incoming>, read: Arc<AtomicUsize>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut pieces = request.into_body().into_data_stream();
    while let Some(piece) = pieces.try_next().await? {
        read.fetch_add(piece.len(), Ordering::Relaxed);
    }
    let answer = Response::builder().header("content-type", "text/event-stream");
    Ok(answer.body(Full::from(said(&["Fine."]))).unwrap())
}

/// Copies a session.
async fn copy(client: &Client, session: &str, new: &str) {
    let mut sessions = SessionServiceClient::new(client.channel.clone());
    let request = client.request(pb::GetSessionRequest { session_id: session.to_owned() });
    let answer = sessions.get_session(request).await.unwrap().into_inner();
    let at = answer.session.unwrap().last_seq;
    let fork = client.request(fork(session, at, new));
    let copied = sessions.fork_session(fork).await;
    copied.unwrap();
}

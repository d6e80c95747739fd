//! Measures the cost of context accounting: GetContextStats compared with a handler that runs `SELECT 1`, in short and
//! long sessions; an append compared with a recount; and the growth of storage when the number of turns doubles.
//! `docs/benchmarks.md` explains the results.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

mod place;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contextd::{
    app::Parts,
    config::{Config, Environment},
    context::estimate,
    grpc::context::Contexts,
    model::{Part, Role},
    pb::{
        self,
        context_service_client::ContextServiceClient,
        context_service_server::ContextServiceServer,
        model_service_client::ModelServiceClient,
        model_service_server::{ModelService, ModelServiceServer},
        session_service_client::SessionServiceClient,
        turn_service_client::TurnServiceClient,
    },
    postgres::{DATABASE, Postgres},
    provider::scripted::Scripted,
    turn::Engine,
};
use place::{Served, turn};
use tokio::net::TcpListener;
use tokio_postgres::Client;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Channel};

/// Rounds that are measured, and warm-up rounds before them.
const ROUNDS: usize = 400;
const WARM_UP: usize = 50;
/// Numbers of messages in the sessions that are measured.
const LENGTHS: [usize; 3] = [10, 1_000, 100_000];
/// Messages of one append.
const AT_ONCE: usize = 1_000;
/// Turns of the shorter session; the other one has twice as many.
const TURNS: usize = 200;
/// Bytes of the context that is appended to, and bytes appended.
const CONTEXT: usize = 1 << 20;
const APPENDED: usize = 1 << 10;
const SCRIPT: &str = r#"{ "steps": [{ "say": [{ "repeat": { "text": "word ", "times": 100 } }] }] }"#;

#[tokio::main]
async fn main() {
    // `cargo bench` passes `--bench`; `cargo test` only checks that the benchmark runs.
    let whole = std::env::args().any(|arg| arg == "--bench");
    let few = |number: usize| if whole { number } else { number.min(10) };
    let place = place::directory();
    let postgres = place::start_postgres(&place).await;
    let served = Served::start(&place, &postgres, SCRIPT, "");
    println!("\nGetContextStats, p50 of {} rounds", few(ROUNDS));
    println!("  {:>9} messages  {:>10}  {:>10}  {:>6}", "", "stats", "SELECT 1", "ratio");
    let bench = StatsBench::start(&postgres).await;
    let lengths = LENGTHS.map(few);
    for length in lengths {
        fill(&served, &session_of(length), length).await;
    }
    let measured = bench.measure(&lengths.map(session_of), few(ROUNDS), few(WARM_UP)).await;
    let first = measured[0].0;
    for (length, (stats, floor)) in lengths.into_iter().zip(measured) {
        let ratio = stats.as_secs_f64() / floor.as_secs_f64();
        let growth = stats.as_secs_f64() / first.as_secs_f64();
        println!("  {length:>9} messages  {stats:>10.3?}  {floor:>10.3?}  {ratio:>6.2}  {growth:.2} x the shortest");
    }
    append_beside_recount(few(ROUNDS));
    println!("\nbytes stored, for {} turns and twice that number", few(TURNS));
    let (half, all) = stored(&served, &postgres, few(TURNS)).await;
    println!("  {half} and {all}: {:.2}", all as f64 / half as f64);
    drop(served);
    postgres.stop().await.unwrap();
}

/// The id of the session with this number of messages.
fn session_of(length: usize) -> String {
    format!("long-{length}")
}

/// Appends `length` messages of a few words.
async fn fill(served: &Served, session: &str, length: usize) {
    let mut sessions = SessionServiceClient::connect(served.url()).await.unwrap();
    let named = pb::Session {
        session_id: session.to_owned(),
        model: "scripted/bench".to_owned(),
        policy_overrides: Some(pb::Policy { context_window: Some(i32::MAX), ..pb::Policy::default() }),
        ..pb::Session::default()
    };
    let request = pb::CreateSessionRequest { session: Some(named), request_id: String::new() };
    sessions.create_session(request).await.unwrap();
    let said = |n: usize| {
        let text = pb::part::Content::Text(format!("This is message {n}, which says little."));
        let role = if n.is_multiple_of(2) { pb::Role::User } else { pb::Role::Assistant };
        let part = pb::Part { content: Some(text), ..pb::Part::default() };
        pb::InputMessage { role: role.into(), parts: vec![part], ..pb::InputMessage::default() }
    };
    for from in (0..length).step_by(AT_ONCE) {
        let messages = (from..length.min(from + AT_ONCE)).map(said).collect();
        let session_id = session.to_owned();
        let request = pb::AppendMessagesRequest { session_id, messages, ..pb::AppendMessagesRequest::default() };
        sessions.append_messages(request).await.unwrap();
    }
}

/// Serves the statistics and, in place of the models, a handler that runs `SELECT 1`.
struct StatsBench {
    contexts: ContextServiceClient<Channel>,
    models: ModelServiceClient<Channel>,
}

/// A handler that runs `SELECT 1` and returns an empty response.
struct SelectOne(Arc<Engine>);

#[tonic::async_trait]
impl ModelService for SelectOne {
    async fn list_models(&self, _: Request<pb::ListModelsRequest>) -> Result<Response<pb::ListModelsResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get_model(&self, _: Request<pb::GetModelRequest>) -> Result<Response<pb::GetModelResponse>, Status> {
        self.0.store().ping(Duration::from_secs(5)).await?;
        Ok(Response::new(pb::GetModelResponse::default()))
    }
}

impl StatsBench {
    async fn start(postgres: &Postgres) -> Self {
        let config = Config::default();
        let connection = postgres.config(DATABASE);
        let mut parts = Parts::new(&config, connection, &Environment::default()).unwrap();
        let scripted = Scripted::new("scripted", None).unwrap().with_script("bench", SCRIPT).unwrap();
        parts.registry = parts.registry.with("scripted", Arc::new(scripted));
        let service = parts.assemble(config, CancellationToken::new());
        let engine = service.unwrap().engine;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(ContextServiceServer::with_interceptor(
                Contexts::new(Arc::clone(&engine)),
                |mut request: tonic::Request<()>| {
                    request.extensions_mut().insert(contextd::auth::anonymous());
                    Ok(request)
                },
            ))
            .add_service(ModelServiceServer::new(SelectOne(engine)))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
        Self { contexts: ContextServiceClient::new(channel.clone()), models: ModelServiceClient::new(channel) }
    }

    /// The p50 of both requests for each session, interleaved.
    async fn measure(&self, sessions: &[String], rounds: usize, warm_up: usize) -> Vec<(Duration, Duration)> {
        let mut samples = vec![(Vec::new(), Vec::new()); sessions.len()];
        for round in 0..warm_up + rounds {
            for (session_id, (stats, floor)) in sessions.iter().zip(&mut samples) {
                let begun = Instant::now();
                let request = pb::GetContextStatsRequest { session_id: session_id.clone(), ..Default::default() };
                self.contexts.clone().get_context_stats(request).await.unwrap();
                let between = Instant::now();
                self.models.clone().get_model(pb::GetModelRequest::default()).await.unwrap();
                if round >= warm_up {
                    stats.push(between - begun);
                    floor.push(between.elapsed());
                }
            }
        }
        samples.into_iter().map(|(stats, floor)| (median(stats), median(floor))).collect()
    }
}

/// Compares counting an append with recounting the whole context.
fn append_beside_recount(rounds: usize) {
    let words = "The quick brown fox jumps over the lazy dog. ";
    let whole: Vec<Part> = (0..CONTEXT / APPENDED).map(|_| Part::text(words.repeat(APPENDED / words.len()))).collect();
    let count = |parts: &[Part]| parts.iter().map(|part| estimate::part(part, Role::User).tokens).sum::<u32>();
    let timed = |parts: &[Part]| {
        let begun = Instant::now();
        std::hint::black_box(count(std::hint::black_box(parts)));
        begun.elapsed()
    };
    let append = median((0..rounds).map(|_| timed(&whole[..1])).collect());
    let recount = median((0..rounds).map(|_| timed(&whole)).collect());
    println!("\ncounting 1 KB that is appended to 1 MB, and recounting all of it");
    println!("  {append:.3?} and {recount:.3?}: 1/{:.0}", recount.as_secs_f64() / append.as_secs_f64());
}

/// Bytes stored for a session's turns, and for twice as many turns. Dead rows are not counted, because their number
/// depends on the last vacuum.
async fn stored(served: &Served, postgres: &Postgres, turns: usize) -> (i64, i64) {
    let (client, connection) = postgres.config(DATABASE).connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut service = TurnServiceClient::connect(served.url()).await.unwrap();
    let before = size(&client).await;
    let mut sizes = Vec::new();
    for _ in 0..2 {
        for _ in 0..turns {
            let mut stream = service.execute_turn(turn("stored")).await.unwrap().into_inner();
            while stream.message().await.unwrap().is_some() {}
        }
        sizes.push(size(&client).await - before);
    }
    (sizes[0], sizes[1])
}

async fn size(client: &Client) -> i64 {
    client.batch_execute("vacuum full").await.unwrap();
    let all = "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
                where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'";
    client.query_one(all, &[]).await.unwrap().get(0)
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

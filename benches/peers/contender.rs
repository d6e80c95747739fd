//! The systems that run a turn: contextd, a direct call of the model service, and the peers.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use contextd::{
    pb,
    postgres::{DATABASE, Postgres},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::{
    callers::{self, CONNECTIONS, Calling, Key},
    place::{Served, turn},
    processor::Processor,
};

/// Time limit for the start of a peer.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A system that runs turns.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// What is on disk after a turn.
    pub(crate) durable: &'static str,
    pub(crate) processor: Processor,
    way: Way,
}

/// How a turn is requested.
enum Way {
    /// A server with a gRPC API.
    Grpc(Vec<Calling>, #[expect(dead_code, reason = "is killed when it is dropped")] Served),
    /// A server with the model service's protocol, and its process.
    Http(Http, #[expect(dead_code, reason = "is killed when it is dropped")] Option<Killed>),
    /// A library in a process that receives commands.
    InProcess(Driver),
}

/// The turns that were completed, and the time they took.
pub(crate) struct Load {
    pub(crate) turns: f64,
    pub(crate) seconds: f64,
}

/// All systems that are available here.
pub(crate) async fn all(place: &TempDir, postgres: &Postgres, upstream: &str) -> Vec<Contender> {
    let data = place.path().join("data");
    let mut all = vec![direct(upstream, &data), contextd(place, postgres, upstream, &data).await];
    let Some(python) = std::env::var_os("BENCH_PYTHON").map(PathBuf::from) else {
        println!("peers: skipped, BENCH_PYTHON does not name a Python that has them");
        return all;
    };
    for name in ["langgraph_sync", "langgraph_async", "dbos", "smg"] {
        let (client, connection) = postgres.config(DATABASE).connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let sql = format!("create database {name}");
        client.batch_execute(&sql).await.unwrap();
    }
    let peers = Peers {
        python,
        upstream: upstream.to_owned(),
        user: postgres.config(DATABASE).get_user().unwrap().to_owned(),
        sockets: postgres.socket_dir().display().to_string(),
        data,
        place: place.path().to_owned(),
    };
    all.push(peers.litellm().await);
    all.push(peers.smg().await);
    all.push(peers.langgraph(
        "LangGraph in process, durability sync",
        "sync",
        "a checkpoint per step, before the next",
    ));
    all.push(peers.langgraph(
        "LangGraph in process, durability async",
        "async",
        "a checkpoint per step, in parallel with the next",
    ));
    all.push(peers.dbos());
    all
}

fn direct(upstream: &str, data: &Path) -> Contender {
    Contender {
        name: "a direct call",
        durable: "nothing",
        processor: Processor::of(std::process::id(), data),
        way: Way::Http(Http::chat(format!("{upstream}/chat/completions")), None),
    }
}

async fn contextd(place: &TempDir, postgres: &Postgres, upstream: &str, data: &Path) -> Contender {
    let settings = format!(
        "[models]\ndefault_model = 'mock/bench'\n[providers.mock]\nkind = 'openai'\nbase_url = '{upstream}'\n\
         [providers.mock.models.bench]\ncontext_window = 128000\nmax_output = 4096\n"
    );
    let unused = r#"{ "steps": [{ "say": [{ "text": "nothing" }] }] }"#;
    let served = Served::start(place, postgres, unused, &settings);
    let channels = callers::connect(served.endpoint(), &Key::default()).await;
    Contender {
        name: "contextd",
        durable: "input before the call, response and events after it",
        processor: Processor::of(served.child.id(), data),
        way: Way::Grpc(channels, served),
    }
}

/// The locations of the peers and their dependencies.
struct Peers {
    python: PathBuf,
    upstream: String,
    user: String,
    sockets: String,
    data: PathBuf,
    place: PathBuf,
}

impl Peers {
    fn database(&self, name: &str) -> String {
        format!("postgresql://{}@/{name}?host={}", self.user, self.sockets)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.python.with_file_name(name));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log(name));
        command
    }

    async fn litellm(&self) -> Contender {
        let config = self.place.join("litellm.yaml");
        let text = format!(
            "model_list:\n- model_name: bench\n  litellm_params:\n    model: openai/bench\n    \
             api_base: {}\n    api_key: none\n",
            self.upstream
        );
        std::fs::write(&config, text).unwrap();
        let port = free_port();
        let mut command = self.program("litellm");
        command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true"); // a local server for this benchmark
        command.arg("--config").arg(config);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let child = Killed(command.spawn().unwrap());
        let http = Http::chat(format!("http://127.0.0.1:{port}/v1/chat/completions"));
        http.until_it_answers().await;
        Contender {
            name: "LiteLLM's proxy",
            durable: "nothing",
            processor: Processor::of(child.0.id(), &self.data),
            way: Way::Http(http, Some(child)),
        }
    }

    async fn smg(&self) -> Contender {
        let (port, metrics) = (free_port(), free_port());
        let mut command = self.program("smg");
        let worker = self.upstream.trim_end_matches("/v1");
        command.args(["launch", "--backend", "openai", "--worker-urls", worker]);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--prometheus-port", &metrics.to_string()]);
        command.args(["--history-backend", "postgres", "--disable-health-check"]);
        let database = format!("postgresql://{}@localhost/smg?host={}", self.user, self.sockets.replace('/', "%2F"));
        command.args(["--postgres-db-url", &database]);
        let child = Killed(command.spawn().unwrap());
        let http = Http::responses(format!("http://127.0.0.1:{port}/v1/responses"));
        http.until_it_answers().await;
        Contender {
            name: "SMG, Responses with history",
            durable: "one row, after the response",
            processor: Processor::of(child.0.id(), &self.data),
            way: Way::Http(http, Some(child)),
        }
    }

    fn langgraph(&self, name: &'static str, durability: &str, durable: &'static str) -> Contender {
        let database = self.database(&format!("langgraph_{durability}"));
        self.in_process(name, durable, "langgraph_turns.py", &[&self.upstream, &database, durability])
    }

    fn dbos(&self) -> Contender {
        let database = self.database("dbos");
        self.in_process(
            "DBOS in process, three steps",
            "input, response, and the result of each step",
            "dbos_turns.py",
            &[&self.upstream, &database],
        )
    }

    fn in_process(&self, name: &'static str, durable: &'static str, script: &str, arguments: &[&str]) -> Contender {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(script);
        let mut command = Command::new(&self.python);
        command.arg(path).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log(script));
        let mut child = Killed(command.spawn().unwrap());
        let input = child.0.stdin.take().unwrap();
        let output = BufReader::new(child.0.stdout.take().unwrap());
        let processor = Processor::of(child.0.id(), &self.data);
        let mut driver = Driver { input, output, _child: child };
        while driver.line().trim() != "ready" {}
        Contender { name, durable, processor, way: Way::InProcess(driver) }
    }
}

impl Contender {
    /// Milliseconds to the first text of turns that run one after another.
    pub(crate) async fn first(&mut self, turns: usize) -> Vec<f64> {
        let mut firsts = Vec::new();
        match &mut self.way {
            Way::Grpc(channels, _) => {
                for _ in 0..turns {
                    firsts.push(execute(channels[0].clone()).await);
                }
            }
            Way::Http(http, _) => {
                for _ in 0..turns {
                    firsts.push(http.turn().await);
                }
            }
            Way::InProcess(driver) => {
                let answer = driver.obey(&json!({"first": turns}));
                let all = answer["firsts"].as_array().unwrap().iter();
                firsts.extend(all.map(|first| first.as_f64().unwrap() * 1e3));
            }
        }
        firsts
    }

    /// Turns that this number of clients complete, each running one turn after another.
    pub(crate) async fn load(&mut self, clients: usize, length: Duration) -> Load {
        match &mut self.way {
            Way::Grpc(channels, _) => {
                let turn = |client: usize| channels[client % CONNECTIONS].clone();
                closed_loop(clients, length, turn, execute).await
            }
            Way::Http(http, _) => {
                let http = http.clone();
                let turn = async |http: Http| http.turn().await;
                closed_loop(clients, length, |_| http.clone(), turn).await
            }
            Way::InProcess(driver) => {
                let seconds = length.as_secs_f64();
                let answer = driver.obey(&json!({"clients": clients, "seconds": seconds}));
                Load { turns: answer["turns"].as_f64().unwrap(), seconds: answer["seconds"].as_f64().unwrap() }
            }
        }
    }
}

/// Runs clients that start a turn when their last one has ended.
async fn closed_loop<C: Clone + Send + 'static, F: Future<Output = f64> + Send>(
    clients: usize,
    length: Duration,
    connection: impl Fn(usize) -> C,
    turn: impl Fn(C) -> F + Copy + Send + 'static,
) -> Load {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let connection = connection(client);
        tasks.spawn(async move {
            let mut turns = 0_u32;
            while begun.elapsed() < length {
                turn(connection.clone()).await;
                turns += 1;
            }
            turns
        });
    }
    let turns = tasks.join_all().await.into_iter().map(f64::from).sum();
    Load { turns, seconds: begun.elapsed().as_secs_f64() }
}

/// Runs a turn of a new session on contextd. Returns the milliseconds to its first text.
async fn execute(channel: Calling) -> f64 {
    let session = uuid::Uuid::now_v7().to_string();
    let request = pb::ExecuteTurnRequest { model: String::new(), ..turn(&session) };
    callers::timed(channel, request).await.unwrap().as_secs_f64() * 1e3
}

/// A service with a model service's protocol.
#[derive(Clone)]
struct Http {
    client: reqwest::Client,
    url: String,
    body: Value,
    /// The text by which the first event with a delta is recognized.
    delta: &'static str,
}

impl Http {
    fn chat(url: String) -> Self {
        Self {
            client: reqwest::Client::new(),
            url,
            body: json!({"model": "bench", "stream": true,
                "messages": [{"role": "user", "content": "Go"}]}),
            delta: "\"content\":\" 0\"",
        }
    }

    fn responses(url: String) -> Self {
        Self {
            client: reqwest::Client::new(),
            url,
            body: json!({"model": "bench", "stream": true, "store": true, "input": "Go"}),
            delta: "response.output_text.delta",
        }
    }

    async fn turn(&self) -> f64 {
        let begun = Instant::now();
        let mut first = None;
        let mut response = self.request().await.unwrap();
        let mut seen = String::new();
        while let Some(piece) = response.chunk().await.unwrap() {
            if first.is_none() {
                seen += &String::from_utf8_lossy(&piece);
                first = seen.contains(self.delta).then(|| begun.elapsed());
            }
        }
        first.unwrap().as_secs_f64() * 1e3
    }

    async fn request(&self) -> reqwest::Result<reqwest::Response> {
        let request = self.client.post(&self.url);
        let request = request.header("content-type", "application/json");
        request.body(self.body.to_string()).send().await?.error_for_status()
    }

    async fn until_it_answers(&self) {
        let begun = Instant::now();
        while let Err(error) = self.request().await {
            assert!(begun.elapsed() < START_TIMEOUT, "{}: {error}", self.url);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// A process that runs turns on command.
struct Driver {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _child: Killed,
}

impl Driver {
    fn obey(&mut self, order: &Value) -> Value {
        writeln!(self.input, "{order}").unwrap();
        let line = self.line();
        serde_json::from_str(&line).unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::task::block_in_place(|| self.output.read_line(&mut line)).unwrap();
        assert!(!line.is_empty(), "a peer exited");
        line
    }
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait()); // it may have exited already
    }
}

/// The log file of a peer.
fn log(name: &str) -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer-{name}.log"));
    File::create(path).unwrap()
}

/// A port that is currently free.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

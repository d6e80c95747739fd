//! Runs the built contextd as a process, which tests start, signal and kill.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use contextd::pb::{session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::config::Host;
use tonic::{Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{TestDatabase, database::pool_size, events::TEST_TIMEOUT};

/// A port that is free.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A separate directory for scripts, settings and data. It is removed after the PostgreSQL in it has stopped.
pub struct Place {
    root: TempDir,
    program: PathBuf,
    user: Option<(u32, u32)>,
    variables: Vec<(&'static str, &'static str)>,
}

/// Adds a long overload wait, since other tests keep the machine busy and no request that may wait should be refused,
/// and the pool size of the tests.
fn patient(settings: &str) -> String {
    const TABLE: &str = "[database]\n";
    let mut more = String::new();
    if !settings.contains("overload_wait") {
        more.push_str("overload_wait = '10s'\n");
    }
    if let Some(size) = pool_size().filter(|_| !settings.contains("pool_size")) {
        more.push_str(&format!("pool_size = {size}\n"));
    }
    if more.is_empty() {
        settings.to_owned()
    } else if settings.contains(TABLE) {
        settings.replacen(TABLE, &format!("{TABLE}{more}"), 1)
    } else {
        format!("{settings}\n{TABLE}{more}")
    }
}

impl Place {
    /// Processes in this place use these settings, in TOML, with the tests' longer waits added.
    pub fn new(settings: &str) -> Self {
        Self::exactly(&patient(settings))
    }

    /// Processes in this place use exactly these settings, for a program that knows fewer settings.
    pub fn exactly(settings: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(root.path().join("scripts")).unwrap();
        fs::write(root.path().join("contextd.toml"), settings).unwrap();
        Self { root, program: env!("CARGO_BIN_EXE_contextd").into(), user: None, variables: Vec::new() }
    }

    /// Sets an environment variable for processes in this place. They inherit none of the keys that the test process
    /// may have.
    pub fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Adds a script.
    pub fn script(self, name: &str, json: &serde_json::Value) -> Self {
        fs::write(self.root.path().join("scripts").join(format!("{name}.json")), json.to_string()).unwrap();
        self
    }

    /// Uses another build of contextd in this place.
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Runs everything in this place as this user, and makes the user its owner.
    pub fn owned_by(mut self, uid: u32, gid: u32) -> Self {
        let program = self.root.path().join("contextd");
        fs::copy(&self.program, &program).unwrap(); // where any user can reach it
        chown(self.root.path(), Some(uid), Some(gid)).unwrap();
        self.program = program;
        self.user = Some((uid, gid));
        self
    }

    /// Starts `contextd serve` with an embedded PostgreSQL.
    pub async fn serve(&self) -> Served {
        self.serve_at(ANY_PORT).await
    }

    /// The same at a given address, for example that of a killed server.
    pub async fn serve_at(&self, address: SocketAddr) -> Served {
        Served::start(self.command_at(address, "serve").arg("--data-dir").arg(self.data_dir())).await
    }

    /// Starts `contextd serve` on a database.
    pub async fn serve_over(&self, database: &TestDatabase) -> Served {
        self.try_serve_over(database).await.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The same, but returns as soon as the server listens; the database or its schema may not be ready.
    pub async fn serve_unready_over(&self, database: &TestDatabase) -> Served {
        Served::listening(self.command("serve").arg("--database-url").arg(url(database))).await
    }

    /// The same, but the start may fail. The error is the output of the process.
    pub async fn try_serve_over(&self, database: &TestDatabase) -> Result<Served, String> {
        Served::try_start(self.command("serve").arg("--database-url").arg(url(database))).await
    }

    /// The same at a given address.
    pub async fn serve_over_at(&self, database: &TestDatabase, address: SocketAddr) -> Served {
        Served::start(self.command_at(address, "serve").arg("--database-url").arg(url(database))).await
    }

    /// Runs a command on a database until it exits.
    pub async fn run_over(&self, database: &TestDatabase, command: &str) -> Output {
        let mut command = self.command(command);
        let output = command.arg("--database-url").arg(url(database)).output();
        timeout(TEST_TIMEOUT, output).await.expect("it goes on and on").unwrap()
    }

    /// Runs `contextd backup` or `restore` on the database in this place.
    pub async fn run_with_file(&self, command: &str, file: &Path) -> Output {
        let mut command = self.command(command);
        let command = command.arg("--data-dir").arg(self.data_dir()).arg(file);
        timeout(TEST_TIMEOUT, command.output()).await.expect("it goes on and on").unwrap()
    }

    /// Runs `contextd admin export` or `import` on a database.
    pub async fn admin_with_file(&self, database: &TestDatabase, action: &str, file: &Path) -> Output {
        let mut command = Command::new(&self.program);
        command.args(["admin", action]).arg(file);
        command.arg("--config").arg(self.root.path().join("contextd.toml"));
        let output = command.arg("--database-url").arg(url(database)).output();
        timeout(TEST_TIMEOUT, output).await.expect("it goes on and on").unwrap()
    }

    fn command(&self, command: &str) -> Command {
        self.command_at(ANY_PORT, command)
    }

    fn command_at(&self, address: SocketAddr, command: &str) -> Command {
        let mut process = Command::new(&self.program);
        process.arg(command).arg("--config").arg(self.root.path().join("contextd.toml"));
        process.arg("--script-dir").arg(self.root.path().join("scripts"));
        if command == "serve" {
            process.arg("--listen").arg(address.to_string());
        }
        if let Some((uid, gid)) = self.user {
            process.uid(uid).gid(gid);
        }
        process.env_clear().envs(inherited("PATH")).env("HOME", self.root.path());
        process.envs(inherited("HOME").map(|(_, home)| ("XDG_CACHE_HOME", Path::new(&home).join(".cache"))));
        process.envs(self.variables.iter().copied());
        process.current_dir(self.root.path()).stdin(Stdio::null()).kill_on_drop(true);
        process
    }

    fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// The process id of the PostgreSQL in this place.
    pub fn postmaster(&self) -> Option<i32> {
        let file = fs::read_to_string(self.data_dir().join("postgresql/postmaster.pid")).ok()?;
        file.lines().next()?.parse().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for _ in 0..1000 {
            if self.postmaster().is_none_or(|pid| !alive(pid)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A `contextd serve` process that is ready. Killed on drop.
pub struct Served {
    /// The address on which it listens.
    pub address: SocketAddr,
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
    said: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
}

impl Served {
    async fn start(command: &mut Command) -> Self {
        Self::try_start(command).await.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts the process and waits until it is ready. The error is its output.
    async fn try_start(command: &mut Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (said, listener) = listen(child.stderr.take().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = timeout(TEST_TIMEOUT, lines.next_line()).await.ok().and_then(Result::unwrap);
        let address = ready
            .as_deref()
            .and_then(|line| line.split_once("contextd listens on "))
            .map(|(_, address)| address.trim_end_matches("\"}"));
        let Some(address) = address.map(|address| address.parse().unwrap()) else {
            let _ = child.start_kill(); // it may have exited already
            timeout(TEST_TIMEOUT, listener).await.expect("its standard error stays open").unwrap();
            return Err(format!("never ready; stdout: {ready:?}, stderr: {}", said.lock().unwrap()));
        };
        let printed: Arc<Mutex<Vec<String>>> = Arc::new(Mutex::new(ready.into_iter().collect()));
        keep(lines, Arc::clone(&printed));
        Ok(Self { address, child, printed, said, listener })
    }

    /// Starts the process and waits until it listens; it need not become ready.
    async fn listening(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (said, listener) = listen(child.stderr.take().unwrap());
        let printed = Arc::default();
        keep(BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(&printed));
        let address = until("it listens", || async {
            let said = said.lock().unwrap();
            let (_, rest) = said.split_once("listening on ")?;
            // A text log ends the address with a space, a JSON log with a quote.
            let (address, _) = rest.split_once(|c: char| c.is_whitespace() || c == '"')?;
            address.parse().ok()
        });
        Self { address: address.await, child, printed, said, listener }
    }

    /// Waits until the log contains a text.
    pub async fn wait_for_log(&self, words: &str) {
        until(words, || async { self.log_text().contains(words).then_some(()) }).await;
    }

    /// The log so far.
    pub fn log_text(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// The lines of standard output so far.
    pub fn printed(&self) -> Vec<String> {
        self.printed.lock().unwrap().clone()
    }

    /// Kills the process with SIGKILL and waits for its exit.
    pub async fn kill_9(mut self) {
        self.child.start_kill().unwrap();
        self.ended().await;
    }

    /// Sends a signal, for example SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it has ended")).unwrap()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Waits for the exit and for the rest of the log, which may arrive after the exit.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = async {
            let status = self.child.wait().await.unwrap();
            if !self.listener.is_finished() {
                (&mut self.listener).await.unwrap();
            }
            status
        };
        let ended = timeout(TEST_TIMEOUT, ended).await;
        ended.unwrap_or_else(|_| panic!("does not end: {}", self.log_text()))
    }

    /// Stops the process with SIGTERM. Its exit must be successful.
    pub async fn stop(mut self) {
        self.terminate();
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{status}: {}", self.log_text());
    }

    /// Opens a connection.
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// A TurnService client on a new connection.
    pub async fn turns(&self) -> TurnServiceClient<Channel> {
        TurnServiceClient::new(self.channel().await)
    }

    /// A SessionService client on a new connection.
    pub async fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel().await)
    }

    /// Watches the readiness of the server.
    pub async fn health(&self) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
        self.watch_health("readiness").await
    }

    /// Watches the health of one service.
    pub async fn watch_health(&self, service: &str) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
        let service = service.to_owned();
        let mut client = HealthClient::new(self.channel().await);
        client.watch(HealthCheckRequest { service }).await.unwrap().into_inner()
    }
}

impl Drop for Served {
    /// Prints the server's log if the test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server at {} said:\n{}", self.address, self.log_text());
        }
    }
}

/// Runs `contextd health` on an address. Returns its exit code and output.
pub async fn health(address: SocketAddr) -> (Option<i32>, String) {
    let output = health_output(address).await;
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Runs `contextd health` on an address.
pub async fn health_output(address: SocketAddr) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contextd"));
    let output = command.args(["health", "--address", &address.to_string()]).env_clear().output();
    timeout(TEST_TIMEOUT, output).await.expect("no answer").unwrap()
}

/// Polls until `look` returns a value.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, found).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Connects to an address at which no server may be listening.
pub async fn try_channel(address: SocketAddr) -> Result<Channel, Status> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await;
    channel.map_err(|error| Status::unavailable(error.to_string()))
}

/// Connects a TurnService client to an address at which no server may be listening.
pub async fn try_turns(address: SocketAddr) -> Result<TurnServiceClient<Channel>, Status> {
    Ok(TurnServiceClient::new(try_channel(address).await?))
}

/// The URL of the database.
pub fn url(database: &TestDatabase) -> String {
    let config = &database.config;
    let user = config.get_user().unwrap();
    let name = config.get_dbname().unwrap();
    match config.get_hosts() {
        [Host::Unix(socket)] => {
            format!("postgresql:///{name}?host={}&user={user}", socket.display())
        }
        [Host::Tcp(host)] => format!("postgresql://{user}@{host}:{}/{name}", config.get_ports()[0]),
        other => panic!("not one address: {other:?}"),
    }
}

/// Whether a process is running. A zombie is not: where process 1 does not reap, an orphan remains a zombie.
pub fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn inherited(name: &str) -> Option<(&str, OsString)> {
    Some((name, std::env::var_os(name)?))
}

/// Collects the lines that a process prints.
fn keep(mut lines: Lines<BufReader<ChildStdout>>, printed: Arc<Mutex<Vec<String>>>) {
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            printed.lock().unwrap().push(line);
        }
    });
}

/// Collects the standard error of a process until the process and all that inherited it have closed it.
fn listen(mut stderr: ChildStderr) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let said = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&said);
    let listener = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
            heard.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    });
    (said, listener)
}

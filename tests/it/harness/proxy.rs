//! A network link with injected faults. It connects contextd and PostgreSQL, a client and contextd, or contextd and a
//! model service, and can cut, stall, half-close, discard and delay the traffic.
//!
//! ```ignore
//! let link = Link::to_database(&database).await;
//! let replica = place.serve_over(&link.database(&database)).await;
//! link.cut_at_commit(Landed::Yes);     // the commit arrives, its response does not
//! ```

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{self, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    time::timeout,
};
use tokio_postgres::config::Host;
use tokio_util::sync::CancellationToken;

use super::{TestDatabase, events::TEST_TIMEOUT};

/// The last bytes of what the driver sends to run a prepared statement: Execute without a limit, then Sync.
const EXECUTED: &[u8] = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
/// The first bytes of a transaction with several statements, and the last ones.
const BEGIN: &[u8] = b"Q\0\0\0\x0abegin\0";
const COMMIT: &[u8] = b"Q\0\0\0\x0bcommit\0";
/// The first element of the array of statement names that the commit function is called with: its length and its text.
const WRITES_SESSION: [&[u8]; 2] = [b"\0\0\0\x01\0\0\0\x07session", b"\0\0\0\x01\0\0\0\x07new_run"];

/// Maximum bytes per read.
const CHUNK: usize = 64 * 1024;

/// The other end of a link.
#[derive(Debug, Clone)]
pub enum Target {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A direction of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    There,
    /// To the client.
    Back,
}

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Traffic {
    /// They arrive.
    #[default]
    Flows,
    /// They arrive after this delay.
    Late(Duration),
    /// They wait until the traffic mode changes.
    Stalls,
    /// They are read and discarded.
    Vanishes,
    /// The receiver sees a closed connection; the other direction continues.
    Closed,
}

/// Whether the bytes at which a connection is cut still arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutPoint {
    After,
    Before,
}

#[derive(Debug, Clone, Default)]
struct Rules {
    there: Traffic,
    back: Traffic,
    closed: bool,
}

/// A fault at a certain position in the traffic.
#[derive(Debug, Clone)]
struct Trap {
    at: At,
    landed: CutPoint,
    then: Then,
}

/// A position in the traffic to the server.
#[derive(Debug, Clone)]
enum At {
    /// The end of a statement, after this number of other statements.
    Statement(usize),
    /// The commit of the next change of a session that contains these bytes: the end of its transaction, or of its statement if there is no
    /// transaction.
    Commit(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Break,
    Die,
}

struct Shared {
    target: Mutex<Target>,
    rules: watch::Sender<Rules>,
    trap: Mutex<Option<Trap>>,
    sprung: watch::Sender<usize>,
    open: watch::Sender<usize>,
    there: AtomicU64,
    back: AtomicU64,
    cut: Mutex<CancellationToken>,
    dead: Mutex<CancellationToken>,
}

/// One network link. It closes at the end of the test.
pub struct Link {
    /// The address to which clients connect.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Link {
    /// A link on a free port.
    pub async fn to(target: Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            rules: watch::Sender::default(),
            trap: Mutex::default(),
            sprung: watch::Sender::default(),
            open: watch::Sender::default(),
            there: AtomicU64::default(),
            back: AtomicU64::default(),
            cut: Mutex::default(),
            dead: Mutex::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&shared))));
        Self { address, shared, stop }
    }

    /// A link to a database's server.
    pub async fn to_database(database: &TestDatabase) -> Self {
        Self::to(database_target(database)).await
    }

    /// The database with connections through this link.
    pub fn database(&self, database: &TestDatabase) -> TestDatabase {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port());
        config.user(database.config.get_user().unwrap()).dbname(database.config.get_dbname().unwrap());
        TestDatabase { config }
    }

    /// Sends new connections to another target.
    pub fn lead_to(&self, target: Target) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// Breaks every open connection. New ones are accepted as before.
    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.cut.lock().unwrap()).cancel();
    }

    /// Silently drops all traffic of every open connection: neither end is notified.
    pub fn strand(&self) {
        std::mem::take(&mut *self.shared.dead.lock().unwrap()).cancel();
    }

    /// Breaks the next connection on which a change of a session is committed, directly before or after the commit.
    pub fn cut_at_commit(&self, landed: CutPoint) {
        self.lay(At::Commit(Vec::new()), landed, Then::Break);
    }

    /// The same, but the connection goes silent instead of breaking.
    pub fn strand_at_commit(&self, landed: CutPoint) {
        self.strand_at_commit_of("", landed);
    }

    /// The same, at the next commit that contains a text.
    pub fn strand_at_commit_of(&self, text: &str, landed: CutPoint) {
        self.lay(At::Commit(text.as_bytes().to_vec()), landed, Then::Die);
    }

    /// Breaks the connection at the end of a statement, after `after` other statements.
    pub fn cut_at_statement(&self, after: usize, landed: CutPoint) {
        self.lay(At::Statement(after), landed, Then::Break);
    }

    /// Cancels a planned fault that has not occurred.
    pub fn spare(&self) {
        *self.shared.trap.lock().unwrap() = None;
    }

    fn lay(&self, at: At, landed: CutPoint, then: Then) {
        *self.shared.trap.lock().unwrap() = Some(Trap { at, landed, then });
    }

    /// The number of planned faults that have occurred.
    pub fn times_cut(&self) -> usize {
        *self.shared.sprung.borrow()
    }

    /// Waits until this number of planned faults has occurred.
    pub async fn was_cut(&self, times: usize) {
        let mut sprung = self.shared.sprung.subscribe();
        timeout(TEST_TIMEOUT, sprung.wait_for(|sprung| *sprung >= times)).await.expect("nothing was cut").unwrap();
    }

    /// Breaks every connection and refuses new ones, until [`Link::open`].
    pub fn close(&self) {
        self.shared.rules.send_modify(|rules| rules.closed = true);
        self.cut();
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.shared.rules.send_modify(|rules| rules.closed = false);
    }

    /// Sets the traffic mode of one direction, on every connection.
    pub fn traffic(&self, way: Way, traffic: Traffic) {
        self.shared.rules.send_modify(|rules| match way {
            Way::There => rules.there = traffic,
            Way::Back => rules.back = traffic,
        });
    }

    /// Sets the traffic mode of both directions.
    pub fn all_traffic(&self, traffic: Traffic) {
        self.traffic(Way::There, traffic);
        self.traffic(Way::Back, traffic);
    }

    /// Bytes transferred in this direction so far, over all connections.
    pub fn carried(&self, way: Way) -> u64 {
        self.shared.carried(way).load(Ordering::Relaxed)
    }

    /// Waits until the number of open connections meets a condition.
    pub async fn carries(&self, connections: impl Fn(usize) -> bool) {
        let mut open = self.shared.open.subscribe();
        timeout(TEST_TIMEOUT, open.wait_for(|open| connections(*open)))
            .await
            .expect("never so many connections")
            .unwrap();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut();
    }
}

/// The socket or port of a database's server.
pub fn database_target(database: &TestDatabase) -> Target {
    let config = &database.config;
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts() {
        [Host::Unix(socket)] => Target::Unix(socket.join(format!(".s.PGSQL.{port}"))),
        other => panic!("not a socket: {other:?}"),
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, Arc::clone(&shared)));
    }
}

/// Serves one connection until it ends.
async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    let fate = Fate { cut: shared.cut.lock().unwrap().child_token(), dead: shared.dead.lock().unwrap().child_token() };
    let target = shared.target.lock().unwrap().clone();
    if shared.rules.borrow().closed {
        let _ = client.set_zero_linger();
        return;
    }
    match target {
        Target::Tcp(address) => {
            let Ok(server) = TcpStream::connect(address).await else {
                return;
            };
            let _ = server.set_nodelay(true);
            between(client, server, &shared, &fate).await;
        }
        Target::Unix(path) => {
            let Ok(server) = UnixStream::connect(path).await else {
                return;
            };
            between(client, server, &shared, &fate).await;
        }
    }
}

/// The faults that may occur to one connection.
struct Fate {
    cut: CancellationToken,
    dead: CancellationToken,
}

async fn between<S: AsyncRead + AsyncWrite>(client: TcpStream, server: S, shared: &Shared, fate: &Fate) {
    shared.open.send_modify(|open| *open += 1);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = io::split(server);
    let both = async {
        tokio::join!(
            pump(Way::There, &mut from_client, &mut to_server, shared, fate),
            pump(Way::Back, &mut from_server, &mut to_client, shared, fate),
        )
    };
    fate.cut.run_until_cancelled(both).await;
    if fate.cut.is_cancelled() {
        // Unsent data is discarded, and the client sees a reset.
        let _ = from_client.as_ref().set_zero_linger();
    }
    shared.open.send_modify(|open| *open -= 1);
}

/// Forwards one direction of a connection until its sender closes it.
async fn pump(
    way: Way,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    fate: &Fate,
) {
    let mut rules = shared.rules.subscribe();
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            biased;
            () = fate.dead.cancelled() => std::future::pending().await,
            () = closed(&mut rules, way) => break,
            read = from.read(&mut buffer) => read,
        };
        let Ok(length @ 1..) = read else { break };
        let (bytes, then) = shared.up_to_trap(way, &buffer[..length]);
        match traffic(&mut rules, way).await {
            Traffic::Flows | Traffic::Stalls => {}
            Traffic::Late(by) => tokio::time::sleep(by).await,
            Traffic::Vanishes => continue,
            Traffic::Closed => break,
        }
        if fate.dead.is_cancelled() {
            continue;
        }
        if to.write_all(bytes).await.is_err() {
            break;
        }
        shared.carried(way).fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // Before the other direction is read, so that no response passes.
        match then {
            Some(Then::Break) => fate.cut.cancel(),
            Some(Then::Die) => fate.dead.cancel(),
            None => {}
        }
        if then.is_some() {
            shared.sprung.send_modify(|sprung| *sprung += 1);
        }
    }
    let _ = to.shutdown().await;
}

/// The current traffic mode; waits while the mode is `Stalls`.
async fn traffic(rules: &mut watch::Receiver<Rules>, way: Way) -> Traffic {
    let now = rules.wait_for(|rules| rules.of(way) != Traffic::Stalls).await;
    now.map_or(Traffic::Closed, |rules| rules.of(way))
}

/// Resolves when this direction is closed.
async fn closed(rules: &mut watch::Receiver<Rules>, way: Way) {
    let _ = rules.wait_for(|rules| rules.of(way) == Traffic::Closed).await;
}

impl Rules {
    fn of(&self, way: Way) -> Traffic {
        match way {
            Way::There => self.there,
            Way::Back => self.back,
        }
    }
}

impl Shared {
    fn carried(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        }
    }

    /// The bytes that pass before a planned fault, and the fault.
    fn up_to_trap<'a>(&self, way: Way, bytes: &'a [u8]) -> (&'a [u8], Option<Then>) {
        let mut trap = self.trap.lock().unwrap();
        let found = trap.as_mut().filter(|_| way == Way::There).and_then(|trap| trap.at.met(bytes));
        match (found, trap.take_if(|_| found.is_some())) {
            (Some((_, end)), Some(trap)) if trap.landed == CutPoint::After => (&bytes[..end], Some(trap.then)),
            (Some((start, _)), Some(trap)) => (&bytes[..start], Some(trap.then)),
            (_, _) => (bytes, None),
        }
    }
}

impl At {
    /// Where the position begins and ends in these bytes.
    fn met(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        match self {
            Self::Statement(after) => {
                let mut ends = places(bytes, EXECUTED);
                let Some(start) = ends.nth(*after) else {
                    *after -= places(bytes, EXECUTED).count();
                    return None;
                };
                Some((start, start + EXECUTED.len()))
            }
            Self::Commit(text) => {
                let writes = |name| places(bytes, name).next();
                let written = WRITES_SESSION.into_iter().filter_map(writes).min()?;
                if !text.is_empty() {
                    places(&bytes[written..], text).next()?;
                }
                let begun = places(bytes, BEGIN).next().is_some_and(|at| at < written);
                let end = if begun { COMMIT } else { EXECUTED };
                let start = written + places(&bytes[written..], end).next()?;
                Some((start, start + end.len()))
            }
        }
    }
}

/// The offsets at which `wanted` occurs.
fn places(bytes: &[u8], wanted: &[u8]) -> impl Iterator<Item = usize> {
    let windows = bytes.windows(wanted.len()).enumerate();
    windows.filter(move |(_, window)| *window == wanted).map(|(at, _)| at)
}

//! A stretch of network that fails when a test says so. It lies between contextd and PostgreSQL,
//! between a client and contextd, or between contextd and a model service, and can cut, stall,
//! half-close, swallow and delay what goes through.
//!
//! ```ignore
//! let link = Link::to_database(&database).await;
//! let replica = place.serve_over(&link.database(&database)).await;
//! link.cut_at(COMMIT, Landed::Yes);   // the commit arrives, its answer never does
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

use super::{TestDatabase, events::PATIENCE};

/// A client's word that ends a transaction, as it goes over the wire.
pub const COMMIT: &[u8] = b"Q\0\0\0\x0bcommit\0";

/// Most bytes that are carried at once.
const CHUNK: usize = 64 * 1024;

/// Where the other end of a link is.
#[derive(Debug, Clone)]
pub enum Target {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A direction: from the client to the server, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    There,
    /// To the client.
    Back,
}

/// What becomes of bytes that go one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Traffic {
    /// They arrive.
    #[default]
    Flows,
    /// They arrive so much later.
    Late(Duration),
    /// They wait until traffic changes.
    Stalls,
    /// They are taken and never arrive.
    Vanishes,
    /// The sender's end is seen to be closed; the other way goes on.
    Closed,
}

/// Whether the bytes at which a connection is cut still arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// They do.
    Yes,
    /// They do not.
    No,
}

#[derive(Debug, Clone, Default)]
struct Rules {
    there: Traffic,
    back: Traffic,
    closed: bool,
}

/// What happens to a connection at certain bytes.
#[derive(Debug, Clone)]
struct Trap {
    after: usize,
    bytes: Vec<u8>,
    landed: Landed,
    then: Then,
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

/// One stretch of network. It ends with the test.
pub struct Link {
    /// Where clients connect.
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
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(accept(listener, Arc::clone(&shared))),
        );
        Self {
            address,
            shared,
            stop,
        }
    }

    /// A link to a database's server.
    pub async fn to_database(database: &TestDatabase) -> Self {
        Self::to(database_target(database)).await
    }

    /// The database as it is reached over this link.
    pub fn database(&self, database: &TestDatabase) -> TestDatabase {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port());
        config
            .user(database.config.get_user().unwrap())
            .dbname(database.config.get_dbname().unwrap());
        TestDatabase { config }
    }

    /// New connections lead elsewhere from now on.
    pub fn lead_to(&self, target: Target) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// Breaks every connection that there is. New ones are made as before.
    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.cut.lock().unwrap()).cancel();
    }

    /// Lets every connection that there is die without a word: nothing comes through any more, and
    /// nobody is told.
    pub fn strand(&self) {
        std::mem::take(&mut *self.shared.dead.lock().unwrap()).cancel();
    }

    /// Breaks the next connection on which these bytes go to the server, right before or behind
    /// them.
    pub fn cut_at(&self, bytes: &[u8], landed: Landed) {
        self.cut_at_the(0, bytes, landed);
    }

    /// The same, after they were let pass so many times.
    pub fn cut_at_the(&self, after: usize, bytes: &[u8], landed: Landed) {
        self.lay(Trap {
            after,
            bytes: bytes.to_vec(),
            landed,
            then: Then::Break,
        });
    }

    /// The same, but it dies without a word.
    pub fn strand_at(&self, bytes: &[u8], landed: Landed) {
        self.lay(Trap {
            after: 0,
            bytes: bytes.to_vec(),
            landed,
            then: Then::Die,
        });
    }

    /// What is planned and has not happened does not happen any more.
    pub fn spare(&self) {
        *self.shared.trap.lock().unwrap() = None;
    }

    fn lay(&self, trap: Trap) {
        *self.shared.trap.lock().unwrap() = Some(trap);
    }

    /// How often that has happened.
    pub fn times_cut(&self) -> usize {
        *self.shared.sprung.borrow()
    }

    /// Waits until that has happened so many times.
    pub async fn was_cut(&self, times: usize) {
        let mut sprung = self.shared.sprung.subscribe();
        timeout(PATIENCE, sprung.wait_for(|sprung| *sprung >= times))
            .await
            .expect("nothing was cut")
            .unwrap();
    }

    /// Breaks every connection and refuses new ones, until [`Link::open`].
    pub fn close(&self) {
        self.shared.rules.send_modify(|rules| rules.closed = true);
        self.cut();
    }

    /// Takes connections again.
    pub fn open(&self) {
        self.shared.rules.send_modify(|rules| rules.closed = false);
    }

    /// What becomes of bytes that go this way, on every connection.
    pub fn traffic(&self, way: Way, traffic: Traffic) {
        self.shared.rules.send_modify(|rules| match way {
            Way::There => rules.there = traffic,
            Way::Back => rules.back = traffic,
        });
    }

    /// The same both ways.
    pub fn all_traffic(&self, traffic: Traffic) {
        self.traffic(Way::There, traffic);
        self.traffic(Way::Back, traffic);
    }

    /// Bytes that went this way so far, over all connections.
    pub fn carried(&self, way: Way) -> u64 {
        self.shared.carried(way).load(Ordering::Relaxed)
    }

    /// Waits until so many connections are open.
    pub async fn carries(&self, connections: impl Fn(usize) -> bool) {
        let mut open = self.shared.open.subscribe();
        timeout(PATIENCE, open.wait_for(|open| connections(*open)))
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

/// Where a database's server listens.
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

/// One connection, from its beginning to its end.
async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    let fate = Fate {
        cut: shared.cut.lock().unwrap().child_token(),
        dead: shared.dead.lock().unwrap().child_token(),
    };
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

/// What may happen to one connection.
struct Fate {
    cut: CancellationToken,
    dead: CancellationToken,
}

async fn between<S: AsyncRead + AsyncWrite>(
    client: TcpStream,
    server: S,
    shared: &Shared,
    fate: &Fate,
) {
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
        // What is left unsent is thrown away, and the client sees a reset.
        let _ = from_client.as_ref().set_zero_linger();
    }
    shared.open.send_modify(|open| *open -= 1);
}

/// One way of a connection, until its sender is done with it.
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
        shared
            .carried(way)
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // Before the other way is looked at, so that no answer slips through.
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

/// What becomes of bytes now; waits while they wait.
async fn traffic(rules: &mut watch::Receiver<Rules>, way: Way) -> Traffic {
    let now = rules
        .wait_for(|rules| rules.of(way) != Traffic::Stalls)
        .await;
    now.map_or(Traffic::Closed, |rules| rules.of(way))
}

/// Comes when this way is closed.
async fn closed(rules: &mut watch::Receiver<Rules>, way: Way) {
    let _ = rules
        .wait_for(|rules| rules.of(way) == Traffic::Closed)
        .await;
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

    /// What goes through of these bytes, and what happens then.
    fn up_to_trap<'a>(&self, way: Way, bytes: &'a [u8]) -> (&'a [u8], Option<Then>) {
        let mut trap = self.trap.lock().unwrap();
        let found = trap
            .as_mut()
            .filter(|_| way == Way::There)
            .and_then(|trap| trap.spring(bytes));
        match (found, trap.take_if(|_| found.is_some())) {
            (Some(place), Some(trap)) if trap.landed == Landed::Yes => {
                (&bytes[..place + trap.bytes.len()], Some(trap.then))
            }
            (Some(place), Some(trap)) => (&bytes[..place], Some(trap.then)),
            (_, _) => (bytes, None),
        }
    }
}

impl Trap {
    /// Where in these bytes it is sprung.
    fn spring(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut places = bytes
            .windows(self.bytes.len().max(1))
            .enumerate()
            .filter(|(_, window)| *window == self.bytes);
        let place = places.nth(self.after).map(|(place, _)| place);
        if place.is_none() {
            self.after -= bytes
                .windows(self.bytes.len().max(1))
                .filter(|window| *window == self.bytes)
                .count();
        }
        place
    }
}

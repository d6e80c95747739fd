//! A transaction pooler from contextd's point of view. Each transaction gets another connection to the server, settings
//! in the startup message are refused, and no session state outlasts a transaction. It replaces pgbouncer in
//! transaction mode where no pgbouncer is available, and is stricter: no two consecutive transactions get the same
//! connection.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{self, AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream, tcp},
    sync::{Mutex, OwnedMutexGuard},
};
use tokio_util::sync::CancellationToken;

use super::{
    TestDatabase,
    proxy::{Target, database_target},
};

/// Number of connections to the server that transactions use in rotation.
const BACKENDS: usize = 4;
/// The code of a request to cancel a statement; it is not forwarded.
const CANCEL_REQUEST: i32 = 80_877_102;
/// The code of a request for TLS, which is declined.
const SSL_REQUEST: i32 = 80_877_103;
/// Startup parameters that a client may send.
const KNOWN: [&str; 5] = ["user", "database", "client_encoding", "application_name", "timezone"];

/// A pooler in front of one database. It stops at the end of the test.
pub struct Pooler {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

struct Shared {
    /// The socket path of the server, the user and the database.
    login: (PathBuf, String, String),
    /// `None` after a client has disconnected during a transaction; the next one gets a new connection, as in
    /// pgbouncer.
    backends: Vec<Arc<Mutex<Option<UnixStream>>>>,
    next: AtomicUsize,
    transactions: AtomicUsize,
    /// Whether unknown startup parameters are ignored instead of refused.
    ignores_settings: bool,
}

impl Pooler {
    /// A pooler whose connections to the server have the settings that contextd requires for its role there.
    pub async fn before(database: &TestDatabase) -> Self {
        Self::new(database, false).await
    }

    /// A pooler that ignores the startup parameters of clients (`ignore_startup_parameters = options`).
    pub async fn that_ignores_settings(database: &TestDatabase) -> Self {
        Self::new(database, true).await
    }

    async fn new(database: &TestDatabase, ignores_settings: bool) -> Self {
        let Target::Unix(socket) = database_target(database) else { panic!("not a socket") };
        let user = database.config.get_user().unwrap();
        let name = database.config.get_dbname().unwrap();
        let login = (socket, user.to_owned(), name.to_owned());
        let mut backends = Vec::new();
        for _ in 0..BACKENDS {
            backends.push(Arc::new(Mutex::new(Some(log_in(&login).await.unwrap()))));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            login,
            backends,
            next: AtomicUsize::new(0),
            transactions: AtomicUsize::new(0),
            ignores_settings,
        });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&shared))));
        Self { address, shared, stop }
    }

    /// The database with connections through the pooler.
    pub fn database(&self, database: &TestDatabase) -> TestDatabase {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port());
        config.user(database.config.get_user().unwrap()).dbname(database.config.get_dbname().unwrap());
        TestDatabase { config }
    }

    /// The address of the pooler.
    pub fn target(&self) -> Target {
        Target::Tcp(self.address)
    }

    /// The number of completed transactions, including single statements.
    pub fn transactions(&self) -> usize {
        self.shared.transactions.load(Ordering::Relaxed)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Opens a connection to the server, ready for a transaction.
async fn log_in((socket, user, database): &(PathBuf, String, String)) -> io::Result<UnixStream> {
    let mut server = UnixStream::connect(socket).await?;
    let mut body = 196_608_i32.to_be_bytes().to_vec(); // version 3.0
    for word in ["user", user, "database", database, "options", "-c enable_seqscan=off -c timezone=UTC", ""] {
        body.extend(word.as_bytes());
        body.push(0);
    }
    server.write_i32(i32::try_from(body.len() + 4).unwrap()).await?;
    server.write_all(&body).await?;
    loop {
        let (kind, body) = message(&mut server).await?;
        match kind {
            b'Z' => return Ok(server),
            b'E' => {
                return Err(io::Error::other(String::from_utf8_lossy(&body).into_owned()));
            }
            _ => {}
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _ = serve(client, &shared).await;
        });
    }
}

/// Serves one client until it disconnects.
async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let settings = loop {
        let length = client.read_i32().await?;
        let mut body = vec![0; usize::try_from(length - 4).unwrap_or_default()];
        client.read_exact(&mut body).await?;
        if body.get(..4) == Some(&CANCEL_REQUEST.to_be_bytes()) {
            return Ok(());
        }
        if body.get(..4) != Some(&SSL_REQUEST.to_be_bytes()) {
            break body;
        }
        client.write_all(b"N").await?;
    };
    if let Some(unknown) = unknown_setting(&settings).filter(|_| !shared.ignores_settings) {
        let words = format!("SFATAL\0C08P01\0Munsupported startup parameter: {unknown}\0\0");
        return send(&mut client, b'E', words.as_bytes()).await;
    }
    send(&mut client, b'R', &0_i32.to_be_bytes()).await?;
    for setting in ["server_version\x0015.0\0", "client_encoding\0UTF8\0", "integer_datetimes\0on\0"] {
        send(&mut client, b'S', setting.as_bytes()).await?;
    }
    send(&mut client, b'K', &[0; 8]).await?;
    send(&mut client, b'Z', b"I").await?;
    let (from_client, mut to_client) = client.into_split();
    let mut from_client = Messages::of(from_client);
    while let Some(first) = from_client.next().await? {
        let mut place = shared.backend().await;
        let mut backend = match place.take() {
            Some(backend) => backend,
            None => log_in(&shared.login).await?,
        };
        shared.transactions.fetch_add(1, Ordering::Relaxed);
        match transaction(first, &mut from_client, &mut to_client, &mut backend).await? {
            End::Whole => *place = Some(backend),
            End::Left => return Ok(()), // the client is gone; the server's response is discarded
        }
    }
    Ok(())
}

/// How a transaction ended from the pooler's point of view.
enum End {
    /// No transaction is open, and every request has been answered.
    Whole,
    /// The client disconnected during the transaction.
    Left,
}

/// Forwards messages to one connection until the server reports that no transaction is open, every request has been
/// answered, and no group of messages is incomplete.
async fn transaction(
    first: (u8, Vec<u8>),
    from_client: &mut Messages<tcp::OwnedReadHalf>,
    to_client: &mut tcp::OwnedWriteHalf,
    backend: &mut UnixStream,
) -> io::Result<End> {
    let (from_server, mut to_server) = backend.split();
    let mut from_server = Messages::of(from_server);
    let mut unanswered = usize::from(asks(first.0));
    // A client may send the beginning of its next group before the response to the last one, as it does after the check
    // whether a new connection is writable.
    let mut in_group = !asks(first.0);
    put(&mut to_server, first.0, &first.1).await?;
    loop {
        tokio::select! {
            message = from_server.next() => {
                let Some((kind, body)) = message? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
                put(to_client, kind, &body).await?;
                if kind == b'Z' {
                    unanswered = unanswered.saturating_sub(1);
                    if unanswered == 0 && !in_group && body == *b"I" {
                        return Ok(End::Whole);
                    }
                }
            }
            message = from_client.next() => {
                let Some((kind, body)) = message? else { return Ok(End::Left) };
                unanswered += usize::from(asks(kind));
                in_group = !asks(kind);
                put(&mut to_server, kind, &body).await?;
            }
        }
    }
}

/// Whether the server answers a message with ReadyForQuery: a query, or the end of a group.
fn asks(kind: u8) -> bool {
    matches!(kind, b'Q' | b'S')
}

impl Shared {
    /// The next free connection, in rotation.
    async fn backend(&self) -> OwnedMutexGuard<Option<UnixStream>> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.backends.len();
        Arc::clone(&self.backends[place]).lock_owned().await
    }
}

/// A startup parameter that a pooler does not apply to its existing connections.
fn unknown_setting(greeting: &[u8]) -> Option<String> {
    let words: Vec<String> =
        greeting.get(4..)?.split(|byte| *byte == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    words
        .chunks(2)
        .map(|pair| pair[0].clone())
        .find(|name| !name.is_empty() && !KNOWN.contains(&name.to_lowercase().as_str()))
}

/// Reads messages. Reading is cancel-safe: a dropped future loses no data.
struct Messages<R> {
    from: R,
    read: Vec<u8>,
}

impl<R: io::AsyncRead + Unpin> Messages<R> {
    fn of(from: R) -> Self {
        Self { from, read: Vec::new() }
    }

    /// The next message. Returns `None` if the other end has terminated the connection.
    async fn next(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            if let Some(length) = self.read.get(1..5) {
                let length = i32::from_be_bytes(length.try_into().unwrap());
                let end = 1 + usize::try_from(length).unwrap_or_default();
                if self.read.len() >= end {
                    let rest = self.read.split_off(end);
                    let whole = std::mem::replace(&mut self.read, rest);
                    return Ok(Some((whole[0], whole[5..].to_vec())).filter(|(kind, _)| *kind != b'X'));
                }
            }
            if self.from.read_buf(&mut self.read).await? == 0 {
                return Ok(None);
            }
        }
    }
}

async fn message(from: &mut (impl io::AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let length = from.read_i32().await?;
    let mut body = vec![0; usize::try_from(length - 4).unwrap_or_default()];
    from.read_exact(&mut body).await?;
    Ok((kind, body))
}

async fn put(to: &mut (impl io::AsyncWrite + Unpin), kind: u8, body: &[u8]) -> io::Result<()> {
    let mut whole = vec![kind];
    whole.extend(i32::try_from(body.len() + 4).unwrap().to_be_bytes());
    whole.extend(body);
    to.write_all(&whole).await
}

async fn send(to: &mut TcpStream, kind: u8, body: &[u8]) -> io::Result<()> {
    put(to, kind, body).await
}

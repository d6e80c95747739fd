//! Client connections, in TLS or plain text: accepted up to a limit, and closed if the client does not start
//! HTTP/2, floods the server with control frames, makes no call for a long time, or makes no authenticated
//! call.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::AbortHandle,
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{either::Either, sync::WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::{
    frames::{ControlFrameLimiter, PREFACE},
    tls::Tls,
    unauthenticated_connections::{HealthStream, UnauthenticatedConnection, UnauthenticatedConnections},
};
use crate::{
    config::ServerConfig,
    telemetry::{ConnectionEnd, Metrics},
};

/// Maximum number of concurrent TLS handshakes. At the limit, a new one displaces the oldest: clients
/// complete a handshake within a round trip, so the oldest is the least likely to complete.
const MAX_HANDSHAKES: usize = 256;
/// Accepted connections that may be queued for the server.
const MAX_QUEUED_CONNECTIONS: usize = 64;
/// Delay after a failed accept, which happens when the process has run out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The client of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    address: Option<SocketAddr>,
    certificate: Option<Arc<[u8]>>,
    calls: Arc<CallCount>,
    stranger: Arc<UnauthenticatedConnection>,
}

/// Calls on one connection.
#[derive(Debug, Default)]
struct CallCount {
    begun: AtomicU64,
    open: AtomicUsize,
}

/// An open call on a connection; counted until it is dropped.
#[derive(Debug)]
pub struct OpenCall(Arc<CallCount>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    /// Counts a call. The connection is not idle while the call is open.
    pub fn begin_call(&self) -> OpenCall {
        self.calls.begun.fetch_add(1, Ordering::Relaxed);
        self.calls.open.fetch_add(1, Ordering::Relaxed);
        OpenCall(Arc::clone(&self.calls))
    }

    /// Records that a caller on this connection was authenticated.
    pub fn mark_authenticated(&self) {
        self.stranger.mark_authenticated();
    }

    /// Counts a health stream. A connection is not closed for lack of an authenticated call while it has one.
    pub(super) fn begin_health_stream(&self) -> HealthStream {
        self.stranger.begin_health_stream()
    }

    /// The address, for logs. Empty if it is unknown.
    pub fn address(&self) -> String {
        self.address.map(|address| address.to_string()).unwrap_or_default()
    }

    /// The client certificate in DER, verified by TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }
}

/// Accepts the connections of a listener until the returned stream is dropped.
pub fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    config: ServerConfig,
    metrics: Metrics,
) -> ReceiverStream<io::Result<Connection>> {
    let (send, receive) = mpsc::channel(MAX_QUEUED_CONNECTIONS);
    tokio::spawn(async move {
        let gone = send.clone();
        tokio::select! {
            () = gone.closed() => {}
            () = accept_all(listener, tls, config, metrics, send) => {}
        }
    });
    ReceiverStream::new(receive)
}

async fn accept_all(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    config: ServerConfig,
    metrics: Metrics,
    send: mpsc::Sender<io::Result<Connection>>,
) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let strangers = Arc::<UnauthenticatedConnections>::default();
    let mut handshakes = Handshakes::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The socket was shut down, so no later connection can be accepted either.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                tracing::error!(%error, "the listener is closed; no more connections are accepted");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let place = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                strangers.displace_oldest();
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                place
            }
        };
        // Send small frames immediately.
        let _ = stream.set_nodelay(true);
        let most_per_peer = config.max_unauthenticated_connections_per_peer;
        let stranger = strangers.add(Some(address.ip()), most_per_peer);
        let watch = ConnectionChecks::new(place, stranger, &config, metrics.clone());
        let Some(tls) = tls.clone() else {
            if send.send(Ok(Connection::plain(stream, watch))).await.is_err() {
                return;
            }
            continue;
        };
        if handshakes.make_room() {
            metrics.connection_ended(ConnectionEnd::HandshakeDisplaced);
        }
        handshakes.begin(tls, stream, watch, send.clone());
    }
}

/// TLS handshakes in progress, the oldest first.
#[derive(Default)]
struct Handshakes(VecDeque<AbortHandle>);

impl Handshakes {
    /// Makes room for one more handshake. Returns true if another one was aborted for it.
    fn make_room(&mut self) -> bool {
        self.0.retain(|handshake| !handshake.is_finished());
        if self.0.len() < MAX_HANDSHAKES {
            return false;
        }
        if let Some(oldest) = self.0.pop_front() {
            oldest.abort();
        }
        true
    }

    fn begin(
        &mut self,
        tls: Arc<Tls>,
        stream: TcpStream,
        watch: ConnectionChecks,
        send: mpsc::Sender<io::Result<Connection>>,
    ) {
        let handshake = tokio::spawn(async move {
            match timeout(watch.handshake_timeout, tls.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => Some(Connection::encrypted(stream, watch)),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    watch.record_end(ConnectionEnd::HandshakeFailed);
                    None
                }
                Err(_) => {
                    tracing::debug!("TLS handshake timed out");
                    watch.record_end(ConnectionEnd::HandshakeTimeout);
                    None
                }
            }
        });
        self.0.push_back(handshake.abort_handle());
        tokio::spawn(async move {
            if let Ok(Some(connection)) = handshake.await {
                let _ = send.send(Ok(connection)).await;
            }
        });
    }
}

/// The checks that apply to a connection from the moment it is accepted.
#[derive(Debug)]
struct ConnectionChecks {
    handshake_timeout: Duration,
    max_connection_idle: Duration,
    frames: ControlFrameLimiter,
    begun: Instant,
    metrics: Metrics,
    stranger: Arc<UnauthenticatedConnection>,
    /// `None` once a caller is authenticated.
    unauthenticated: Option<Box<UnauthenticatedChecks>>,
    _place: OwnedSemaphorePermit,
}

/// The conditions that close a connection on which no caller is authenticated yet.
#[derive(Debug)]
struct UnauthenticatedChecks {
    period: Duration,
    until: Pin<Box<Sleep>>,
    displaced: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl ConnectionChecks {
    fn new(
        place: OwnedSemaphorePermit,
        stranger: Arc<UnauthenticatedConnection>,
        config: &ServerConfig,
        metrics: Metrics,
    ) -> Self {
        let displaced = stranger.displaced().clone().cancelled_owned();
        let unknown = UnauthenticatedChecks {
            period: config.unauthenticated_connection_timeout,
            until: Box::pin(sleep(config.unauthenticated_connection_timeout)),
            displaced: Box::pin(displaced),
        };
        Self {
            stranger,
            unauthenticated: Some(Box::new(unknown)),
            handshake_timeout: config.handshake_timeout,
            max_connection_idle: config.max_connection_idle,
            frames: ControlFrameLimiter::new(config.max_control_frames_per_second),
            begun: Instant::now(),
            metrics,
            _place: place,
        }
    }

    fn record_end(&self, why: ConnectionEnd) {
        self.metrics.connection_ended(why);
    }

    /// Resolves when the connection must be closed because no caller was authenticated on it.
    fn poll_unauthenticated(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.stranger.is_authenticated() {
            self.unauthenticated = None;
        }
        let Some(unknown) = &mut self.unauthenticated else {
            return Poll::Pending;
        };
        let why = loop {
            if unknown.displaced.as_mut().poll(context).is_ready() {
                break ConnectionEnd::Displaced;
            }
            ready!(unknown.until.as_mut().poll(context));
            if !self.stranger.has_health_stream() {
                break ConnectionEnd::Unauthenticated;
            }
            let until = Instant::now() + unknown.period;
            unknown.until.as_mut().reset(until);
        };
        self.unauthenticated = None;
        self.record_end(why);
        Poll::Ready(())
    }

    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let checked = self.frames.received(bytes, self.begun.elapsed());
        checked.map_err(|flood| {
            self.record_end(ConnectionEnd::Flood);
            io::Error::new(io::ErrorKind::ConnectionAborted, flood)
        })
    }
}

/// The bytes of a connection, in plain text or TLS.
type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection being served.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: Peer,
    watch: ConnectionChecks,
    inactivity: InactivityTimer,
}

/// The timer that closes a connection on which nothing happens.
#[derive(Debug)]
struct InactivityTimer {
    /// Bytes of the HTTP/2 preface that the client has not sent yet.
    missing: usize,
    /// Number of calls begun when the timer was set.
    calls: u64,
    until: Pin<Box<Sleep>>,
}

impl Connection {
    fn plain(stream: TcpStream, watch: ConnectionChecks) -> Self {
        let address = stream.peer_addr().ok();
        Self::new(Either::Left(stream), address, None, watch)
    }

    fn encrypted(stream: TlsStream<TcpStream>, watch: ConnectionChecks) -> Self {
        let (socket, session) = stream.get_ref();
        let address = socket.peer_addr().ok();
        let certificates = session.peer_certificates().unwrap_or_default();
        let certificate = certificates.first().map(|first| Arc::from(first.as_ref()));
        Self::new(Either::Right(Box::new(stream)), address, certificate, watch)
    }

    fn new(
        stream: Stream,
        address: Option<SocketAddr>,
        certificate: Option<Arc<[u8]>>,
        watch: ConnectionChecks,
    ) -> Self {
        let peer = Peer { address, certificate, calls: Arc::default(), stranger: Arc::clone(&watch.stranger) };
        let silence = InactivityTimer { missing: PREFACE, calls: 0, until: Box::pin(sleep(watch.handshake_timeout)) };
        Self { stream, peer, watch, inactivity: silence }
    }

    fn on_received(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.inactivity.missing > 0 {
            self.inactivity.missing = self.inactivity.missing.saturating_sub(bytes.len());
            if self.inactivity.missing == 0 {
                self.reset_idle_timer();
            }
        }
        self.watch.received(bytes)
    }

    fn reset_idle_timer(&mut self) {
        self.inactivity.calls = self.peer.calls.begun.load(Ordering::Relaxed);
        let until = Instant::now() + self.watch.max_connection_idle;
        self.inactivity.until.as_mut().reset(until);
    }

    /// Resolves when the client was inactive for too long: with an error if it never completed the HTTP/2
    /// preface, otherwise with the end of the connection.
    fn poll_inactivity(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.inactivity.until.as_mut().poll(context));
            if self.inactivity.missing > 0 {
                self.watch.record_end(ConnectionEnd::Silent);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let calls = &self.peer.calls;
            let called = calls.begun.load(Ordering::Relaxed) != self.inactivity.calls;
            if !called && calls.open.load(Ordering::Relaxed) == 0 {
                self.watch.record_end(ConnectionEnd::Idle);
                return Poll::Ready(Ok(()));
            }
            self.reset_idle_timer();
        }
    }

    fn on_written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.watch.frames.sent(bytes);
        }
        written
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.watch.poll_unauthenticated(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match read {
            Poll::Ready(Ok(())) => Poll::Ready(self.on_received(&buffer.filled()[before..])),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_inactivity(context),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.on_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.on_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_stream::StreamExt as _;

    use super::*;

    fn config(max_connections: usize) -> ServerConfig {
        ServerConfig {
            max_connections,
            handshake_timeout: Duration::from_millis(50),
            max_control_frames_per_second: 1_000,
            max_connection_idle: Duration::from_hours(1),
            unauthenticated_connection_timeout: Duration::from_hours(1),
            max_unauthenticated_connections_per_peer: 100,
            ..ServerConfig::default()
        }
    }

    fn accept(
        listener: TcpListener,
        tls: Option<Arc<Tls>>,
        config: ServerConfig,
    ) -> ReceiverStream<io::Result<Connection>> {
        super::accept(listener, tls, config, Metrics::default())
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn next(accepted: &mut ReceiverStream<io::Result<Connection>>) -> Connection {
        accepted.next().await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_is_disconnected() {
        let (listener, address) = listener().await;
        let mut accepted = accept(listener, None, config(10));
        for said in [&b""[..], b"PRI * HTTP/2.0"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(said).await.unwrap();
            let mut connection = next(&mut accepted).await;
            let mut read = vec![0; said.len()];
            connection.read_exact(&mut read).await.unwrap();
            let error = connection.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "after {said:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_has_spoken_may_be_silent() {
        let (listener, address) = listener().await;
        let mut accepted = accept(listener, None, config(10));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&[0; PREFACE]).await.unwrap();
        let mut connection = next(&mut accepted).await;
        connection.read_exact(&mut [0; PREFACE]).await.unwrap();
        let silent = timeout(Duration::from_millis(250), connection.read_u8()).await;
        assert!(silent.is_err(), "{silent:?}");
    }

    #[tokio::test]
    async fn a_connection_ends_when_it_has_had_no_call_for_its_time() {
        let (listener, address) = listener().await;
        let config = ServerConfig { max_connection_idle: Duration::from_millis(100), ..config(10) };
        let mut accepted = accept(listener, None, config);
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&[0; PREFACE]).await.unwrap();
        let mut connection = next(&mut accepted).await;
        connection.read_exact(&mut [0; PREFACE]).await.unwrap();
        let call = connection.connect_info().begin_call();
        let open = timeout(Duration::from_millis(400), connection.read(&mut [0])).await;
        assert!(open.is_err(), "{open:?}");
        drop(call);
        assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_until_another_one_ends() {
        let (listener, address) = listener().await;
        let mut accepted = accept(listener, None, config(1));
        let clients = [TcpStream::connect(address).await, TcpStream::connect(address).await];
        let [first, second] = clients.map(|client| client.unwrap().local_addr().unwrap());
        let served = next(&mut accepted).await;
        assert_eq!(served.peer.address, Some(first));
        served.connect_info().mark_authenticated();
        tokio::select! {
            biased;
            _ = accepted.next() => panic!("there is no place"),
            () = tokio::task::yield_now() => {}
        }
        drop(served);
        assert_eq!(next(&mut accepted).await.peer.address, Some(second));
    }

    /// Whether the server closes the connection within 400 ms.
    async fn ends(connection: &mut Connection) -> bool {
        let mut preface = [0; PREFACE];
        connection.read_exact(&mut preface).await.unwrap();
        let read = timeout(Duration::from_millis(400), connection.read(&mut [0])).await;
        matches!(read, Ok(Ok(0)))
    }

    #[tokio::test]
    async fn a_connection_without_a_known_caller_ends_whatever_it_calls() {
        let (listener, address) = listener().await;
        let config = ServerConfig { unauthenticated_connection_timeout: Duration::from_millis(100), ..config(10) };
        let mut accepted = accept(listener, None, config);
        for (is_known, streams_health) in [(false, false), (true, false), (false, true)] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(&[0; PREFACE]).await.unwrap();
            let mut connection = next(&mut accepted).await;
            let peer = connection.connect_info();
            let _call = peer.begin_call();
            if is_known {
                peer.mark_authenticated();
            }
            let _stream = streams_health.then(|| peer.begin_health_stream());
            let ended = ends(&mut connection).await;
            assert_eq!(ended, !is_known && !streams_health);
        }
    }

    #[tokio::test]
    async fn connections_that_call_nothing_keep_no_client_out() {
        for config in [config(2), ServerConfig { max_unauthenticated_connections_per_peer: 2, ..config(10) }] {
            let (listener, address) = listener().await;
            let mut accepted = accept(listener, None, config);
            let mut clients = Vec::new();
            let mut served = Vec::new();
            for _ in 0..2 {
                let mut client = TcpStream::connect(address).await.unwrap();
                client.write_all(&[0; PREFACE]).await.unwrap();
                clients.push(client);
                served.push(next(&mut accepted).await);
            }
            clients.push(TcpStream::connect(address).await.unwrap());
            let mut oldest = served.remove(0);
            assert!(ends(&mut oldest).await);
            drop(oldest);
            next(&mut accepted).await;
        }
    }

    #[tokio::test]
    async fn a_tls_handshake_that_does_not_come_frees_its_place() {
        let files = tempfile::TempDir::new().unwrap();
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| files.path().join(name));
        std::fs::write(&certificate, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        let config = crate::config::TlsConfig {
            cert_file: Some(certificate),
            key_file: Some(key),
            ..crate::config::TlsConfig::default()
        };
        let tls = Tls::new(&config).unwrap().map(Arc::new);
        let (listener, address) = listener().await;
        let _accepted = accept(listener, tls, self::config(1));
        for _ in 0..3 {
            // The server closes each one before it accepts the next.
            let mut silent = TcpStream::connect(address).await.unwrap();
            assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
        }
    }
}

//! Connections of clients: accepted up to a bound, in TLS or plain text, and closed if their client
//! does not begin to speak.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Sleep, sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::tls::Tls;

/// Handshakes at once; connections beyond them are closed.
const MOST_HANDSHAKES: usize = 256;
/// Connections that wait to be served.
const WAITING: usize = 64;
/// Bytes with which each client of HTTP/2 begins (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// How long to wait after a connection that could not be accepted: the process has no more files.
const PAUSE: Duration = Duration::from_millis(50);

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at once.
    pub most: usize,
    /// How long a TLS handshake may take, and then the first bytes of HTTP/2.
    pub patience: Duration,
}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct Peer {
    address: Option<SocketAddr>,
    certificate: Option<Arc<[u8]>>,
}

impl Peer {
    /// Its address, for logs.
    pub fn address(&self) -> String {
        self.address
            .map(|address| address.to_string())
            .unwrap_or_default()
    }

    /// Its certificate, in DER, which TLS has verified.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }
}

/// The connections of a listener, until the stream is dropped.
pub fn accept(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    bounds: Bounds,
) -> ReceiverStream<io::Result<Connection>> {
    let (send, receive) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let gone = send.clone();
        tokio::select! {
            () = gone.closed() => {}
            () = accept_all(listener, tls, bounds, send) => {}
        }
    });
    ReceiverStream::new(receive)
}

async fn accept_all(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    bounds: Bounds,
    send: mpsc::Sender<io::Result<Connection>>,
) {
    let patience = bounds.patience;
    let places = Arc::new(Semaphore::new(bounds.most));
    let handshakes = Arc::new(Semaphore::new(MOST_HANDSHAKES));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Small frames go out at once.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls.clone() else {
            if send
                .send(Ok(Connection::plain(stream, place, patience)))
                .await
                .is_err()
            {
                return;
            }
            continue;
        };
        let Ok(turn) = Arc::clone(&handshakes).try_acquire_owned() else {
            continue;
        };
        let send = send.clone();
        tokio::spawn(async move {
            match timeout(patience, tls.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => {
                    drop(turn);
                    let _ = send
                        .send(Ok(Connection::encrypted(stream, place, patience)))
                        .await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        });
    }
}

/// A connection that is served.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: Peer,
    /// Until the client has begun to speak: how much it has still to send, and until when.
    silent: Option<(usize, Pin<Box<Sleep>>)>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn plain(stream: TcpStream, place: OwnedSemaphorePermit, patience: Duration) -> Self {
        let peer = Peer {
            address: stream.peer_addr().ok(),
            certificate: None,
        };
        Self::new(Stream::Plain(stream), peer, place, patience)
    }

    fn encrypted(
        stream: TlsStream<TcpStream>,
        place: OwnedSemaphorePermit,
        patience: Duration,
    ) -> Self {
        let (socket, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default();
        let peer = Peer {
            address: socket.peer_addr().ok(),
            certificate: certificates.first().map(|first| Arc::from(first.as_ref())),
        };
        Self::new(Stream::Encrypted(Box::new(stream)), peer, place, patience)
    }

    fn new(stream: Stream, peer: Peer, place: OwnedSemaphorePermit, patience: Duration) -> Self {
        Self {
            stream,
            peer,
            silent: Some((PREFACE, Box::pin(sleep(patience)))),
            _place: place,
        }
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
        let before = buffer.filled().len();
        let read = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        let Some((missing, patience)) = &mut self.silent else {
            return read;
        };
        if read.is_ready() {
            *missing = missing.saturating_sub(buffer.filled().len() - before);
            if *missing == 0 {
                self.silent = None;
            }
            return read;
        }
        ready!(patience.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_stream::StreamExt as _;

    use super::*;

    fn bounds(most: usize) -> Bounds {
        Bounds {
            most,
            patience: Duration::from_millis(50),
        }
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
        let mut accepted = accept(listener, None, bounds(10));
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
        let mut accepted = accept(listener, None, bounds(10));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&[0; PREFACE]).await.unwrap();
        let mut connection = next(&mut accepted).await;
        connection.read_exact(&mut [0; PREFACE]).await.unwrap();
        let silent = timeout(Duration::from_millis(250), connection.read_u8()).await;
        assert!(silent.is_err(), "{silent:?}");
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_until_another_one_ends() {
        let (listener, address) = listener().await;
        let mut accepted = accept(listener, None, bounds(1));
        let clients = [
            TcpStream::connect(address).await,
            TcpStream::connect(address).await,
        ];
        let [first, second] = clients.map(|client| client.unwrap().local_addr().unwrap());
        let served = next(&mut accepted).await;
        assert_eq!(served.peer.address, Some(first));
        tokio::select! {
            biased;
            _ = accepted.next() => panic!("there is no place"),
            () = tokio::task::yield_now() => {}
        }
        drop(served);
        assert_eq!(next(&mut accepted).await.peer.address, Some(second));
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
        let _accepted = accept(listener, tls, bounds(1));
        for _ in 0..3 {
            // Each is closed by the server before the next one is even looked at.
            let mut silent = TcpStream::connect(address).await.unwrap();
            assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
        }
    }
}

//! The settings of the gRPC server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::auth::AuthConfig;
use super::tls::TlsConfig;
use crate::settings::{Checks, settings};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// The shortest timeout.
const MIN: Duration = Duration::from_millis(100);

settings! {
    /// `[server]`: where the gRPC server listens, and its limits per request and connection.
    #[derive(Copy)]
    pub struct ServerConfig {
        /// Address and port to listen on. Port 0 selects a free port.
        listen: SocketAddr = default_listen();
        /// Address and port of the admin port: health checks (gRPC, and HTTP at `/livez` and `/readyz`) and metrics
        /// (`/metrics`), in plain text and without credentials. Not set: health is served on the API's port only, and
        /// metrics cannot be scraped.
        admin_listen: Option<SocketAddr> = None;
        /// Allow addresses other than loopback without authentication. Also allows plain text on them.
        insecure_no_auth: bool = false;
        /// Maximum size of a request. Larger ones are refused with RESOURCE_EXHAUSTED before they are decoded.
        max_request_bytes: usize = 4 << 20, in 64 << 10..=64 << 20, "bytes";
        /// How long a client may take to send a request (DEADLINE_EXCEEDED), and a large one to be decoded
        /// (OVERLOADED). Uploads have their own timeouts (`blobs.upload_idle_timeout`).
        request_timeout: Duration = SECOND * 30, in MIN..=MINUTE * 10;
        /// Maximum memory of all requests that are received or handled, at least twice `max_request_bytes`. Further
        /// ones are refused as OVERLOADED.
        max_request_memory_bytes: usize = 64 << 20, in 1 << 20..=64 << 30, "bytes";
        /// Maximum requests of more than 256 KiB that are decoded at once, and token counts that run at once. Further
        /// ones wait.
        max_large_requests: usize = 2, in 1..=1_000, "requests";
        /// Maximum connections. Further ones wait in the operating system's accept queue.
        max_connections: usize = 10_000, in 1..=1_000_000, "connections";
        /// How long a client may take for its TLS handshake, and then for the first bytes of HTTP/2.
        handshake_timeout: Duration = SECOND * 10, in MIN..=MINUTE;
        /// How long a connection may have no RPC before it is closed.
        max_connection_idle: Duration = MINUTE * 30, in MIN..=HOUR * 24;
        /// How long a connection may have no RPC with a valid credential before it is closed, unless it has a health
        /// stream.
        unauthenticated_connection_timeout: Duration = MINUTE, in MIN..=HOUR * 24;
        /// Maximum connections of one peer (an IPv4 address, or an IPv6 /64 network) that have had no RPC with a valid
        /// credential. A further one replaces the oldest.
        max_unauthenticated_connections_per_peer: usize = 1000, in 1..=1_000_000, "connections";
        /// How long a client may be silent before it is sent an HTTP/2 PING.
        keepalive_interval: Duration = SECOND * 30, in MIN..=HOUR;
        /// How long a client may take to answer that PING before the connection is closed.
        keepalive_timeout: Duration = SECOND * 20, in MIN..=HOUR;
        /// Maximum concurrent RPCs on one connection.
        max_concurrent_streams: u32 = 1000, in 1..=100_000, "streams";
        /// Maximum uncompressed size of a request's headers. Larger ones are refused; four times this size closes the
        /// connection.
        max_header_bytes: u32 = 16 << 10, in 4 << 10..=1 << 20, "bytes";
        /// Maximum requests of a connection that the client cancelled before the server read them. The default is that
        /// of `max_concurrent_streams`, so that a client that cancels all its requests keeps its connection. Above it
        /// the connection is closed ("rapid reset", CVE-2023-44487).
        max_pending_resets: usize = 1000, in 1..=10_000, "requests";
        /// Maximum requests of a connection that the server ends because of malformed frames. Above it the connection
        /// is closed (CVE-2025-8671).
        max_error_resets: usize = 1024, in 1..=1_000_000, "requests";
        /// HTTP/2 frames per second on one connection that carry neither a request nor data (PING, SETTINGS,
        /// WINDOW_UPDATE, PRIORITY, RST_STREAM, and DATA of less than 16 bytes), in addition to one for each 64 bytes
        /// sent to the client. Bursts may use those of ten seconds. Above it the connection is closed.
        max_control_frames_per_second: u32 = 2000, in 100..=1_000_000, "frames";
        /// Maximum requests that are handled at once. Further ones are refused as OVERLOADED at once. A unary RPC
        /// counts until the client has read its response, a stream until it begins.
        max_requests: usize = 512, in 1..=1_000_000, "requests";
        /// Maximum open streams (such as ExecuteTurn and WatchEvents). Further ones are refused as OVERLOADED.
        max_open_streams: usize = 10_000, in 1..=1_000_000, "streams";
        /// How long a client may leave a unary response unread while other requests wait for its slot.
        answer_timeout: Duration = SECOND * 30, in MIN..=HOUR;
        /// Serve gRPC reflection, so that tools such as grpcurl need no proto files.
        reflection: bool = true;
        /// After SIGTERM: how long requests are still accepted while health reports NOT_SERVING.
        drain_delay: Duration = Duration::ZERO, in Duration::ZERO..=MINUTE * 10;
        /// After `drain_delay`: how long RPCs and turns may take to finish or to be handed over.
        drain_timeout: Duration = SECOND * 20, in Duration::ZERO..=HOUR;
    }
}

impl ServerConfig {
    /// The memory of all requests that are received or handled: `max_request_memory_bytes`, but at least that of two
    /// requests of the maximum size.
    pub fn request_memory_bytes(&self) -> usize {
        let two = self.max_request_bytes.saturating_mul(2);
        self.max_request_memory_bytes.max(two)
    }

    pub(super) fn check(&self, checks: &mut Checks, tls: &TlsConfig, auth: &AuthConfig) {
        let Self { listen, admin_listen, insecure_no_auth, .. } = self;
        checks.require(*admin_listen != Some(*listen), "server.admin_listen", || {
            "must differ from server.listen".to_owned()
        });
        let guarded = listen.ip().is_loopback() || *insecure_no_auth;
        checks.require(guarded || auth.required, "server.listen", || {
            format!(
                "{listen} can be reached from other machines and callers are not authenticated; set --auth-required with \
                 --keys-file, listen on a loopback address such as {}, or accept the risk with --insecure-no-auth \
                 (server.insecure_no_auth = true)",
                default_listen()
            )
        });
        let private = tls.is_on() || tls.terminated_elsewhere;
        checks.require(guarded || private || !auth.required, "server.listen", || {
            format!(
                "{listen} can be reached from other machines and credentials would be sent in plain text; set --tls-cert and \
                 --tls-key, or --tls-terminated-elsewhere (tls.terminated_elsewhere = true) if a proxy or mesh encrypts"
            )
        });
    }
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7070))
}

//! The gRPC server's settings.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::auth::AuthConfig;
use super::check::Checks;
use super::duration;
use super::tls::TlsConfig;

/// `[server]`: where the gRPC server listens, and its limits per request and connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerConfig {
    /// Address and port to listen on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Address and port of the admin port: health for probes (gRPC, and HTTP at `/livez` and `/readyz`)
    /// and metrics (`/metrics`), in plain text and without credentials. Absent: health is on the API's
    /// port only, and metrics cannot be scraped.
    pub admin_listen: Option<SocketAddr>,
    /// Listen on other addresses than loopback although callers are not authenticated. It allows
    /// plain text too.
    pub insecure_no_auth: bool,
    /// Largest request, in bytes; larger ones are refused before they are decoded.
    pub max_request_bytes: usize,
    /// How long a client may take to send a request; uploads have times of their own
    /// (`blobs.upload_idle_timeout`). A large request also waits within it until it may be decoded.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// Bytes of all requests that are being received or handled; at least twice `max_request_bytes` hold.
    /// Further ones are refused as OVERLOADED.
    pub max_request_memory_bytes: usize,
    /// Requests of more than 256 KiB that are decoded at once, and counts of tokens that run at once. Further
    /// ones wait.
    pub max_large_requests: usize,
    /// Most connections at once. Further ones wait in the system's queue.
    pub max_connections: usize,
    /// How long a client may take for its TLS handshake, and then for the first bytes of HTTP/2.
    #[serde(with = "duration")]
    pub handshake_timeout: Duration,
    /// How long a connection may have no RPC before it is closed.
    #[serde(with = "duration")]
    pub max_connection_idle: Duration,
    /// How long a connection may have no RPC with a valid credential before it is closed, unless it has a
    /// stream of health.
    #[serde(with = "duration")]
    pub unauthenticated_connection_timeout: Duration,
    /// Most connections of one peer (an IPv4 address, or an IPv6 network of 64 bits) that have had no RPC
    /// with a valid credential. A further one takes the place of the oldest.
    pub max_unauthenticated_connections_per_peer: usize,
    /// How long a client may be silent before it is sent an HTTP/2 PING.
    #[serde(with = "duration")]
    pub keepalive_interval: Duration,
    /// How long a client may take to answer that PING; then the connection is closed.
    #[serde(with = "duration")]
    pub keepalive_timeout: Duration,
    /// Most RPCs at once on one connection.
    pub max_concurrent_streams: u32,
    /// Bytes of the headers of a request, unpacked. Larger ones are refused; four times as much closes
    /// the connection.
    pub max_header_bytes: u32,
    /// Requests that a client may have cancelled before the server looked at them: as many as it may have
    /// at once, so that one that gives all of them up keeps its connection. Beyond it the connection is closed ("rapid reset", CVE-2023-44487).
    pub max_pending_resets: usize,
    /// Requests that the server may have to end on one connection because of the client's malformed frames.
    /// Beyond it the connection is closed (CVE-2025-8671).
    pub max_error_resets: usize,
    /// HTTP/2 frames per second that carry neither a request nor data (PING, SETTINGS, WINDOW_UPDATE,
    /// PRIORITY, RST_STREAM, and DATA of less than 16 bytes) on one connection, beside one for each 64 bytes
    /// that the client is sent. A burst may use up those of ten seconds; beyond it the connection is
    /// closed.
    pub max_control_frames_per_second: u32,
    /// Most requests that are being answered at once. Further ones are refused as OVERLOADED, which
    /// takes no time. An RPC with a single answer counts until that is read, a stream until it begins.
    pub max_requests: usize,
    /// Most streams (such as ExecuteTurn and WatchEvents) that are open at once. Further ones are refused as
    /// OVERLOADED.
    pub max_open_streams: usize,
    /// How long a single answer may stay unread by its client while others want its place.
    #[serde(with = "duration")]
    pub answer_timeout: Duration,
    /// Answer gRPC reflection, so that tools such as grpcurl need no proto files.
    pub reflection: bool,
    /// After a signal to stop: how long to keep serving while health says NOT_SERVING.
    #[serde(with = "duration")]
    pub drain_delay: Duration,
    /// After that: how long RPCs and turns may take to finish or be handed over.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: default_listen(),
            admin_listen: None,
            insecure_no_auth: false,
            max_request_bytes: 4 << 20,
            request_timeout: Duration::from_secs(30),
            max_request_memory_bytes: 64 << 20,
            max_large_requests: 2,
            max_connections: 10_000,
            handshake_timeout: Duration::from_secs(10),
            max_connection_idle: Duration::from_mins(30),
            unauthenticated_connection_timeout: Duration::from_mins(1),
            max_unauthenticated_connections_per_peer: 1000,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            max_concurrent_streams: 1000,
            max_header_bytes: 16 << 10,
            max_pending_resets: 1000,
            max_error_resets: 1024,
            max_control_frames_per_second: 2000,
            max_requests: 512,
            max_open_streams: 10_000,
            answer_timeout: Duration::from_secs(30),
            reflection: true,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(20),
        }
    }
}

impl ServerConfig {
    pub(super) fn check(&self, checks: &mut Checks, tls: &TlsConfig, auth: &AuthConfig) {
        let Self {
            listen,
            admin_listen,
            insecure_no_auth,
            ..
        } = self;
        checks.require(
            *admin_listen != Some(*listen),
            "server.admin_listen",
            || "is the address of the API".to_owned(),
        );
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
                "{listen} can be reached from other machines and credentials would travel in plain text; set --tls-cert and \
                 --tls-key, or say that a proxy or mesh encrypts with --tls-terminated-elsewhere (tls.terminated_elsewhere = true)"
            )
        });
        self.check_sizes(checks);
        self.check_times(checks);
    }

    fn check_sizes(&self, checks: &mut Checks) {
        let bytes = 64 << 10..=64 << 20;
        checks.number(
            "server.max_request_bytes",
            self.max_request_bytes,
            bytes,
            "bytes",
        );
        checks.number(
            "server.max_request_memory_bytes",
            self.max_request_memory_bytes,
            1 << 20..=64 << 30,
            "bytes",
        );
        checks.number(
            "server.max_large_requests",
            self.max_large_requests,
            1..=1_000,
            "requests",
        );
        let bytes = 4 << 10..=1 << 20;
        checks.number(
            "server.max_header_bytes",
            self.max_header_bytes,
            bytes,
            "bytes",
        );
        let most = 1..=1_000_000;
        checks.number(
            "server.max_connections",
            self.max_connections,
            most.clone(),
            "connections",
        );
        checks.number(
            "server.max_unauthenticated_connections_per_peer",
            self.max_unauthenticated_connections_per_peer,
            most.clone(),
            "connections",
        );
        checks.number(
            "server.max_requests",
            self.max_requests,
            most.clone(),
            "requests",
        );
        checks.number(
            "server.max_open_streams",
            self.max_open_streams,
            most.clone(),
            "streams",
        );
        checks.number(
            "server.max_error_resets",
            self.max_error_resets,
            most,
            "requests",
        );
        let most = 1..=10_000;
        checks.number(
            "server.max_pending_resets",
            self.max_pending_resets,
            most,
            "requests",
        );
        checks.number(
            "server.max_concurrent_streams",
            self.max_concurrent_streams,
            1..=100_000,
            "streams",
        );
        checks.number(
            "server.max_control_frames_per_second",
            self.max_control_frames_per_second,
            100..=1_000_000,
            "frames",
        );
    }

    fn check_times(&self, checks: &mut Checks) {
        let hour = Duration::from_hours(1);
        let minute = Duration::from_mins(1);
        for (key, time, longest) in [
            ("server.handshake_timeout", self.handshake_timeout, minute),
            ("server.request_timeout", self.request_timeout, minute * 10),
            (
                "server.max_connection_idle",
                self.max_connection_idle,
                hour * 24,
            ),
            (
                "server.unauthenticated_connection_timeout",
                self.unauthenticated_connection_timeout,
                hour * 24,
            ),
            ("server.keepalive_interval", self.keepalive_interval, hour),
            ("server.keepalive_timeout", self.keepalive_timeout, hour),
            ("server.answer_timeout", self.answer_timeout, hour),
        ] {
            checks.duration(key, time, Duration::from_millis(100)..=longest);
        }
        for (key, time, longest) in [
            ("server.drain_delay", self.drain_delay, minute * 10),
            ("server.drain_timeout", self.drain_timeout, hour),
        ] {
            checks.duration(key, time, Duration::ZERO..=longest);
        }
    }
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7070))
}

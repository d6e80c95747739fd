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
    /// Address and port of health for probes, in plain text and without credentials: gRPC, and HTTP at
    /// `/livez` and `/readyz`. Absent: only on the API's port.
    pub admin_listen: Option<SocketAddr>,
    /// Listen on other addresses than loopback although callers are not authenticated. It allows
    /// plain text too.
    pub insecure_no_auth: bool,
    /// Largest request, in bytes; larger ones are refused before they are decoded.
    pub max_request_bytes: usize,
    /// Most connections at once. Further ones wait in the system's queue.
    pub max_connections: usize,
    /// How long a client may take for its TLS handshake, and then for the first bytes of HTTP/2.
    #[serde(with = "duration")]
    pub handshake_timeout: Duration,
    /// Most RPCs at once on one connection.
    pub max_concurrent_streams: u32,
    /// Most requests that are being answered at once. Further ones are refused as OVERLOADED, which
    /// takes no time. A stream counts until its first answer.
    pub max_requests: usize,
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
            max_connections: 10_000,
            handshake_timeout: Duration::from_secs(10),
            max_concurrent_streams: 1000,
            max_requests: 512,
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
            max_request_bytes,
            max_connections,
            handshake_timeout,
            max_concurrent_streams,
            max_requests,
            reflection: _,
            drain_delay,
            drain_timeout,
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
        checks.number(
            "server.max_request_bytes",
            *max_request_bytes,
            64 << 10..=64 << 20,
            "bytes",
        );
        checks.number(
            "server.max_connections",
            *max_connections,
            1..=1_000_000,
            "connections",
        );
        checks.number(
            "server.max_concurrent_streams",
            *max_concurrent_streams,
            1..=100_000,
            "streams",
        );
        checks.number(
            "server.max_requests",
            *max_requests,
            1..=1_000_000,
            "requests",
        );
        checks.duration(
            "server.handshake_timeout",
            *handshake_timeout,
            Duration::from_millis(100)..=Duration::from_mins(1),
        );
        checks.duration(
            "server.drain_delay",
            *drain_delay,
            Duration::ZERO..=Duration::from_mins(10),
        );
        checks.duration(
            "server.drain_timeout",
            *drain_timeout,
            Duration::ZERO..=Duration::from_hours(1),
        );
    }
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7070))
}

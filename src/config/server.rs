//! The gRPC server's settings.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;

/// `[server]`: where the gRPC server listens, and its limits per request and connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerConfig {
    /// Address and port to listen on. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Listen on other addresses than loopback although callers are not authenticated.
    pub insecure_no_auth: bool,
    /// Largest request, in bytes; larger ones are refused before they are decoded.
    pub max_request_bytes: usize,
    /// Most RPCs at once on one connection.
    pub max_concurrent_streams: u32,
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
            insecure_no_auth: false,
            max_request_bytes: 4 << 20,
            max_concurrent_streams: 1000,
            reflection: true,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(20),
        }
    }
}

impl ServerConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            listen,
            insecure_no_auth,
            max_request_bytes,
            max_concurrent_streams,
            reflection: _,
            drain_delay,
            drain_timeout,
        } = self;
        checks.require(listen.ip().is_loopback() || *insecure_no_auth, "server.listen", || {
            format!(
                "{listen} can be reached from other machines and callers are not authenticated; listen on a loopback \
                 address such as {}, or accept the risk with --insecure-no-auth (server.insecure_no_auth = true)",
                default_listen()
            )
        });
        checks.number(
            "server.max_request_bytes",
            *max_request_bytes,
            64 << 10..=64 << 20,
            "bytes",
        );
        checks.number(
            "server.max_concurrent_streams",
            *max_concurrent_streams,
            1..=100_000,
            "streams",
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

//! The address of a database, and whether connections to it are encrypted.

use std::net::IpAddr;

use tokio_postgres::config::{Host, SslMode};

use super::Connection;

/// Whether connections to a database are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    Never,
    IfOffered,
    Always,
}

/// Parses the URL of a PostgreSQL server. If `encryption` is `None`, connections to other hosts are encrypted, and
/// local connections if the server offers it. Returns `None` if the URL is invalid.
pub fn connection(address: &str, encryption: Option<Encryption>) -> Option<Connection> {
    let mut connection: Connection = address.parse().ok()?;
    let encryption = encryption.unwrap_or_else(|| by_default(&connection));
    connection.ssl_mode(match encryption {
        Encryption::Never => SslMode::Disable,
        Encryption::IfOffered => SslMode::Prefer,
        Encryption::Always => SslMode::Require,
    });
    Some(connection)
}

fn by_default(connection: &Connection) -> Encryption {
    let hosts = connection.get_hosts().iter().all(is_local);
    let addresses = connection.get_hostaddrs().iter().all(is_loopback);
    match hosts && addresses {
        true => Encryption::IfOffered,
        false => Encryption::Always,
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address| is_loopback(&address)),
    }
}

fn is_loopback(address: &IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

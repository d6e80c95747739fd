//! Connection settings of an external PostgreSQL, and how connections to it are encrypted.

use secrecy::ExposeSecret as _;

use crate::{
    config::{DatabaseConfig, DatabaseUrl, SslMode},
    store::{
        Connection,
        database_address::{self, Encryption},
    },
};

/// The connection settings for a database URL.
pub(super) fn connection(config: &DatabaseConfig, url: &DatabaseUrl) -> anyhow::Result<Connection> {
    let encryption = url.sslmode.or(config.sslmode).map(|mode| match mode {
        SslMode::Disable => Encryption::Never,
        SslMode::Prefer => Encryption::IfOffered,
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Encryption::Always,
    });
    database_address::connection(url.address.expose_secret(), encryption)
        .ok_or_else(|| anyhow::anyhow!("database.url is not a PostgreSQL URL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_leave_the_machine_are_encrypted_unless_a_mode_is_named() {
        let check = |url: &str, setting: Option<SslMode>, expected: &str| {
            let config = DatabaseConfig { url: Some(url.into()), sslmode: setting, ..DatabaseConfig::default() };
            let parts = config.parts().expect("a URL");
            let connection = connection(&config, &parts).expect("a URL of PostgreSQL");
            let mode = format!("{:?}", connection.get_ssl_mode());
            assert_eq!(mode, expected, "{url} {setting:?}");
        };
        for local in ["localhost", "localhost:6432", "127.0.0.1", "127.8.8.8:1", "[::1]:5432", "localhost,127.0.0.1"] {
            let url = format!("postgres://u:p@{local}/d");
            check(&url, None, "Prefer");
            check(&url, Some(SslMode::Require), "Require");
        }
        check("postgres:///d?host=/run/postgresql", None, "Prefer");
        for remote in ["db.example.com", "10.0.0.1", "[fd00::1]", "localhost,db.example.com", "localhost.example.com"] {
            let url = format!("postgres://u:p@{remote}/d");
            check(&url, None, "Require");
            check(&url, Some(SslMode::Disable), "Disable");
            let url = format!("{url}?sslmode=prefer");
            check(&url, Some(SslMode::VerifyFull), "Prefer");
        }
        let tunnel = "postgres://u:p@db.example.com/d?hostaddr=127.0.0.1";
        check(tunnel, None, "Require");
        let elsewhere = "postgres://u:p@localhost/d?hostaddr=10.0.0.1";
        check(elsewhere, None, "Require");
        for strict in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://u:p@localhost/d?sslmode={strict}");
            check(&url, Some(SslMode::Disable), "Require");
        }
    }
}

//! The URL of a PostgreSQL, and whether the connections to it are encrypted.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::settings::SecretUrl;

/// Whether connections to PostgreSQL are encrypted, with libpq's names. The server's certificate is verified on every
/// encrypted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server offers it. An attacker that impersonates the server can obtain the password in clear text.
    Prefer,
    /// Always. The same as `verify-full`, since every certificate is verified.
    Require,
    /// Always. The certificate may be for another host name.
    VerifyCa,
    /// Always. The certificate must match the host name in the URL.
    VerifyFull,
}

impl SslMode {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Disable, "disable"),
        (Self::Prefer, "prefer"),
        (Self::Require, "require"),
        (Self::VerifyCa, "verify-ca"),
        (Self::VerifyFull, "verify-full"),
    ];

    fn named(name: &str) -> Option<Self> {
        let mode = Self::ALL.iter().find(|(_, known)| *known == name);
        mode.map(|(mode, _)| *mode)
    }

    /// The names of all modes, for an error message.
    pub(super) fn names() -> String {
        Self::ALL.map(|(_, name)| name).join(", ")
    }
}

/// A PostgreSQL URL whose `sslmode` is parsed separately, since the driver supports fewer modes than libpq.
#[derive(Clone, Debug)]
pub struct DatabaseUrl {
    /// The URL without `sslmode`.
    pub address: SecretString,
    /// `None` if the URL has no `sslmode`.
    pub sslmode: Option<SslMode>,
}

impl DatabaseUrl {
    /// Parses a URL. The last `sslmode` applies. Returns `None` if its `sslmode` is unknown.
    pub(super) fn of(url: &SecretUrl) -> Option<Self> {
        let url = url.expose();
        // The driver treats a `?` before the `@` as part of the password.
        let host = url.find('@').unwrap_or_default();
        let Some(query) = url[host..].find('?').map(|at| host + at) else {
            return Some(Self { address: url.into(), sslmode: None });
        };
        let (modes, others): (Vec<&str>, Vec<&str>) =
            url[query + 1..].split('&').partition(|option| option.starts_with("sslmode="));
        let mode = modes.last().and_then(|option| option.split_once('='));
        let sslmode = match mode {
            Some((_, name)) => Some(SslMode::named(name)?),
            None => None,
        };
        let address = match others.is_empty() {
            true => url[..query].to_owned(),
            false => format!("{}?{}", &url[..query], others.join("&")),
        };
        Some(Self { address: address.into(), sslmode })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn sslmode_is_taken_out_of_a_url_and_nothing_else_is_changed() {
        let check = |url: &str, address: &str, sslmode: Option<SslMode>| {
            let url = DatabaseUrl::of(&SecretUrl::from(url)).expect("a known mode");
            assert_eq!(url.address.expose_secret(), address);
            assert_eq!(url.sslmode, sslmode, "{address}");
        };
        check("postgres://h/d", "postgres://h/d", None);
        check("postgres://h/d?user=u", "postgres://h/d?user=u", None);
        for (mode, name) in SslMode::ALL {
            let url = format!("postgres://h/d?sslmode={name}");
            check(&url, "postgres://h/d", Some(mode));
        }
        check(
            "postgres://u:p?sslmode=disable@h/d?user=u&sslmode=verify-ca&port=1",
            "postgres://u:p?sslmode=disable@h/d?user=u&port=1",
            Some(SslMode::VerifyCa),
        );
        check("postgres://h?sslmode=disable&sslmode=verify-full", "postgres://h", Some(SslMode::VerifyFull));
        for unknown in ["allow", "", "Require"] {
            let url = format!("postgres://h/d?sslmode={unknown}");
            assert!(DatabaseUrl::of(&SecretUrl::from(url.as_str())).is_none(), "{unknown}");
        }
    }
}

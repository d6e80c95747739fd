//! The settings of TLS to clients.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// `[tls]`: the certificate that clients see. Files that change are read again within 5 s, for new
/// connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TlsConfig {
    /// The certificate with its chain, in PEM. Absent: clients talk in plain text.
    pub cert_file: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key_file: Option<PathBuf>,
    /// Certificate authorities (PEM) of client certificates. Absent: clients are not asked for one.
    pub client_ca_file: Option<PathBuf>,
    /// Refuse connections without a client certificate. Otherwise a key or token serves as well.
    pub client_cert_required: bool,
    /// Listen in plain text on other addresses than loopback: TLS ends at a proxy before this
    /// server, or a mesh encrypts.
    pub terminated_elsewhere: bool,
}

impl TlsConfig {
    /// Whether this server speaks TLS.
    pub fn is_on(&self) -> bool {
        self.cert_file.is_some()
    }

    pub(super) fn check(&self, checks: &mut Checks, certificates_expected: bool) {
        let Self {
            cert_file,
            key_file,
            client_ca_file,
            client_cert_required,
            terminated_elsewhere,
        } = self;
        checks.require(
            cert_file.is_some() == key_file.is_some(),
            "tls.key_file",
            || "a certificate and its key are set together".to_owned(),
        );
        checks.require(
            client_ca_file.is_none() || cert_file.is_some(),
            "tls.client_ca_file",
            || "client certificates need TLS: set tls.cert_file".to_owned(),
        );
        checks.require(
            !client_cert_required || client_ca_file.is_some(),
            "tls.client_cert_required",
            || "is set without tls.client_ca_file".to_owned(),
        );
        checks.require(
            !certificates_expected || client_ca_file.is_some(),
            "tls.client_ca_file",
            || "auth.certificates needs it".to_owned(),
        );
        checks.require(
            !terminated_elsewhere || cert_file.is_none(),
            "tls.terminated_elsewhere",
            || "is set beside tls.cert_file".to_owned(),
        );
    }
}

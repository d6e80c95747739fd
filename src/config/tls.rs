//! The settings of TLS for client connections.

use std::path::PathBuf;

use crate::settings::{Checks, settings};

settings! {
    /// `[tls]`: the server's certificate. Changed files are read again within 5 s, for new connections.
    pub struct TlsConfig {
        /// Certificate with its chain (PEM). Not set: plain text.
        cert_file: Option<PathBuf> = None;
        /// Private key of the certificate (PEM).
        key_file: Option<PathBuf> = None;
        /// Certificate authorities (PEM) of client certificates. Not set: client certificates are not requested.
        client_ca_file: Option<PathBuf> = None;
        /// Refuse connections without a client certificate. Otherwise a key or token is accepted in its place.
        client_cert_required: bool = false;
        /// Allow plain text on addresses other than loopback, because a proxy terminates TLS or a service mesh
        /// encrypts.
        terminated_elsewhere: bool = false;
    }
}

impl TlsConfig {
    /// Whether the server uses TLS.
    pub fn is_on(&self) -> bool {
        self.cert_file.is_some()
    }

    pub(super) fn check(&self, checks: &mut Checks, certificates_expected: bool) {
        let Self { cert_file, key_file, client_ca_file, client_cert_required, terminated_elsewhere } = self;
        checks.require(cert_file.is_some() == key_file.is_some(), "tls.key_file", || {
            "tls.cert_file and tls.key_file must be set together".to_owned()
        });
        checks.require(client_ca_file.is_none() || cert_file.is_some(), "tls.client_ca_file", || {
            "client certificates require TLS: set tls.cert_file".to_owned()
        });
        checks.require(!client_cert_required || client_ca_file.is_some(), "tls.client_cert_required", || {
            "requires tls.client_ca_file".to_owned()
        });
        checks.require(!certificates_expected || client_ca_file.is_some(), "tls.client_ca_file", || {
            "must be set if auth.certificates is set".to_owned()
        });
        checks.require(!terminated_elsewhere || cert_file.is_none(), "tls.terminated_elsewhere", || {
            "must be false if tls.cert_file is set".to_owned()
        });
    }
}

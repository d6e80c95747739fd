//! TLS for clients, with certificate files that may change at runtime: new connections get the new
//! certificate, open ones keep the old one.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::TlsConfig;

/// How often the files are checked for changes.
const PERIOD: Duration = Duration::from_secs(2);
/// The only ALPN protocol.
const HTTP2: &[u8] = b"h2";

/// Why TLS cannot be served with the configured files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file does not contain what it must.
    #[error("{}: {what}", path.display())]
    NotPem {
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// The certificate and the key do not match, or are not usable.
    #[error("the TLS certificate cannot be used: {0}")]
    Rustls(#[from] rustls::Error),
    /// The CA certificates for clients cannot be used.
    #[error("client certificates cannot be verified: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The TLS configuration of new connections.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    client_authorities: Option<PathBuf>,
    client_required: bool,
}

/// The contents of the files, and the configuration built from them.
struct Current {
    bytes: FileContents,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current(..)")
    }
}

#[derive(PartialEq, Eq)]
struct FileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

impl Tls {
    /// Loads the files. Returns `None` if no certificate and key are configured.
    pub fn new(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        let (Some(certificate), Some(key)) = (&config.cert_file, &config.key_file) else {
            return Ok(None);
        };
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: config.client_ca_file.clone(),
            client_required: config.client_cert_required,
        };
        let bytes = files.read()?;
        let server = files.server(&bytes)?;
        Ok(Some(Self { files, current: RwLock::new(Current { bytes, server }) }))
    }

    /// The acceptor for a new connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current.server))
    }

    /// Reloads the files. If they changed and are invalid, returns an error and keeps the previous
    /// configuration.
    pub fn reload(&self) -> Result<(), TlsError> {
        let bytes = self.files.read()?;
        let unchanged = || self.current.read().unwrap_or_else(PoisonError::into_inner).bytes == bytes;
        if unchanged() {
            return Ok(());
        }
        let server = self.files.server(&bytes)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Current { bytes, server };
        tracing::info!("TLS certificate reloaded");
        Ok(())
    }
}

/// Reloads the files when they change, until `stop` fires. A persistent error is logged once.
pub async fn reload_on_change(tls: Arc<Tls>, stop: CancellationToken) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        match tls.reload() {
            Ok(()) => failing = false,
            Err(error) => {
                if !failing {
                    tracing::error!(%error, "cannot reload the TLS certificate; the previous one stays in use");
                }
                failing = true;
            }
        }
    }
}

impl Files {
    fn read(&self) -> Result<FileContents, TlsError> {
        let authorities = self.client_authorities.as_deref().map(read);
        Ok(FileContents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_authorities: authorities.transpose()?,
        })
    }

    fn server(&self, bytes: &FileContents) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match (&self.client_authorities, &bytes.client_authorities) {
            (Some(path), Some(bytes)) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path, bytes)? {
                    roots.add(authority)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if self.client_required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build()?)
            }
            (_, _) => builder.with_no_client_auth(),
        };
        let chain = certificates(&self.certificate, &bytes.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&bytes.key)
            .map_err(|_| TlsError::NotPem { path: self.key.clone(), what: "contains no private key" })?;
        let mut server = builder.with_single_cert(chain, key)?;
        server.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Arc::new(server))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) | Err(_) => Err(TlsError::NotPem { path: path.to_owned(), what: "contains no certificate" }),
    }
}

//! Connections: how they are made, and how many there are.

use std::{borrow::Cow, path::PathBuf, sync::Arc, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject as _};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Error;

/// Where a database is, and as whom it is reached.
pub type Connection = tokio_postgres::Config;

/// How the database is reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is, and as whom.
    pub config: Connection,
    /// Most connections of this process.
    pub pool_size: usize,
    /// How long to wait for a free connection.
    pub acquire_timeout: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// After this long the server gives a statement up.
    pub statement_timeout: Duration,
    /// After this long in a transaction without a statement the server ends the connection; below the lease.
    pub idle_in_transaction_timeout: Duration,
    /// Certificate authorities in a PEM file, in place of the system's.
    pub ca_file: Option<PathBuf>,
}

/// What the statements of one transaction are sent as.
type Rewrite = dyn Fn(&[&'static str]) -> Vec<String> + Send + Sync;

/// A pool of connections to one database.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    rewrite: Option<Arc<Rewrite>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("connections", &self.pool.status().size).finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares the pool; connections are made when they are needed.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let manager = Manager::from_config(
            connection_config(settings),
            MakeRustlsConnect::new(tls(settings)?),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(settings.pool_size)
            .wait_timeout(Some(settings.acquire_timeout))
            .create_timeout(Some(settings.connect_timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { pool, rewrite: None })
    }

    /// The same pool, for a test that wants to see what happens when a statement is another one: without a guard, or slower. Nothing
    /// that an operator can set leads here.
    #[doc(hidden)]
    #[must_use]
    pub fn rewriting(self, rewrite: impl Fn(&[&'static str]) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { rewrite: Some(Arc::new(rewrite)), ..self }
    }

    /// The statements of one transaction as they are sent.
    pub(super) fn texts(&self, statements: &[&'static str]) -> Vec<Cow<'static, str>> {
        match &self.rewrite {
            None => statements.iter().copied().map(Cow::Borrowed).collect(),
            Some(rewrite) => rewrite(statements).into_iter().map(Cow::Owned).collect(),
        }
    }

    /// A connection, as soon as one is free.
    pub(super) async fn connection(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Error::Busy,
            PoolError::Backend(error) => Error::Unavailable(error.to_string()),
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => Error::Unavailable(error.to_string()),
        })
    }
}

/// Settings of every connection. Sequential scans are off because a plan made while a table was empty would keep one for ever.
fn connection_config(settings: &Settings) -> tokio_postgres::Config {
    let mut config = settings.config.clone();
    let options = format!(
        "{} -c enable_seqscan=off -c jit=off -c timezone=UTC -c statement_timeout={} -c idle_in_transaction_session_timeout={}",
        config.get_options().unwrap_or_default(),
        settings.statement_timeout.as_millis(),
        settings.idle_in_transaction_timeout.as_millis(),
    );
    config
        .options(options.trim())
        .application_name("contextd")
        .connect_timeout(settings.connect_timeout)
        .tcp_user_timeout(Duration::from_secs(15))
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(5))
        .keepalives_interval(Duration::from_secs(3))
        .keepalives_retries(3);
    config
}

/// TLS that verifies the server. Used when the URL's sslmode asks for it, or allows it and the server offers it.
fn tls(settings: &Settings) -> Result<ClientConfig, Error> {
    let unusable = |problem: String| Error::Unavailable(format!("certificate authorities: {problem}"));
    let mut roots = RootCertStore::empty();
    match &settings.ca_file {
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file)
                .map_err(|error| unusable(format!("{}: {error}", file.display())))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unusable(format!("{}: {error}", file.display())))?;
                roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

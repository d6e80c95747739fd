//! The server that a command talks to.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

/// How long reaching the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that sends the credential with each call.
pub(super) type Connection = InterceptedService<Channel, Credential>;

/// Where it is.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// Address and port of the server; `https://host:port` for TLS
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "CONTEXTD_ADDRESS",
        hide_env_values = true,
        default_value = "127.0.0.1:7070"
    )]
    pub(super) address: String,
    /// API key or token to call with; better given by the variable than by the flag [no default: none]
    #[arg(
        long,
        value_name = "KEY",
        env = "CONTEXTD_API_KEY",
        hide_env_values = true,
        value_parser = secret
    )]
    api_key: Option<SecretString>,
    /// Certificate authorities (PEM) to trust for TLS [no default: the system's]
    #[arg(
        long,
        value_name = "FILE",
        env = "CONTEXTD_CA_FILE",
        hide_env_values = true
    )]
    ca_file: Option<PathBuf>,
}

impl Server {
    /// Where to connect to.
    pub(super) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let address = &self.address;
        let url = if address.contains("://") {
            address.clone()
        } else {
            format!("http://{address}")
        };
        let encrypted = url.starts_with("https://");
        let endpoint =
            Endpoint::from_shared(url).with_context(|| format!("{address} is not an address"))?;
        if !encrypted {
            return Ok(endpoint);
        }
        let tls = match &self.ca_file {
            Some(path) => {
                let pem = std::fs::read(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint.tls_config(tls).context("cannot use TLS")
    }

    /// What calls are made with.
    fn credential(&self) -> anyhow::Result<Credential> {
        let Some(key) = &self.api_key else {
            return Ok(Credential(None));
        };
        let value = format!("Bearer {}", key.expose_secret());
        let mut value: MetadataValue<Ascii> = value
            .parse()
            .map_err(|_| anyhow::anyhow!("the API key cannot be sent: it is no plain text"))?;
        value.set_sensitive(true);
        Ok(Credential(Some(value)))
    }

    /// Connects.
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let credential = self.credential()?;
        let channel = self
            .endpoint()?
            .connect_timeout(CONNECT_TIMEOUT)
            .connect()
            .await
            .with_context(|| format!("cannot reach {}", self.address))?;
        Ok(InterceptedService::new(channel, credential))
    }
}

/// The credential that goes with each call.
#[derive(Debug, Clone)]
pub(super) struct Credential(Option<MetadataValue<Ascii>>);

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let metadata = request.metadata_mut();
            metadata.insert("authorization", value.clone());
        }
        Ok(request)
    }
}

fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text))
}

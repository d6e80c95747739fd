//! The connection of a command to a contextd server: its command-line options, the credential, and error messages.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use http::uri::Authority;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tonic_types::StatusExt as _;

/// Timeout for connecting to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The default address: a server on the local machine.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7070";
/// The environment variable that earlier versions read the address from.
const EARLIER_VARIABLE: &str = "CONTEXTD_ADDRESS";

/// A channel that sends the credential with each call.
pub type Connection = InterceptedService<Channel, Credential>;

/// The server to call and the credential to use.
#[derive(Debug, clap::Args)]
pub struct Server {
    /// URL of the server, or its address and port; `https://host:port` for TLS
    #[arg(
        long,
        visible_alias = "address",
        value_name = "URL",
        env = "CONTEXTD_URL",
        hide_env_values = true,
        default_value_t = default_url()
    )]
    url: String,
    /// API key or token; prefer the environment variable to the flag [no default: no credential is sent]
    #[arg(
        long,
        value_name = "KEY",
        env = "CONTEXTD_API_KEY",
        hide_env_values = true,
        value_parser = secret
    )]
    api_key: Option<SecretString>,
    /// Certificate authorities (PEM) to trust for TLS [no default: the system's authorities are trusted]
    #[arg(long, value_name = "FILE", env = "CONTEXTD_CA_FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,
}

impl Server {
    /// The configured address, or the default if it is empty.
    pub fn address(&self) -> &str {
        if self.url.is_empty() { DEFAULT_ADDRESS } else { &self.url }
    }

    /// The endpoint to connect to, with TLS if the address requires it.
    pub fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let address = self.address();
        let url = url_of(address);
        let encrypted = url.starts_with("https://");
        let endpoint = Endpoint::from_shared(url).with_context(|| format!("invalid server URL {address}"))?;
        if !encrypted {
            return Ok(endpoint);
        }
        let tls = match &self.ca_file {
            Some(path) => {
                let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint.tls_config(tls).context("cannot configure TLS")
    }

    /// Warns if the credential would be sent over a network in plain text.
    fn warn_of_plain_text(&self) {
        if self.api_key.is_some() && is_exposed(self.address()) {
            eprintln!(
                "contextd: warning: the API key is sent to {} in plain text; use https://HOST:PORT \
                 unless a service mesh or tunnel encrypts the connection",
                self.address()
            );
        }
    }

    /// The credential to send with each call.
    fn credential(&self) -> anyhow::Result<Credential> {
        let Some(key) = &self.api_key else {
            return Ok(Credential(None));
        };
        let value = format!("Bearer {}", key.expose_secret());
        let mut value: MetadataValue<Ascii> = value
            .parse()
            .map_err(|_| anyhow::anyhow!("the API key contains characters that cannot be sent in a header"))?;
        value.set_sensitive(true);
        Ok(Credential(Some(value)))
    }

    /// Connects to the server.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let credential = self.credential()?;
        self.warn_of_plain_text();
        let channel = self
            .endpoint()?
            .connect_timeout(CONNECT_TIMEOUT)
            .connect()
            .await
            .with_context(|| format!("cannot reach {}", self.address()))?;
        Ok(InterceptedService::new(channel, credential))
    }
}

/// Whether traffic to an address would cross a network in plain text.
fn is_exposed(address: &str) -> bool {
    let rest = match address.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return false,
        None => address,
    };
    let authority: Option<Authority> = rest.split('/').next().and_then(|it| it.parse().ok());
    let Some(authority) = authority else {
        return true;
    };
    let host = authority.host().trim_matches(['[', ']']);
    let is_loopback = |address: IpAddr| address.is_loopback();
    host != "localhost" && !host.parse().is_ok_and(is_loopback)
}

/// Adds the credential to each call.
#[derive(Debug, Clone)]
pub struct Credential(Option<MetadataValue<Ascii>>);

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let metadata = request.metadata_mut();
            metadata.insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// The address from `EARLIER_VARIABLE`, or the default if the variable is not set or empty.
#[expect(clippy::disallowed_methods, reason = "clap cannot read a second variable for one option")]
fn default_url() -> String {
    let earlier = std::env::var(EARLIER_VARIABLE).ok();
    earlier.filter(|address| !address.is_empty()).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned())
}

/// Trims white space around a key, such as the newline at the end of a file.
fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text.trim()))
}

/// Converts an address to a URL. If it lists several hosts, only the first is used; other clients balance over all.
fn url_of(address: &str) -> String {
    let forms = [
        ("https+dns:///", "https"),
        ("http+dns:///", "http"),
        ("dns:///", "http"),
        ("https://", "https"),
        ("http://", "http"),
    ];
    let form = forms.iter().find_map(|(prefix, scheme)| Some((*scheme, address.strip_prefix(prefix)?)));
    let (scheme, hosts) = match form {
        Some(found) => found,
        None if address.contains("://") => return address.to_owned(),
        None => ("http", address),
    };
    let first = hosts.split(',').next().unwrap_or_default();
    let host = first.trim().trim_end_matches('/');
    let port = host.rsplit_once(':').map(|(_, port)| port);
    let has_port = port.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    match (has_port, scheme) {
        (true, _) => format!("{scheme}://{host}"),
        (false, "https") => format!("https://{host}:443"),
        (false, _) => format!("http://{host}:7070"),
    }
}

/// The response, or the error as text.
pub fn response_or_error<T>(answer: Result<tonic::Response<T>, Status>) -> anyhow::Result<T> {
    answer.map(tonic::Response::into_inner).map_err(|status| anyhow::anyhow!("{}", describe(&status)))
}

/// An error as text: the server's message, the invalid fields and the reason.
pub fn describe(status: &Status) -> String {
    let details = status.get_error_details();
    let fields = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
    let fields: Vec<String> = fields.iter().map(|field| format!("; {}: {}", field.field, field.description)).collect();
    let reason = details.error_info().map_or_else(|| format!("{:?}", status.code()), |info| info.reason.clone());
    format!("{}{} ({reason})", status.message(), fields.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_exposed_where_it_leaves_the_machine_in_plain_text() {
        for (address, exposed) in [
            ("127.0.0.1:7070", false),
            ("localhost:7070", false),
            ("[::1]:7070", false),
            ("http://127.0.0.1:7070", false),
            ("https://contextd.example.org:443", false),
            ("contextd.example.org:7070", true),
            ("http://contextd.example.org", true),
            ("10.1.2.3:7070", true),
            ("[2001:db8::1]:7070", true),
            ("http://localhost.example.org:1", true),
        ] {
            assert_eq!(is_exposed(address), exposed, "{address}");
        }
    }

    #[test]
    fn one_variable_serves_the_command_line_and_the_clients() {
        let table = [
            ("127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("localhost", "http://localhost:7070"),
            ("http://localhost", "http://localhost:7070"),
            ("http://localhost:1234/", "http://localhost:1234"),
            ("https://contextd.example.com", "https://contextd.example.com:443"),
            ("http://a:1,b:2", "http://a:1"),
            ("https://a,https://b:8443", "https://a:443"),
            ("http://[::1]:7070", "http://[::1]:7070"),
            ("http://[::1]", "http://[::1]:7070"),
            ("dns:///contextd:7070", "http://contextd:7070"),
            ("https+dns:///contextd", "https://contextd:443"),
        ];
        for (given, url) in table {
            assert_eq!(url_of(given), url, "{given}");
        }
    }

    #[test]
    fn white_space_around_a_key_is_left_out() {
        let Ok(key) = secret("ctxd_key\n");
        assert_eq!(key.expose_secret(), "ctxd_key");
    }
}

//! The server that a command talks to.

use anyhow::Context as _;
use tonic::transport::Endpoint;

/// Where it is.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// Address and port of the server
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "CONTEXTD_ADDRESS",
        hide_env_values = true,
        default_value = "127.0.0.1:7070"
    )]
    pub(super) address: String,
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
        Endpoint::from_shared(url).with_context(|| format!("{address} is not an address"))
    }
}

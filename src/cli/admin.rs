//! `contextd admin`: what operators do, over the same API that everybody uses.

use std::{process::ExitCode, time::Duration};

use clap::Subcommand;

use super::{
    chat::describe,
    output::say,
    server::{Connection, Server},
};
use crate::{
    auth::secret,
    config::parse_duration,
    grpc::access,
    model::{Access, derive::hex},
    pb::{self, admin_service_client::AdminServiceClient},
};

/// Manage API keys, and show what a server takes its caller for.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// API keys.
    #[command(subcommand)]
    Key(KeyAction),
    /// Show the server's version and limits, and what it takes the caller for.
    Info(Server),
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Make a key for the keys file, without a server: print it, and the entry with its hash.
    Generate {
        /// What it is for.
        #[arg(
            long = "key-name",
            value_name = "NAME",
            env = "CONTEXTD_KEY_NAME",
            hide_env_values = true,
            default_value = "operator"
        )]
        name: String,
        /// The tenant whose data it gives access to.
        #[arg(
            long,
            env = "CONTEXTD_TENANT",
            hide_env_values = true,
            default_value = "default"
        )]
        tenant: String,
        /// What it allows: read, write, admin or operator.
        #[arg(
            long,
            env = "CONTEXTD_ACCESS",
            hide_env_values = true,
            default_value = "operator", value_name = "LEVEL", value_parser = access_of
        )]
        access: Access,
    },
    /// Make a key on the server and print it. It is shown only once.
    Create {
        #[command(flatten)]
        server: Server,
        /// What it is for [no default: nothing]
        #[arg(
            long = "key-name",
            value_name = "NAME",
            env = "CONTEXTD_KEY_NAME",
            hide_env_values = true
        )]
        name: Option<String>,
        /// The tenant whose data it gives access to [no default: the caller's own]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
        /// What it allows: read, write, admin or operator.
        #[arg(
            long,
            env = "CONTEXTD_ACCESS",
            hide_env_values = true,
            default_value = "write", value_name = "LEVEL", value_parser = access_of
        )]
        access: Access,
        /// After how long it expires, such as 2160h [no default: never]
        #[arg(long, value_name = "DURATION", env = "CONTEXTD_TTL", hide_env_values = true, value_parser = parse_duration)]
        ttl: Option<Duration>,
    },
    /// List the keys of a tenant, the newest first.
    List {
        #[command(flatten)]
        server: Server,
        /// The tenant [no default: the caller's own]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
    },
    /// Revoke a key: every replica refuses it within 5 seconds.
    Revoke {
        #[command(flatten)]
        server: Server,
        /// The id of the key, as `list` shows it.
        key_id: String,
        /// Its tenant [no default: the caller's own]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
    },
}

/// The access of a name.
fn access_of(name: &str) -> Result<Access, String> {
    Access::from_name(name).ok_or_else(|| "read, write, admin or operator".to_owned())
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Info(server) => info(&server).await?,
        Action::Key(KeyAction::Generate {
            name,
            tenant,
            access,
        }) => generate(&name, &tenant, access)?,
        Action::Key(KeyAction::Create {
            server,
            name,
            tenant,
            access,
            ttl,
        }) => {
            let request = pb::CreateKeyRequest {
                tenant_id: tenant.unwrap_or_default(),
                access: access::to_pb(access).into(),
                name: name.unwrap_or_default(),
                ttl: ttl.map(crate::codec::time::duration_to_pb),
            };
            create(&server, request).await?;
        }
        Action::Key(KeyAction::List { server, tenant }) => {
            list(&server, tenant.unwrap_or_default()).await?;
        }
        Action::Key(KeyAction::Revoke {
            server,
            key_id,
            tenant,
        }) => {
            let request = pb::RevokeKeyRequest {
                key_id,
                tenant_id: tenant.unwrap_or_default(),
            };
            let answer = client(&server).await?.revoke_key(request).await;
            let key = answered(answer)?.key.unwrap_or_default();
            say(format_args!("revoked {}", key.key_id))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn client(server: &Server) -> anyhow::Result<AdminServiceClient<Connection>> {
    Ok(AdminServiceClient::new(server.connect().await?))
}

fn answered<T>(answer: Result<tonic::Response<T>, tonic::Status>) -> anyhow::Result<T> {
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| anyhow::anyhow!("{}", describe(&status)))
}

async fn info(server: &Server) -> anyhow::Result<()> {
    let answer = client(server)
        .await?
        .get_server_info(pb::GetServerInfoRequest {})
        .await;
    let info = answered(answer)?;
    say(format_args!("version           {}", info.version))?;
    say(format_args!("schema            {}", info.schema_version))?;
    say(format_args!("max request bytes {}", info.max_request_bytes))?;
    say(format_args!("max blob bytes    {}", info.max_blob_bytes))?;
    say(format_args!("auth required     {}", info.auth_required))?;
    say(format_args!("tenant            {}", info.tenant_id))?;
    say(format_args!("access            {}", name_of(info.access())))?;
    say(format_args!("subject           {}", info.subject))
}

/// The key goes to stdout, where a script takes it; the entry to stderr, for a person or a file.
fn generate(name: &str, tenant: &str, access: Access) -> anyhow::Result<()> {
    let (key, hash) = secret::generate()?;
    let entry = toml::Table::from_iter([
        ("name".to_owned(), name.into()),
        ("tenant".to_owned(), tenant.into()),
        ("access".to_owned(), access.name().into()),
        ("sha256".to_owned(), hex(&hash.0).into()),
    ]);
    say(key)?;
    eprint!("[[keys]]\n{entry}");
    Ok(())
}

async fn create(server: &Server, request: pb::CreateKeyRequest) -> anyhow::Result<()> {
    let answer = client(server).await?.create_key(request).await;
    let pb::CreateKeyResponse { key, secret } = answered(answer)?;
    let key = key.unwrap_or_default();
    say(secret)?;
    eprintln!(
        "contextd: key {} of tenant {} allows {}; it is shown only here",
        key.key_id,
        key.tenant_id,
        name_of(key.access())
    );
    Ok(())
}

async fn list(server: &Server, tenant_id: String) -> anyhow::Result<()> {
    let mut client = client(server).await?;
    let mut page_token = String::new();
    loop {
        let request = pb::ListKeysRequest {
            tenant_id: tenant_id.clone(),
            page_size: 1000,
            page_token,
        };
        let page = answered(client.list_keys(request).await)?;
        for key in page.keys {
            let state = match (&key.revoke_time, &key.expire_time) {
                (Some(at), _) => format!("revoked {at}"),
                (None, Some(at)) => format!("expires {at}"),
                (None, None) => "live".to_owned(),
            };
            let access = name_of(key.access());
            say(format_args!(
                "{}  {}  {access:<8}  {state}  {}",
                key.key_id, key.tenant_id, key.name
            ))?;
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(());
        }
    }
}

fn name_of(access: pb::Access) -> String {
    let name = access.as_str_name();
    name.trim_start_matches("ACCESS_").to_lowercase()
}

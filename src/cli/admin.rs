//! `contextd admin`: operator commands, most of which use the public API.

mod session;
mod transfer;

use std::{process::ExitCode, time::Duration};

use clap::Subcommand;
use contextd_client::{Connection, Server, response_or_error};

use super::output::print_line;
use crate::{
    auth::secret,
    codec::field::Field as _,
    model::{Access, TenantLimits, derive::hex},
    pb::{self, admin_service_client::AdminServiceClient},
    settings::{Section as _, parse_duration},
};

/// Manage API keys, tenant limits and tenants, list sessions and move them to another database, and show the
/// server's version and limits and the caller's identity.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    #[command(subcommand)]
    Key(KeyAction),
    #[command(subcommand)]
    Session(session::Action),
    #[command(subcommand)]
    Limits(LimitsAction),
    #[command(subcommand)]
    Tenant(TenantAction),
    Export(transfer::ExportArgs),
    Import(transfer::ImportArgs),
    /// Show the server's version and limits, and the caller's identity.
    Info(Server),
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Generate a key for the keys file, without a server: print it, and the entry with its hash.
    Generate {
        /// Name of the key, for lists and logs.
        #[arg(
            long = "key-name",
            value_name = "NAME",
            env = "CONTEXTD_KEY_NAME",
            hide_env_values = true,
            default_value = "operator"
        )]
        name: String,
        /// The tenant whose data the key gives access to.
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true, default_value = "default")]
        tenant: String,
        /// Access of the key: read, write, admin or operator.
        #[arg(
            long,
            env = "CONTEXTD_ACCESS",
            hide_env_values = true,
            default_value = "operator", value_name = "LEVEL", value_parser = access_of
        )]
        access: Access,
    },
    /// Create a key on the server and print it. It is shown only once.
    Create {
        #[command(flatten)]
        server: Server,
        /// Name of the key, for lists and logs [no default: the key has no name]
        #[arg(long = "key-name", value_name = "NAME", env = "CONTEXTD_KEY_NAME", hide_env_values = true)]
        name: Option<String>,
        /// The tenant whose data the key gives access to [no default: the caller's tenant]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
        /// Access of the key: read, write, admin or operator.
        #[arg(
            long,
            env = "CONTEXTD_ACCESS",
            hide_env_values = true,
            default_value = "write", value_name = "LEVEL", value_parser = access_of
        )]
        access: Access,
        /// Time after which the key expires, such as 2160h [no default: never]
        #[arg(long, value_name = "DURATION", env = "CONTEXTD_TTL", hide_env_values = true, value_parser = parse_duration)]
        ttl: Option<Duration>,
    },
    /// List the keys of a tenant, newest first.
    List {
        #[command(flatten)]
        server: Server,
        /// The tenant [no default: the caller's tenant]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
    },
    /// Revoke a key: every replica refuses it within 5 seconds.
    Revoke {
        #[command(flatten)]
        server: Server,
        /// The id of the key, as shown by `list`.
        key_id: String,
        /// The tenant of the key [no default: the caller's tenant]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum LimitsAction {
    /// Show the limits of a tenant and its usage.
    Get {
        #[command(flatten)]
        server: Server,
        /// The tenant [no default: the caller's tenant]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
    },
    /// Set limits of a tenant; limits that are not given do not change. Takes effect on every replica within
    /// 5 seconds.
    Set {
        #[command(flatten)]
        server: Server,
        /// The tenant [no default: the caller's tenant]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
        #[arg(
            long,
            help = limit_help("running_turns"),
            value_name = "TURNS",
            env = "CONTEXTD_RUNNING_TURNS",
            hide_env_values = true
        )]
        running_turns: Option<u64>,
        #[arg(
            long,
            help = limit_help("requests_per_second"),
            value_name = "REQUESTS",
            env = "CONTEXTD_REQUESTS_PER_SECOND",
            hide_env_values = true
        )]
        requests_per_second: Option<u64>,
        #[arg(
            long,
            help = limit_help("tokens_per_minute"),
            value_name = "TOKENS",
            env = "CONTEXTD_TOKENS_PER_MINUTE",
            hide_env_values = true
        )]
        tokens_per_minute: Option<u64>,
        #[arg(
            long,
            help = limit_help("stored_bytes"),
            value_name = "BYTES",
            env = "CONTEXTD_STORED_BYTES",
            hide_env_values = true
        )]
        stored_bytes: Option<u64>,
    },
    /// Remove a tenant's limits; the server's defaults apply.
    Clear {
        #[command(flatten)]
        server: Server,
        /// The tenant [no default: the caller's tenant]
        #[arg(long, env = "CONTEXTD_TENANT", hide_env_values = true)]
        tenant: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum TenantAction {
    /// Delete a tenant with all its data. This cannot be undone.
    Delete {
        #[command(flatten)]
        server: Server,
        /// The tenant.
        name: String,
    },
    /// Show the progress of a tenant's deletion.
    Status {
        #[command(flatten)]
        server: Server,
        /// The tenant.
        name: String,
    },
}

/// Parses the name of an access level.
fn access_of(name: &str) -> Result<Access, String> {
    Access::from_name(name).ok_or_else(|| "must be read, write, admin or operator".to_owned())
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Info(server) => info(&server).await?,
        Action::Session(action) => session::run(action).await?,
        Action::Export(args) => Box::pin(transfer::export(args)).await?,
        Action::Import(args) => Box::pin(transfer::import(args)).await?,
        Action::Limits(action) => limits(action).await?,
        Action::Tenant(action) => tenant(action).await?,
        Action::Key(KeyAction::Generate { name, tenant, access }) => generate(&name, &tenant, access)?,
        Action::Key(KeyAction::Create { server, name, tenant, access, ttl }) => {
            let request = pb::CreateKeyRequest {
                tenant_id: tenant.unwrap_or_default(),
                access: access.to_field(),
                name: name.unwrap_or_default(),
                ttl: ttl.to_field(),
            };
            create(&server, request).await?;
        }
        Action::Key(KeyAction::List { server, tenant }) => {
            list(&server, tenant.unwrap_or_default()).await?;
        }
        Action::Key(KeyAction::Revoke { server, key_id, tenant }) => {
            let request = pb::RevokeKeyRequest { key_id, tenant_id: tenant.unwrap_or_default() };
            let answer = client(&server).await?.revoke_key(request).await;
            let key = response_or_error(answer)?.key.unwrap_or_default();
            print_line(format_args!("revoked {}", key.key_id))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn client(server: &Server) -> anyhow::Result<AdminServiceClient<Connection>> {
    Ok(AdminServiceClient::new(server.connect().await?))
}

async fn info(server: &Server) -> anyhow::Result<()> {
    let answer = client(server).await?.get_server_info(pb::GetServerInfoRequest {}).await;
    let info = response_or_error(answer)?;
    print_line(format_args!("version           {}", info.version))?;
    print_line(format_args!("schema            {}", info.schema_version))?;
    print_line(format_args!("max request bytes {}", info.max_request_bytes))?;
    print_line(format_args!("max blob bytes    {}", info.max_blob_bytes))?;
    print_line(format_args!("auth required     {}", info.auth_required))?;
    print_line(format_args!("tenant            {}", info.tenant_id))?;
    print_line(format_args!("access            {}", name_of(info.access())))?;
    print_line(format_args!("subject           {}", info.subject))
}

/// Prints the key to stdout, for scripts, and the entry of the keys file to stderr.
fn generate(name: &str, tenant: &str, access: Access) -> anyhow::Result<()> {
    let (key, hash) = secret::generate()?;
    let entry = toml::Table::from_iter([
        ("name".to_owned(), name.into()),
        ("tenant".to_owned(), tenant.into()),
        ("access".to_owned(), access.name().into()),
        ("sha256".to_owned(), hex(&hash.0).into()),
    ]);
    print_line(key)?;
    eprint!("[[keys]]\n{entry}");
    Ok(())
}

/// The help text of a flag that sets a limit of a tenant.
fn limit_help(name: &str) -> String {
    let limit = TenantLimits::declared().find(name);
    let limit = limit.expect("every limit is a setting");
    let text = limit.doc.trim_end_matches('.');
    format!("{text} [no default: unchanged]")
}

async fn limits(action: LimitsAction) -> anyhow::Result<()> {
    match action {
        LimitsAction::Get { server, tenant } => {
            let tenant_id = tenant.unwrap_or_default();
            let found = limits_of(&mut client(&server).await?, tenant_id).await?;
            print_line(format_args!("tenant {}", found.tenant_id))?;
            show_limits(&found.in_force.unwrap_or_default(), found.r#use.as_ref())
        }
        LimitsAction::Set { server, tenant, running_turns, requests_per_second, tokens_per_minute, stored_bytes } => {
            let mut client = client(&server).await?;
            let found = limits_of(&mut client, tenant.unwrap_or_default()).await?;
            let own = found.own.unwrap_or_default();
            let number = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
            let limits = pb::TenantLimits {
                running_turns: running_turns.map(number).or(own.running_turns),
                requests_per_second: requests_per_second.map(number).or(own.requests_per_second),
                tokens_per_minute: tokens_per_minute.map(number).or(own.tokens_per_minute),
                stored_bytes: stored_bytes.map(number).or(own.stored_bytes),
            };
            set_limits(&mut client, found.tenant_id, Some(limits)).await
        }
        LimitsAction::Clear { server, tenant } => {
            let mut client = client(&server).await?;
            let found = limits_of(&mut client, tenant.unwrap_or_default()).await?;
            set_limits(&mut client, found.tenant_id, None).await
        }
    }
}

async fn tenant(action: TenantAction) -> anyhow::Result<()> {
    match action {
        TenantAction::Delete { server, name } => {
            let request = pb::DeleteTenantRequest { tenant_id: name };
            let answer = client(&server).await?.delete_tenant(request).await;
            show_deletion(response_or_error(answer)?.deletion)
        }
        TenantAction::Status { server, name } => {
            let request = pb::GetTenantDeletionRequest { tenant_id: name };
            let answer = client(&server).await?.get_tenant_deletion(request).await;
            show_deletion(response_or_error(answer)?.deletion)
        }
    }
}

fn show_deletion(deletion: Option<pb::TenantDeletion>) -> anyhow::Result<()> {
    let Some(deletion) = deletion else {
        return print_line("no deletion was requested");
    };
    let asked = deletion.request_time.unwrap_or_default();
    let done = deletion.done_time.map(|at| at.to_string());
    let done = done.unwrap_or_else(|| "not yet".to_owned());
    print_line(format_args!("tenant        {}", deletion.tenant_id))?;
    print_line(format_args!("requested     {asked} by {}", deletion.requested_by))?;
    print_line(format_args!("done          {done}"))?;
    print_line(format_args!("sessions      {}", deletion.sessions))?;
    print_line(format_args!("blobs         {} of {} bytes", deletion.blobs, deletion.blob_bytes))?;
    print_line(format_args!("API keys      {}", deletion.keys))
}

async fn limits_of(
    client: &mut AdminServiceClient<Connection>,
    tenant_id: String,
) -> anyhow::Result<pb::GetTenantLimitsResponse> {
    let request = pb::GetTenantLimitsRequest { tenant_id };
    response_or_error(client.get_tenant_limits(request).await)
}

async fn set_limits(
    client: &mut AdminServiceClient<Connection>,
    tenant_id: String,
    limits: Option<pb::TenantLimits>,
) -> anyhow::Result<()> {
    let request = pb::SetTenantLimitsRequest { tenant_id, limits };
    let answer = response_or_error(client.set_tenant_limits(request).await)?;
    show_limits(&answer.in_force.unwrap_or_default(), None)
}

/// Prints one line per limit, with the usage where it is known.
fn show_limits(limits: &pb::TenantLimits, used: Option<&pb::TenantUse>) -> anyhow::Result<()> {
    let shown = |limit: Option<i64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    let running = used.map(|used| format!("  {} now", used.running_turns));
    let owed = used.and_then(|used| used.tokens_owed.as_ref());
    let owed = owed.filter(|owed| owed.seconds > 0 || owed.nanos > 0);
    let owed = owed.map(|owed| format!("  used up, next call in {} s", owed.seconds.max(1)));
    let stored = used.and_then(|used| used.stored_bytes);
    let stored = stored.map(|bytes| format!("  {bytes} now"));
    let lines = [
        ("running turns", limits.running_turns, running),
        ("requests/s", limits.requests_per_second, None),
        ("tokens/min", limits.tokens_per_minute, owed),
        ("stored bytes", limits.stored_bytes, stored),
    ];
    for (name, limit, used) in lines {
        let used = used.unwrap_or_default();
        print_line(format_args!("{name:<14}{}{used}", shown(limit)))?;
    }
    Ok(())
}

async fn create(server: &Server, request: pb::CreateKeyRequest) -> anyhow::Result<()> {
    let answer = client(server).await?.create_key(request).await;
    let pb::CreateKeyResponse { key, secret } = response_or_error(answer)?;
    let key = key.unwrap_or_default();
    print_line(secret)?;
    eprintln!(
        "contextd: key {} of tenant {} allows {}; the key is shown only once",
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
        let request = pb::ListKeysRequest { tenant_id: tenant_id.clone(), page_size: 1000, page_token };
        let page = response_or_error(client.list_keys(request).await)?;
        for key in page.keys {
            let state = match (&key.revoke_time, &key.expire_time) {
                (Some(at), _) => format!("revoked {at}"),
                (None, Some(at)) => format!("expires {at}"),
                (None, None) => "live".to_owned(),
            };
            let access = name_of(key.access());
            print_line(format_args!("{}  {}  {access:<8}  {state}  {}", key.key_id, key.tenant_id, key.name))?;
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

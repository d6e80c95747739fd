//! The command line: one file per command.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod admin;
mod backup;
mod completion;
mod config;
mod conformance;
mod context;
mod exit;
mod health;
mod migrate;
mod output;
mod selftest;
mod serve;
mod settings;
mod version;

/// Runs the agent loop for agent hosts: durable turns over gRPC, stored in PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "contextd", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Migrate(migrate::Args),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Health(health::Args),
    Chat(contextd_chat::Args),
    Context(context::Args),
    Admin(admin::Args),
    Selftest(selftest::Args),
    Conformance(conformance::Args),
    Config(config::Args),
    Completion(completion::Args),
    Version(version::Args),
}

impl Cli {
    /// Runs the command. Prints an error to stderr.
    pub async fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Serve(args) => Box::pin(serve::run(args)).await,
            Command::Migrate(args) => Box::pin(migrate::run(args)).await,
            Command::Backup(args) => Box::pin(backup::backup(args)).await,
            Command::Restore(args) => Box::pin(backup::restore(args)).await,
            Command::Health(args) => health::run(args).await,
            Command::Chat(args) => Box::pin(contextd_chat::run(args)).await,
            Command::Context(args) => Box::pin(context::run(args)).await,
            Command::Admin(args) => Box::pin(admin::run(args)).await,
            Command::Selftest(args) => Box::pin(selftest::run(args)).await,
            Command::Conformance(args) => Box::pin(conformance::run(args)).await,
            Command::Config(args) => config::run(args),
            Command::Completion(args) => completion::run(args, &mut Self::command()),
            Command::Version(args) => version::run(args),
        };
        outcome.unwrap_or_else(|error| {
            eprintln!("contextd: {error:#}");
            exit::exit_code(&error)
        })
    }
}

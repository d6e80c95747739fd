//! `contextd serve`: runs the server until it is stopped.

use std::process::ExitCode;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{exit::exit_code, settings::SettingArgs};
use crate::config::{LoadedConfig, LogFormat};
use crate::telemetry::progress::Progress;
use crate::{app, telemetry};

/// Serve gRPC until SIGTERM or SIGINT; a second signal exits immediately.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let LoadedConfig { config, origins: _, services } = args.settings.load()?;
    // Listen for signals before starting anything that a signal should stop.
    let mut signals = StopSignals::listen()?;
    let log = telemetry::init(&config.telemetry)?;
    let format = config.telemetry.log_format;
    let progress = Progress::to_terminal(format);
    for service in services {
        progress.step(format!("provider {} is configured by {}", service.provider, service.variable));
    }
    progress.step(format!("the default model is {}", config.models.default_model));
    let shutdown = CancellationToken::new();
    let serving = Box::pin(app::serve(config, progress.clone(), shutdown.clone()));
    let outcome = tokio::select! {
        outcome = serving => outcome,
        code = signals.drain_then_stop(&shutdown, &progress) => {
            drop(log);
            std::process::exit(code)
        }
    };
    match (outcome, format) {
        // With JSON logs, the final error is a JSON line too.
        (Err(error), LogFormat::Json) => {
            let cause = format!("{error:#}");
            tracing::error!(error = cause, "contextd failed");
            Ok(exit_code(&error))
        }
        (outcome, LogFormat::Text | LogFormat::Json) => outcome.map(|()| ExitCode::SUCCESS),
    }
}

/// The signals that stop the server.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Starts the drain at the first signal. Returns at the second, with the exit code for it.
    async fn drain_then_stop(&mut self, shutdown: &CancellationToken, progress: &Progress) -> i32 {
        self.next().await;
        progress.step("shutting down; a second signal exits immediately");
        shutdown.cancel();
        128 + self.next().await.as_raw_value()
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}

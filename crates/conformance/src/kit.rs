//! The kit: the servers that all runs share, and the runs of a driver against them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};
use uuid::Uuid;

use super::{
    Options, Setup,
    check::{self, Finding},
    fault::Plan,
    host,
    proxy::Proxy,
    record::{self, Record},
    scenario::{Scenario, Variant, scenarios},
    server::Servers,
};

/// The outcome of one run of the driver.
#[derive(Debug)]
pub struct Outcome {
    pub scenario: &'static str,
    /// The variant of the scenario, for example "cut after message 5, by a reset".
    pub variant: String,
    /// The violations by the host.
    pub findings: Vec<Finding>,
    /// The duration of the run.
    pub elapsed: Duration,
    /// The end of the driver's standard error.
    pub stderr: String,
    /// Number of messages sent to the host.
    messages: usize,
}

/// A running kit.
#[derive(Debug)]
pub struct Kit {
    servers: Servers,
}

impl Kit {
    /// Starts the servers that all runs share.
    pub async fn start(setup: Setup) -> anyhow::Result<Self> {
        let servers = Servers::start(setup).await?;
        Ok(Self { servers })
    }

    /// Runs the scenarios and reports each outcome when its run is over.
    pub async fn run(&self, options: &Options, mut report: impl FnMut(&Outcome)) -> anyhow::Result<()> {
        let servers = &self.servers;
        let runs = self.plan(options).await?;
        let mut outcomes = stream::iter(runs)
            .map(|(scenario, variant)| async move { run_one(options, servers, &scenario, variant).await })
            .buffered(options.parallel);
        while let Some(outcome) = outcomes.next().await {
            report(&outcome?);
        }
        Ok(())
    }

    /// Stops the servers and removes their files.
    pub async fn stop(self) {
        self.servers.stop().await;
    }

    /// The runs that the options select.
    async fn plan(&self, options: &Options) -> anyhow::Result<Vec<(Arc<Scenario>, Variant)>> {
        let wanted = &options.scenarios;
        let chosen = scenarios()
            .into_iter()
            .filter(|scenario| wanted.is_empty() || wanted.iter().any(|name| name == scenario.name));
        let mut runs = Vec::new();
        for scenario in chosen {
            let scenario = Arc::new(scenario);
            let messages = match scenario.every_message {
                // A run without faults determines the number of messages to cut after.
                true => {
                    let probe = run_one(options, &self.servers, &scenario, Variant::default());
                    probe.await?.messages
                }
                false => 0,
            };
            let variants = scenario.variants(messages).into_iter();
            runs.extend(variants.map(|variant| (Arc::clone(&scenario), variant)));
        }
        Ok(runs)
    }
}

async fn run_one(
    options: &Options,
    servers: &Servers,
    scenario: &Scenario,
    variant: Variant,
) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let session = format!("{}-{}", scenario.name, Uuid::now_v7());
    servers.create_session(&session, scenario).await?;
    let replica = match variant.kills() {
        true => Some(servers.replica().await?),
        false => None,
    };
    let record = Arc::new(Record::new());
    let plan = Plan::new(variant.faults);
    let proxy = Proxy::start(&session, servers, replica, plan, Arc::clone(&record)).await?;
    let ran = host::run(options, &session, scenario, &proxy).await;
    let ran = ran.with_context(|| format!("cannot run {}", options.command[0].display()))?;
    drop(proxy);
    let events = servers.settled(&session).await?;
    let entries = record.entries();
    Ok(Outcome {
        scenario: scenario.name,
        variant: variant.name,
        findings: check::findings(scenario, &entries, &events, &ran),
        elapsed: start.elapsed(),
        stderr: ran.stderr,
        messages: record::sent(&entries),
    })
}

//! `contextd conformance`: finds protocol errors of a host.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, thread, time::Duration};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use serde_json::json;

use super::output::{Format, print_line};
use crate::{config::Environment, settings::parse_duration};
use contextd_conformance::{Kit, Options, Outcome, Scenario, Setup, scenarios};

/// The environment variables passed to servers. None of them configures contextd.
const KEPT: &[&str] = &["PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LANG", "LC_ALL"];
/// Runs in parallel per processor. More than one, because a run mostly waits.
const RUNS_PER_PROCESSOR: usize = 2;

/// Run a host against a server that fails in every way the protocol allows: exit code 0 if the host handles
/// all of it correctly.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A scenario to run; may be repeated [default: all]
    #[arg(
        long,
        value_name = "NAME",
        env = "CONTEXTD_SCENARIO",
        hide_env_values = true,
        value_parser = PossibleValuesParser::new(scenarios().iter().map(|it| it.name)),
        hide_possible_values = true
    )]
    scenario: Vec<String>,
    /// Timeout of one run of the host.
    #[arg(long, value_name = "DURATION", env = "CONTEXTD_TIMEOUT", hide_env_values = true, default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    /// Format of the report: `text`, or `json` for one object per run.
    #[arg(
        long,
        hide_possible_values = true,
        value_name = "FORM",
        env = "CONTEXTD_OUTPUT",
        hide_env_values = true,
        default_value = "text"
    )]
    output: Format,
    /// The driver of the host and its arguments; without it, the scenarios are listed
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.command.is_empty() {
        return list(&scenarios());
    }
    let environment = Environment::of_process();
    let kept = KEPT.iter().filter_map(|name| {
        let value = environment.get(name)?;
        Some(((*name).to_owned(), value.to_owned()))
    });
    let temporary = environment.get("TMPDIR").unwrap_or("/tmp");
    let setup = Setup {
        program: std::env::current_exe().context("cannot find the contextd executable")?,
        temporary: PathBuf::from(temporary),
        environment: kept.collect(),
    };
    let options = Options {
        command: args.command,
        scenarios: args.scenario,
        timeout: args.timeout,
        parallel: thread::available_parallelism().map_or(1, usize::from) * RUNS_PER_PROCESSOR,
    };
    let kit = Kit::start(setup).await?;
    let mut runs = 0_usize;
    let mut failed = 0_usize;
    let mut printed = Ok(());
    let ran = kit.run(&options, |outcome| {
        runs += 1;
        failed += usize::from(!outcome.findings.is_empty());
        let now = print(outcome, args.output);
        if printed.is_ok() {
            printed = now;
        }
    });
    // Drivers run in separate process groups, which do not receive the terminal's signals.
    let ran = tokio::select! {
        ran = ran => ran,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    kit.stop().await;
    ran?;
    printed?;
    if matches!(args.output, Format::Text) {
        print_line(format_args!("{runs} runs, {failed} with findings"))?;
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn list(scenarios: &[Scenario]) -> anyhow::Result<ExitCode> {
    for scenario in scenarios {
        print_line(format_args!("{:20} {}", scenario.name, scenario.demand))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(outcome: &Outcome, form: Format) -> anyhow::Result<()> {
    let Outcome { scenario, variant, findings, elapsed, stderr, .. } = outcome;
    if matches!(form, Format::Json) {
        let findings: Vec<_> = findings.iter().map(|it| json!({"check": it.check, "text": it.text})).collect();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        return print_line(format_args!(
            "{}",
            json!({"scenario": scenario, "run": variant, "elapsed_ms": elapsed_ms, "findings": findings, "stderr": stderr})
        ));
    }
    let name = match variant.is_empty() {
        true => (*scenario).to_owned(),
        false => format!("{scenario}: {variant}"),
    };
    let verdict = if findings.is_empty() { "ok" } else { "WRONG" };
    print_line(format_args!("{verdict:5} {name} ({} ms)", elapsed.as_millis()))?;
    for finding in findings {
        print_line(format_args!("      {}: {}", finding.check, finding.text))?;
    }
    if !findings.is_empty() && !stderr.is_empty() {
        for line in stderr.lines().rev().take(10).collect::<Vec<_>>().into_iter().rev() {
            print_line(format_args!("      stderr: {line}"))?;
        }
    }
    Ok(())
}

//! `contextd conformance` finds the faults of hosts, and reports nothing for a host without faults.

use std::{collections::BTreeSet, path::Path, time::Duration};

use contextd_conformance::{Kit, Options, Outcome, Setup};
use futures_util::{StreamExt as _, stream};

mod host;

use host::{FAULT, Fault};

/// Number of concurrent hosts.
const PARALLEL: usize = 4;

async fn kit() -> Kit {
    let kept = ["PATH", "HOME"].iter().filter_map(|name| {
        let value = std::env::var_os(name)?.into_string().ok()?;
        Some(((*name).to_owned(), value))
    });
    let setup = Setup {
        program: env!("CARGO_BIN_EXE_contextd").into(),
        // A directory that the user who runs PostgreSQL can access.
        temporary: Path::new("/tmp").to_owned(),
        environment: kept.collect(),
    };
    Kit::start(setup).await.unwrap()
}

/// Runs this program as a host with the given fault. The host writes to the standard output of the command; the output
/// of the test harness is discarded.
fn command(fault: Fault) -> Vec<std::ffi::OsString> {
    let this = std::env::current_exe().unwrap();
    let script = r#"exec 3>&1 1>/dev/null; exec "$@""#;
    let mut command: Vec<std::ffi::OsString> = ["bash", "-c", script, "host", "env"].map(Into::into).into();
    command.push(format!("{FAULT}={fault:?}").into());
    command.push(this.into());
    let test = ["--exact", "conformance::host::plays_the_host", "--ignored", "--nocapture"];
    command.extend(test.map(Into::into));
    command
}

fn options(fault: Fault, scenarios: &[&str], timeout: Duration) -> Options {
    Options {
        command: command(fault),
        scenarios: scenarios.iter().map(|name| (*name).to_owned()).collect(),
        timeout,
        parallel: PARALLEL,
    }
}

/// Runs a host without faults. Returns the number of runs.
async fn passes(fault: Fault, scenarios: &[&str]) -> usize {
    let kit = kit().await;
    let mut runs = 0;
    let mut wrong = Vec::new();
    let note = |outcome: &Outcome| {
        runs += 1;
        if !outcome.findings.is_empty() {
            wrong.push(format!("{outcome:#?}"));
        }
    };
    let options = options(fault, scenarios, Duration::from_secs(60));
    let ran = kit.run(&options, note).await;
    kit.stop().await;
    ran.unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_faults_passes_the_conformance_kit() {
    let runs = passes(Fault::None, &[]).await;
    assert!(runs > 60, "{runs} runs");
}

/// The kit completes what it does during a tool call before the result is processed.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_quick_tools_does_not_outrun_the_conformance_kit() {
    passes(Fault::HurriesTools, &["model-switch", "interrupt"]).await;
}

/// Each fault, a scenario that reveals it, and the check that finds it.
const FAULTS: &[(Fault, &str, &str)] = &[
    (Fault::RunsCallsAgain, "cut-while-tools-run", "calls.twice"),
    (Fault::ForgetsTheCursor, "drain", "after_seq.behind"),
    (Fault::SkipsAnEvent, "drain", "after_seq.ahead"),
    (Fault::ShowsTextTwice, "cut-while-model-writes", "text.extra"),
    (Fault::IgnoresTheRest, "cut-while-model-writes", "text.missing"),
    (Fault::NewRequestId, "lost-start", "request_id.changed"),
    (Fault::NoRequestId, "baseline", "request_id.empty"),
    (Fault::ChangesResults, "lost-results", "results.changed"),
    (Fault::SubmitsOnce, "outage", "results.missing"),
    (Fault::LeavesApprovals, "approval", "approval.unanswered"),
    (Fault::RunsDeniedCalls, "approval", "calls.unasked"),
    (Fault::ApprovesEverything, "approval", "approval.wrong"),
    (Fault::RepeatsRefusals, "refused", "refused.again"),
    (Fault::FailsOnUnknown, "unknown", "exit.code"),
    (Fault::ForgetsUnknownSeqs, "unknown", "after_seq.behind"),
    (Fault::NeverComesBack, "drain", "end.error"),
    (Fault::EndsWithTheStream, "drain", "end.early"),
    (Fault::KeepsVoidText, "fallback", "text.extra"),
    (Fault::WaitsInSilence, "silence", "silence.waits"),
    (Fault::ComesBackEarly, "drain", "retry.early"),
    (Fault::FailsOnStale, "interrupt", "exit.code"),
    (Fault::AddsWrongly, "baseline", "results.wrong"),
    (Fault::RunsOneCallOnly, "baseline", "calls.missing"),
    (Fault::MisreadsArguments, "baseline", "calls.args"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_conformance_kit_finds_each_fault_of_a_host() {
    let kit = kit().await;
    let running = &kit;
    let missed: Vec<String> = stream::iter(FAULTS)
        .map(|&(fault, scenario, check)| async move {
            let mut found = BTreeSet::new();
            let options = options(fault, &[scenario], Duration::from_secs(8));
            let note = |outcome: &Outcome| {
                found.extend(outcome.findings.iter().map(|finding| finding.check));
            };
            running.run(&options, note).await.unwrap();
            let missed = format!("{fault:?} in {scenario}: {check} is not among {found:?}");
            (!found.contains(check)).then_some(missed)
        })
        .buffer_unordered(PARALLEL)
        .filter_map(async |missed| missed)
        .collect()
        .await;
    kit.stop().await;
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

//! `contextd selftest`, the built program, which `helm test` runs.

use std::{net::SocketAddr, process::Output, time::Duration};

use contextd::pb;
use tokio::{process::Command, time::timeout};

use crate::harness::{TestDatabase, process::Place};

const PATIENCE: Duration = Duration::from_mins(1);

async fn selftest(address: SocketAddr, model: &str) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_contextd"))
        .args(["selftest", "--model", model, "--address"])
        .arg(address.to_string())
        .env_clear()
        .output();
    timeout(PATIENCE, output).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn selftest_runs_a_turn_and_leaves_no_session() {
    let database = TestDatabase::new().await;
    let place = Place::new("");
    let served = place.serve_over(&database).await;
    let output = selftest(served.address, "scripted/demo").await;
    let text = String::from_utf8(output.stdout).unwrap();
    let steps: Vec<&str> = text.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    let expected = ["created", "ran", "read", "deleted"];
    let aside = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), steps.as_slice()), (Some(0), expected.as_slice()), "{aside}");
    let listed = served.sessions().await.list_sessions(pb::ListSessionsRequest::default()).await.unwrap();
    let left = listed.into_inner().sessions;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn selftest_with_a_model_that_is_not_there_is_exit_code_1() {
    let database = TestDatabase::new().await;
    let place = Place::new("");
    let served = place.serve_over(&database).await;
    let output = selftest(served.address, "scripted/nothing").await;
    let aside = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{aside}");
    assert!(aside.contains("MODEL_NOT_FOUND"), "{aside}");
}

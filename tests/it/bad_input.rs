//! Every mistake that a caller can make: each is refused before admission with a code, a reason and the fields, and
//! does not change the database.

mod answers;
mod context;
mod history;
mod media;
mod models;
mod queue;
mod rows;
mod rules;
mod scene;
mod updates;

use contextd::pb;

use crate::harness::{
    errors::refusal,
    requests::{result, submit},
};
use rows::{Row, table};
use scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn every_invalid_field_is_named_and_changes_nothing() {
    let (database, _replica, scene) = Box::pin(Scene::set()).await;
    let client = database.client().await;
    let before = database.contents(&client).await;
    let table = table(&scene);
    assert!(table.len() >= 190, "{} rows are left of the table", table.len());
    for Row { what, call, mut expected } in table {
        let status = call.await.expect_err(what);
        let mut refused = refusal(&status);
        // Their order is not specified.
        refused.fields.sort_unstable();
        expected.fields.sort_unstable();
        assert_eq!(refused, expected, "{what}: {status:?}");
        assert_eq!(database.contents(&client).await, before, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn violations_beyond_25_are_counted_but_not_listed() {
    let (_database, _replica, scene) = Box::pin(Scene::set()).await;
    let nameless = pb::ToolSet { host_tools: vec![pb::Tool::default(); 30], ..Default::default() };
    let status = scene.execute(|it| it.tools = Some(nameless)).await.unwrap_err();
    assert_eq!(status.message(), "tools.host_tools[0].name: must be set (and 29 more, 5 of them not listed)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_for_a_finished_call_is_stale_and_changes_nothing() {
    let (database, replica, scene) = Box::pin(Scene::set()).await;
    let mut turns = replica.turns().await;
    let cancel = pb::CancelTurnRequest { session_id: "waits".to_owned(), ..pb::CancelTurnRequest::default() };
    turns.cancel_turn(cancel).await.unwrap();
    let client = database.client().await;
    let before = database.contents(&client).await;
    let answer = submit("waits", vec![result(&scene.open, "too late")]);
    let receipts = turns.submit_tool_results(answer).await.unwrap().into_inner();
    let stale = pb::AnswerReceipt { call_id: scene.open, status: pb::AnswerStatus::Stale.into() };
    assert_eq!((receipts.receipts, receipts.pending_call_ids), (vec![stale], vec![]));
    assert_eq!(database.contents(&client).await, before);
}

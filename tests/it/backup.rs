//! `contextd backup` of the embedded database while it is used, and `contextd restore`.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Output};

use contextd::pb::{self, event::Payload, session_service_client::SessionServiceClient};
use serde_json::json;
use tonic::transport::Channel;

use crate::harness::{
    events::{all, kinds, until},
    process::{Place, Served},
    requests::{result, submit, tools, turn},
};

fn place() -> Place {
    let call = json!({"steps": [
        {"when": {"call": 0}, "say": [{"tool_call": {"name": "look", "arguments": {"at": "this"}}}]},
        {"when": {"has_result_of": ["look"]}, "say": [{"text": "{{result:look}}"}]},
    ]});
    // Policies name roles that another server does not have yet.
    Place::new("[database]\nrow_security = true\n").script("looks", &call)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn sessions(served: &Served) -> SessionServiceClient<Channel> {
    served.sessions().await
}

async fn transcript(served: &Served) -> (Option<pb::Session>, Vec<pb::Message>) {
    let session_id = "chat".to_owned();
    let mut client = sessions(served).await;
    let get = pb::GetSessionRequest { session_id: session_id.clone() };
    let session = client.get_session(get).await.unwrap().into_inner().session;
    let list = pb::ListMessagesRequest { session_id, ..Default::default() };
    let messages = client.list_messages(list).await.unwrap().into_inner();
    (session, messages.messages)
}

/// A backup is taken while a turn waits for its tool. After a restore to another server, the turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waited_when_the_backup_was_made_goes_on_after_the_restore() {
    let home = place();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("contextd.dump");
    let served = home.serve().await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("chat", "scripted/looks", "Look at this.") };
    let mut stream = served.turns().await.execute_turn(request).await.unwrap().into_inner();
    let waiting = until(&mut stream, |it| matches!(it, Payload::ActionRequired(_))).await;
    let call = crate::harness::events::requested(&waiting).remove(0);
    let before = transcript(&served).await;

    let made = home.run_with_file("backup", &file).await;
    assert!(made.status.success(), "{}", said(&made));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Later messages are not in the backup.
    let later = turn("later", "scripted/looks", "Look.");
    drop(served.turns().await.execute_turn(later).await.unwrap());
    let twice = home.run_with_file("backup", &file).await;
    assert!(said(&twice).contains("already exists"), "{}", said(&twice));
    // A database that is in use or not empty is not overwritten.
    let in_use = home.run_with_file("restore", &file).await;
    assert!(said(&in_use).contains("in use by another contextd"), "{}", said(&in_use));
    served.kill_9().await;
    let not_empty = home.run_with_file("restore", &file).await;
    assert!(said(&not_empty).contains("is not empty"), "{}", said(&not_empty));

    let elsewhere = place();
    let restored = elsewhere.run_with_file("restore", &file).await;
    assert!(restored.status.success(), "{}", said(&restored));
    let served = elsewhere.serve().await;
    assert_eq!(transcript(&served).await, before);
    let watch = pb::WatchEventsRequest {
        session_id: "chat".to_owned(),
        follow: true,
        after_seq: before.0.as_ref().unwrap().last_seq,
        turn_id: before.0.unwrap().current_turn_id,
        ..Default::default()
    };
    let mut turns = served.turns().await;
    let mut stream = turns.watch_events(watch).await.unwrap().into_inner();
    let answer = submit("chat", vec![result(&call, "a tree")]);
    turns.submit_tool_results(answer).await.unwrap();
    let rest = all(&mut stream).await;
    assert_eq!(kinds(&rest).last(), Some(&"turn_completed"));
    let mut client = sessions(&served).await;
    let missing = pb::GetSessionRequest { session_id: "later".to_owned() };
    assert_eq!(client.get_session(missing).await.unwrap_err().code(), tonic::Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_needs_no_server_and_a_broken_one_changes_nothing() {
    let home = place();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("contextd.dump");
    let nothing = home.run_with_file("backup", &file).await;
    assert!(said(&nothing).contains("there is no database"), "{}", said(&nothing));
    let mut served = home.serve().await;
    let request = turn("chat", "scripted/looks", "Hello.");
    drop(served.turns().await.execute_turn(request).await.unwrap());
    served.terminate();
    served.ended().await;
    let made = home.run_with_file("backup", &file).await;
    assert!(made.status.success(), "{}", said(&made));

    let elsewhere = place();
    let half = folder.path().join("half.dump");
    let whole = fs::read(&file).unwrap();
    fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let broken = elsewhere.run_with_file("restore", &half).await;
    assert!(said(&broken).contains("pg_restore failed"), "{}", said(&broken));
    let missing = folder.path().join("nothing.dump");
    let mistyped = elsewhere.run_with_file("restore", &missing).await;
    assert!(said(&mistyped).contains("cannot read"), "{}", said(&mistyped));
    let restored = elsewhere.run_with_file("restore", &file).await;
    assert!(restored.status.success(), "{}", said(&restored));
}

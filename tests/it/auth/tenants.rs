//! Every RPC treats data of another tenant as nonexistent.

use contextd::{
    model::Access,
    pb::{
        self, admin_service_client::AdminServiceClient, blob_service_client::BlobServiceClient,
        context_service_client::ContextServiceClient, event::Payload, model_service_client::ModelServiceClient,
        put_blob_request::Data, queue_service_client::QueueServiceClient, session_service_client::SessionServiceClient,
        turn_service_client::TurnServiceClient,
    },
};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{Key, KeysFile, call, connect, rpcs};
use crate::harness::{
    Replica,
    errors::refusal,
    events::{all, until},
    host::{MODEL, answering, call as called, script as host_script, until as wait_until},
    requests::{enqueue, input, tools, turn},
};

/// A text that only the data of one tenant contains.
const CANARY: &str = "canary-of-the-victim";

/// The ids of one tenant's data.
#[derive(Debug, Clone)]
struct Ids {
    session: String,
    turn: String,
    call: String,
    message: String,
    queued: String,
    compaction: String,
    blob: String,
    request: String,
    token: String,
    etag: String,
    key: String,
}

impl Ids {
    /// Ids of the same form that no tenant has.
    fn absent(&self) -> Self {
        let other = |id: &str| -> String {
            let turned = |c: char| match c {
                '0'..='8' => char::from(c as u8 + 1),
                '9' => '0',
                'a'..='e' => char::from(c as u8 + 1),
                'f' => 'a',
                other => other,
            };
            id.chars().map(turned).collect()
        };
        Self {
            session: "s-absent".to_owned(),
            turn: other(&self.turn),
            call: "call-absent".to_owned(),
            message: other(&self.message),
            queued: other(&self.queued),
            compaction: other(&self.compaction),
            blob: other(&self.blob),
            request: "r-absent".to_owned(),
            token: self.token.clone(),
            etag: "absent".to_owned(),
            key: other(&self.key),
        }
    }

    fn all(&self) -> [(&'static str, &str); 10] {
        [
            ("SESSION", &self.session),
            ("TURN", &self.turn),
            ("CALL", &self.call),
            ("MESSAGE", &self.message),
            ("QUEUED", &self.queued),
            ("COMPACTION", &self.compaction),
            ("BLOB", &self.blob),
            ("REQUEST", &self.request),
            ("ETAG", &self.etag),
            ("KEY", &self.key),
        ]
    }
}

/// Requests of an RPC that name all of these ids. Empty if the RPC names nothing that a tenant could own.
fn requests(rpc: &str, ids: &Ids) -> Vec<Value> {
    let Ids { session, turn, call, message, queued, compaction, blob, request, token, etag, key } = ids;
    let user = json!([{"text": "hello"}]);
    let media = json!([{"media": {"blob_id": blob, "mediaType": "image/png"}}]);
    let name = rpc.rsplit_once('/').unwrap().1;
    match name {
        "GetServerInfo" | "ListModels" | "GetModel" | "CreateKey" | "PutBlob" | "GetTenantLimits"
        | "SetTenantLimits" | "DeleteTenant" | "GetTenantDeletion" => vec![],
        "ListKeys" => vec![json!({"page_token": token})],
        "RevokeKey" => vec![json!({"key_id": key})],
        "GetBlob" => vec![json!({"blob_id": blob})],
        "CreateSession" => {
            vec![json!({"session": {"model": MODEL}, "request_id": format!("{request}-create")})]
        }
        "ListSessions" => vec![
            json!({"page_token": token}),
            json!({}),
            json!({"filter": {"text_prefix": session}}),
            json!({"filter": {"metadata": {"owner": "victim"}}}),
            json!({"filter": {"states": ["SESSION_STATE_RUNNING", "SESSION_STATE_AWAITING_TOOLS"]}}),
        ],
        "GetSession" | "ListMessages" | "ListEvents" | "GetContextStats" | "ListCompactions" | "ListQueuedMessages"
        | "PruneToolOutputs" | "PrepareContext" | "RenderContext" | "ListTurns" => vec![json!({"session_id": session})],
        "ExportMessages" => {
            vec![json!({"session_id": session, "format": "PROMPT_FORMAT_OPENAI_CHAT"})]
        }
        "WatchEvents" => vec![json!({"session_id": session}), json!({"session_id": session, "turn_id": turn})],
        "ClearQueue" | "Compact" => vec![json!({"session_id": session, "request_id": request})],
        "UpdateSession" => vec![
            json!({"session": {"session_id": session, "system_prompt": "x"}, "request_id": request}),
            json!({"session": {"session_id": session, "etag": etag, "system_prompt": "x"}}),
        ],
        "DeleteSession" => {
            vec![json!({"session_id": session, "request_id": request}), json!({"session_id": session, "etag": etag})]
        }
        "ForkSession" => vec![json!({"session_id": session, "request_id": request})],
        "AppendMessages" => vec![
            json!({"session_id": session, "messages": [{"role": "ROLE_USER", "parts": user}]}),
            json!({"session_id": session, "messages": [{"role": "ROLE_USER", "parts": media}]}),
        ],
        "ExecuteTurn" => vec![
            json!({"session_id": session, "input": {"parts": user}, "request_id": request}),
            json!({"session_id": session, "input": {"parts": media}}),
            json!({"session_id": session}),
        ],
        "GetTurn" => vec![json!({"session_id": session, "turn_id": turn})],
        "CancelTurn" => {
            vec![json!({"session_id": session, "turn_id": turn}), json!({"session_id": session, "request_id": request})]
        }
        "SubmitToolResults" => vec![
            json!({"session_id": session, "results": [{"call_id": call, "parts": user}], "request_id": request}),
            json!({"session_id": session, "approvals": [{"call_id": call, "decision": "APPROVAL_DECISION_APPROVE"}]}),
        ],
        "EnqueueMessage" => vec![
            json!({"session_id": session, "message": {"parts": user}, "request_id": request}),
            json!({"session_id": session, "message": {"parts": media}}),
        ],
        "CancelQueuedMessage" => vec![json!({"session_id": session, "queued_message_id": queued})],
        "RevertCompaction" => vec![json!({"session_id": session, "compaction_id": compaction})],
        "RestoreToolOutputs" => vec![json!({"session_id": session, "pruned_at_seq": 3})],
        "RecordUsage" => vec![json!({
            "session_id": session, "message_id": message, "model": MODEL, "usage": {"input_tokens": 1}, "request_id": request
        })],
        "CountTokens" => vec![
            json!({"session_id": session}),
            json!({"model": MODEL, "messages": [{"role": "ROLE_USER", "parts": media}]}),
        ],
        other => panic!("{other} needs a row here"),
    }
}

/// What a caller can observe of an outcome, without the ids that it sent. A success is reduced to its code, because the
/// caller's own data in it differs between calls.
fn seen(outcome: &Result<Vec<u8>, Status>, ids: &Ids) -> (Code, String) {
    let Err(status) = outcome else {
        return (Code::Ok, String::new());
    };
    let details = status.get_error_details();
    let mut text = format!(
        "{} {:?} {:?} {:?} {:?} {:?}",
        status.message(),
        refusal(status),
        details.bad_request(),
        details.resource_info(),
        details.precondition_failure(),
        details.quota_failure()
    );
    for (name, id) in ids.all() {
        // An etag is a short number.
        if id.len() > 3 {
            text = text.replace(id, name);
        }
    }
    (status.code(), text)
}

/// Creates one item of every kind for a tenant.
async fn furnish(replica: &Replica, key: &Key, session: &str) -> Ids {
    let connection = connect(replica, key).await;
    let mut sessions = SessionServiceClient::new(connection.clone());
    let mut turns = TurnServiceClient::new(connection.clone());
    let request = format!("r-{session}");
    let create = |id: &str| pb::CreateSessionRequest {
        session: Some(pb::Session {
            session_id: id.to_owned(),
            system_prompt: CANARY.to_owned(),
            model: MODEL.to_owned(),
            ..pb::Session::default()
        }),
        request_id: format!("r-{id}-create"),
    };
    sessions.create_session(create(session)).await.unwrap();
    let old = format!("{session}-old");
    sessions.create_session(create(&old)).await.unwrap();

    let execute =
        pb::ExecuteTurnRequest { tools: tools(&["look"]), request_id: request.clone(), ..turn(session, MODEL, CANARY) };
    let mut stream = turns.execute_turn(execute).await.unwrap().into_inner();
    let waits = |payload: &Payload| matches!(payload, Payload::ActionRequired(_));
    let events = until(&mut stream, waits).await;
    let call = crate::harness::events::requested(&events).remove(0);
    let turn = events.last().unwrap().turn_id.clone();

    let mut queue = QueueServiceClient::new(connection.clone());
    let queued = queue.enqueue_message(enqueue(session, CANARY)).await.unwrap().into_inner();

    let content = format!("{CANARY} of {session}");
    let header = pb::BlobHeader { media_type: "text/plain".to_owned(), ..pb::BlobHeader::default() };
    let pieces = [Data::Header(header), Data::Chunk(content.into_bytes())];
    let pieces = pieces.map(|data| pb::PutBlobRequest { data: Some(data) });
    let mut blobs = BlobServiceClient::new(connection.clone());
    let blob = blobs.put_blob(tokio_stream::iter(pieces)).await.unwrap().into_inner().blob.unwrap().blob_id;

    let roles = [pb::Role::User, pb::Role::Assistant].into_iter().cycle();
    let said = roles.take(8).map(|role| pb::InputMessage { role: role.into(), ..input(&CANARY.repeat(200)) });
    let append = pb::AppendMessagesRequest {
        session_id: old.clone(),
        messages: said.collect(),
        ..pb::AppendMessagesRequest::default()
    };
    let message = sessions.append_messages(append).await.unwrap().into_inner();
    let message = message.message_ids[0].clone();
    let compact = pb::CompactRequest {
        session_id: old,
        strategy: pb::CompactionStrategy::Truncation.into(),
        target_tokens: 3_000,
        wait: true,
        ..pb::CompactRequest::default()
    };
    let compacted = ContextServiceClient::new(connection.clone()).compact(compact).await;
    let compaction = compacted.unwrap().into_inner().compaction.unwrap().compaction_id;

    let list = pb::ListSessionsRequest { page_size: 1, page_token: String::new(), filter: None };
    let page = sessions.list_sessions(list).await.unwrap().into_inner();
    // An etag counts the changes of a session. This makes it differ from those of other sessions.
    let mut etag = String::new();
    for change in 0..session.len() {
        let update = pb::UpdateSessionRequest {
            session: Some(pb::Session {
                session_id: session.to_owned(),
                system_prompt: format!("{CANARY} {change}"),
                ..pb::Session::default()
            }),
            ..pb::UpdateSessionRequest::default()
        };
        let updated = sessions.update_session(update).await.unwrap().into_inner();
        etag = updated.session.unwrap().etag;
    }
    let create_key = pb::CreateKeyRequest { access: pb::Access::Read.into(), ..pb::CreateKeyRequest::default() };
    let made = AdminServiceClient::new(connection).create_key(create_key).await;
    Ids {
        session: session.to_owned(),
        turn,
        call,
        message,
        queued: queued.queued_message.unwrap().queued_message_id,
        compaction,
        blob,
        request,
        token: page.next_page_token,
        etag,
        key: made.unwrap().into_inner().key.unwrap().key_id,
    }
}

/// Rows I10: calls every RPC with all ids of another tenant.
#[tokio::test]
async fn what_is_anothers_is_answered_as_what_does_not_exist() {
    let mut file = KeysFile::new();
    let [victim, caller] = ["victim", "caller"].map(|tenant| file.add(tenant, Access::Admin));
    let mut options = answering(&[json!([called("look")]), json!([{"text": "done"}])]);
    options.auth = file.required().auth;
    let (_database, replica) = Replica::alone(options).await;
    let theirs = furnish(&replica, &victim, "s-the-victim").await;
    let own = furnish(&replica, &caller, "s-caller").await;
    let absent = theirs.absent();
    let channel = replica.channel().await;
    let mut compared = 0;
    for (rpc, _) in rpcs() {
        // In a session of the victim, and in a session of the caller with ids of the victim.
        let mine = |ids: &Ids| Ids { session: own.session.clone(), ..ids.clone() };
        for (theirs, absent) in [(theirs.clone(), absent.clone()), (mine(&theirs), mine(&absent))] {
            let pairs = requests(&rpc, &theirs).into_iter().zip(requests(&rpc, &absent));
            for (taken, made_up) in pairs {
                // The nonexistent ids come first, because a successful call in the caller's session may change the
                // outcome.
                let nothing = call(&channel, Some(&caller), &rpc, made_up.clone()).await;
                let outcome = call(&channel, Some(&caller), &rpc, taken.clone()).await;
                let (code, _) = seen(&nothing, &absent);
                if code != Code::Ok {
                    assert_eq!(seen(&outcome, &theirs), seen(&nothing, &absent), "{rpc} {taken}");
                }
                if let Ok(bytes) = &outcome {
                    let text = String::from_utf8_lossy(bytes);
                    assert!(!text.contains("s-the-victim"), "{rpc} {taken}: {text}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 80, "{compared}");
    // The data of the victim is unchanged.
    let mut turns = TurnServiceClient::new(connect(&replica, &victim).await);
    let read = pb::GetTurnRequest { session_id: theirs.session.clone(), turn_id: theirs.turn.clone() };
    let turn = turns.get_turn(read).await.unwrap().into_inner().turn.unwrap();
    assert_eq!(turn.state(), pb::TurnState::AwaitingTools);
    let channel = replica.channel().await;
    for rpc in ["contextd.v1.BlobService/GetBlob", "contextd.v1.AdminService/ListKeys"] {
        let request = requests(rpc, &Ids { token: String::new(), ..theirs.clone() }).remove(0);
        assert!(call(&channel, Some(&victim), rpc, request).await.is_ok(), "{rpc}");
    }
}

async fn ratio(models: &ModelServiceClient<super::Keyed>) -> f64 {
    let request = pb::GetModelRequest { model: MODEL.to_owned() };
    let read = models.clone().get_model(request).await.unwrap();
    read.into_inner().model.unwrap().calibration_ratio
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenants_calls_teach_changes_no_other_tenants_predictions() {
    let mut file = KeysFile::new();
    let keys = ["acme", "other"].map(|tenant| file.add(tenant, Access::Write));
    let usage = json!({"input": 1000, "output": 2});
    let answer = json!([{"text": "Fine."}, {"finish": {"reason": "stop", "usage": usage}}]);
    let options = file.required().script("it", host_script(&[answer]));
    let (_database, replica) = Replica::alone(options).await;
    let [acme, other] = [connect(&replica, &keys[0]).await, connect(&replica, &keys[1]).await];
    let models = [acme.clone(), other].map(ModelServiceClient::new);
    let odd = turn("s", MODEL, &"hello ".repeat(594));
    let stream = TurnServiceClient::new(acme).execute_turn(odd).await;
    all(&mut stream.unwrap().into_inner()).await;
    wait_until("the call to teach its tenant", || async { ratio(&models[0]).await > 1.5 }).await;
    assert_eq!(ratio(&models[1]).await, 1.0);
}

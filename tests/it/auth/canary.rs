//! Canaries: a text and keys that are sent through every RPC and every kind of error, and that must not appear in any
//! log, trace, metric, probe or status.
//!
//! Not covered: ids of sessions, turns, tenants and keys, which are logged, and what a model service adds to an error
//! message itself, which is logged without keys.

use std::{collections::HashMap, net::TcpListener, time::Duration};

use contextd::{
    codec::description::DESCRIPTOR_POOL,
    model::Access,
    pb::{self, admin_service_client::AdminServiceClient, turn_service_client::TurnServiceClient},
};
use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

use super::{Key, KeysFile, rpcs};
use crate::harness::{
    TestDatabase,
    collector::Collector,
    events::turn_id,
    mcp_server::{McpServer, TOKEN},
    process::{Place, Served},
    raw,
    requests::{text, turn},
    upstream::{KEY, Reply, Upstream, said},
};

/// The text of users and models.
const TEXT: &str = "canary-of-the-text";
/// The value of all other strings of callers: names, descriptions, patterns.
const NAME: &str = "canary-of-a-name";
/// A string in the format of a credential that is not valid.
const FORGED: &str = "ctxd_canary0of0a0key";
/// How long to wait for an RPC that may not respond, such as a watch.
const SILENCE: Duration = Duration::from_secs(3);

/// Everything that was returned, as text, with its origin.
#[derive(Default)]
struct Heard(Vec<(String, String)>);

impl Heard {
    fn status(&mut self, from: &str, status: &Status) {
        let details = String::from_utf8_lossy(status.details()).into_owned();
        self.0.push((from.to_owned(), format!("{status:?} {details}")));
    }

    fn text(&mut self, from: &str, text: String) {
        self.0.push((from.to_owned(), text));
    }

    /// Events may contain the conversation, but no key.
    fn events(&mut self, from: &str, events: &str) {
        self.text(from, events.replace(TEXT, "..."));
    }

    /// The origins whose text contains a secret.
    fn showing<'a>(&'a self, secret: &str) -> impl Iterator<Item = String> + use<'a> {
        let secret = secret.to_owned();
        self.0.iter().flat_map(move |(from, text)| {
            let lines = text.lines().filter(|line| line.contains(&secret));
            let shown = lines.map(|line| format!("{secret} in {from}: {line}"));
            shown.take(3).collect::<Vec<_>>()
        })
    }
}

/// A value for a field. Strings contain a canary, except for ids that are logged.
fn value(field: &FieldDescriptor, depth: usize, variant: usize) -> Option<Value> {
    let one = match field.kind() {
        Kind::String => Value::String(match field.name() {
            "session_id" | "turn_id" => "s".to_owned(),
            "tenant_id" | "key_id" => "elsewhere".to_owned(),
            "text" | "system_prompt" => TEXT.to_owned(),
            _ => NAME.to_owned(),
        }),
        Kind::Bytes => Value::Bytes(TEXT.into()),
        Kind::Bool => Value::Bool(variant == 1),
        Kind::Double => Value::F64(1.0),
        Kind::Float => Value::F32(1.0),
        Kind::Enum(_) => Value::EnumNumber(1),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(1),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(1),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(1),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(1),
        Kind::Message(message) => {
            let foreign = message.full_name().starts_with("google.protobuf.");
            if depth == 0 || foreign {
                return None;
            }
            Value::Message(filled(&message, depth - 1, variant))
        }
    };
    Some(one)
}

/// A message with all fields set. `variant` selects the field of a oneof.
fn filled(descriptor: &MessageDescriptor, depth: usize, variant: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        if let Some(oneof) = field.containing_oneof() {
            let fields: Vec<_> = oneof.fields().collect();
            if fields[variant % fields.len()] != field {
                continue;
            }
        }
        if field.is_map() {
            let entry = HashMap::from([(MapKey::String(NAME.to_owned()), Value::String(NAME.into()))]);
            let Kind::Message(pair) = field.kind() else {
                continue;
            };
            if pair.map_entry_value_field().kind() == Kind::String {
                message.set_field(&field, Value::Map(entry));
            }
            continue;
        }
        match value(&field, depth, variant) {
            Some(one) if field.is_list() => message.set_field(&field, Value::List(vec![one])),
            Some(one) => message.set_field(&field, one),
            None => {}
        }
    }
    message
}

fn settings(scene: &Scene, admin: u16) -> String {
    format!(
        "[server]\nadmin_listen = '127.0.0.1:{admin}'\n\
         [auth]\nrequired = true\nkeys_file = '{}'\n\
         [telemetry]\nlog_format = 'json'\nlog = 'info,contextd=trace'\n\
         [telemetry.otlp]\nendpoint = '{}'\nmetrics_interval = '200ms'\n\
         [models]\ndefault_model = 'main/gpt-4o'\n\
         [providers.main]\nkind = 'openai'\nbase_url = '{}'\napi_key = '{KEY}'\n\
         [mcp.played]\nurl = '{}'\ntoken = '{TOKEN}'\ntenants = ['*']\n\
         [mcp.broken]\nurl = 'http://{}/mcp'\ntoken = '{TOKEN}'\ntenants = ['*']\n",
        scene.keys.0.path().display(),
        scene.collector.endpoint(),
        scene.upstream.base_url(),
        scene.server.url(),
        scene.upstream.address,
    )
}

struct Scene {
    keys: KeysFile,
    key: Key,
    collector: Collector,
    upstream: Upstream,
    server: McpServer,
}

type Keyed = InterceptedService<Channel, Key>;

impl Scene {
    async fn new() -> Self {
        let mut keys = KeysFile::new();
        let key = keys.add("acme", Access::Operator);
        let server = McpServer::start().await;
        server.add("leaks").await;
        server.add("repeats").await;
        Self { keys, key, collector: Collector::start().await, upstream: Upstream::start().await, server }
    }

    async fn turns(&self, served: &Served) -> TurnServiceClient<Keyed> {
        TurnServiceClient::new(InterceptedService::new(served.channel().await, self.key.clone()))
    }

    /// Runs a turn to its end. Returns all of its events, and how it ended.
    async fn turn(&self, served: &Served, request: pb::ExecuteTurnRequest, heard: &mut Heard) -> Vec<pb::Event> {
        let mut events = Vec::new();
        let answer = self.turns(served).await.execute_turn(request).await;
        let mut stream = match answer {
            Ok(stream) => stream.into_inner(),
            Err(status) => {
                heard.status("ExecuteTurn", &status);
                return events;
            }
        };
        loop {
            match stream.message().await {
                Ok(Some(answer)) => events.extend(answer.event),
                Ok(None) => return events,
                Err(status) => {
                    heard.status("ExecuteTurn", &status);
                    return events;
                }
            }
        }
    }

    /// Calls each RPC with a canary in each of its strings.
    async fn every_rpc(&self, served: &Served, heard: &mut Heard) {
        let channel = served.channel().await;
        let header = self.key.header();
        for (rpc, message) in rpcs() {
            let descriptor = DESCRIPTOR_POOL.get_message_by_name(&message).unwrap();
            for variant in 0..3 {
                let request = filled(&descriptor, 5, variant).encode_to_vec();
                let call = raw::call_as(channel.clone(), Some(&header), &rpc, request);
                if let Ok(Err(status)) = timeout(SILENCE, call).await {
                    heard.status(&rpc, &status);
                }
            }
            for header in
                [format!("Bearer {FORGED}"), format!("Basic {FORGED}"), format!("Bearer {FORGED}.{FORGED}.{FORGED}")]
            {
                let call = raw::call_as(channel.clone(), Some(&header), &rpc, Vec::new());
                heard.status(&rpc, &call.await.unwrap_err());
            }
            let call = raw::call_as(channel.clone(), Some(&header), &rpc, undecodable());
            if let Err(status) = timeout(SILENCE, call).await.unwrap() {
                heard.status(&rpc, &status);
            }
        }
    }

    /// Turns with a model service and MCP servers that echo their requests.
    async fn servers_that_echo(&self, served: &Served, heard: &mut Heard) {
        let told = format!("you sent authorization: Bearer {KEY}");
        let error = json!({"error": {"message": told, "type": KEY, "code": KEY}});
        for status in [400, 401, 403] {
            self.upstream.answer(Reply::json(status, &error));
            let request = turn(&format!("u-{status}"), "main/gpt-4o", TEXT);
            let events = self.turn(served, request, heard).await;
            assert!(!turn_id(&events).is_empty());
            heard.events("the events of a failed turn", &format!("{events:?}"));
        }
        for _ in 0..3 {
            self.upstream.answer(Reply::json(401, &json!({"error": TOKEN})));
        }
        let request = pb::ExecuteTurnRequest { tools: tools("broken"), ..turn("m-0", "scripted/tools", TEXT) };
        self.turn(served, request, heard).await;
        let request = pb::ExecuteTurnRequest { tools: tools("played"), ..turn("m-1", "scripted/tools", TEXT) };
        let events = self.turn(served, request, heard).await;
        let events = format!("{events:?}");
        assert!(events.contains("you sent Bearer ***"), "{events}");
        heard.events("the events of a turn with tools", &events);
    }

    /// A database that includes rows in its errors and notices.
    async fn a_database_that_quotes(&self, served: &Served, database: &TestDatabase, heard: &mut Heard) {
        let client = database.client().await;
        let faults = [
            (
                "create function quote() returns trigger language plpgsql as $$ begin
                     raise notice 'the row %', new;
                     raise exception 'the row %', new using errcode = '23514', detail = new::text, hint = new::text;
                 end $$;
                 create trigger quote before insert on messages for each row execute function quote()",
                "drop trigger quote on messages",
            ),
            (
                "alter table messages add constraint quoting check (false) not valid",
                "alter table messages drop constraint quoting",
            ),
        ];
        for (n, (fault, repair)) in faults.into_iter().enumerate() {
            client.batch_execute(fault).await.unwrap();
            let request = turn(&format!("d-{n}"), "main/gpt-4o", TEXT);
            let answer = self.turns(served).await.execute_turn(request).await;
            let status = answer.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{status:?}");
            heard.status("a defect", &status);
            client.batch_execute(repair).await.unwrap();
        }
    }

    /// A key created by the server.
    async fn created_key(&self, served: &Served) -> String {
        let channel = InterceptedService::new(served.channel().await, self.key.clone());
        let request = pb::CreateKeyRequest { access: pb::Access::Read.into(), ..pb::CreateKeyRequest::default() };
        let created = AdminServiceClient::new(channel).create_key(request).await;
        created.unwrap().into_inner().secret
    }
}

/// Bytes that do not decode as a message, with a canary in them.
fn undecodable() -> Vec<u8> {
    let mut bytes = vec![0x0a, 0x7f];
    bytes.extend(TEXT.bytes());
    bytes
}

fn tools(server: &str) -> Option<pb::ToolSet> {
    Some(pb::ToolSet {
        mcp_servers: vec![pb::McpServerTools { server: server.to_owned(), ..pb::McpServerTools::default() }],
        ..pb::ToolSet::default()
    })
}

async fn page(admin: u16, path: &str) -> String {
    let answer = reqwest::get(format!("http://127.0.0.1:{admin}{path}")).await;
    answer.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_and_no_key_is_in_logs_traces_metrics_probes_and_statuses() {
    let scene = Scene::new().await;
    let admin = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let database = TestDatabase::new().await;
    let script = json!({"steps": [
        {"when": {"call": 0}, "say": [
            {"tool_call": {"name": "leaks", "arguments": {"text": TEXT}}},
            {"tool_call": {"name": "repeats", "arguments": {"text": TEXT}}},
        ]},
        {"when": {"has_result_of": ["leaks", "repeats"]}, "say": [{"text": TEXT}]},
    ]});
    let place = Place::new(&settings(&scene, admin)).script("tools", &script);
    let served = place.serve_over(&database).await;
    let mut heard = Heard::default();

    scene.upstream.answer(Reply::events(said(&[TEXT])));
    let first = pb::ExecuteTurnRequest {
        session: Some(pb::Session {
            system_prompt: TEXT.to_owned(),
            metadata: [(NAME.to_owned(), TEXT.to_owned())].into(),
            ..pb::Session::default()
        }),
        input: Some(pb::InputMessage { parts: vec![text(TEXT)], ..pb::InputMessage::default() }),
        ..turn("s", "main/gpt-4o", TEXT)
    };
    scene.turn(&served, first, &mut heard).await;
    let created = scene.created_key(&served).await;
    scene.servers_that_echo(&served, &mut heard).await;
    scene.a_database_that_quotes(&served, &database, &mut heard).await;
    scene.every_rpc(&served, &mut heard).await;

    heard.text("the metrics", page(admin, "/metrics").await);
    heard.text("the probe", page(admin, "/readyz").await);
    assert!(served.log_text().contains("internal error"), "{}", served.log_text());
    let mut served = served;
    served.terminate();
    served.ended().await;
    let log = served.log_text();
    assert!(log.contains("23514"), "the log names the error: {log}");
    heard.text("the log", log);
    heard.text("what was exported", scene.collector.dump());
    assert!(!scene.collector.spans().is_empty());

    let key = scene.key.0.as_str();
    let secrets = [TEXT, KEY, TOKEN, FORGED, key, created.as_str()];
    let mut shown: Vec<String> =
        secrets.into_iter().flat_map(|secret| heard.showing(secret).collect::<Vec<_>>()).collect();
    // A status may return to the caller the names that the caller sent.
    heard.0.retain(|(from, _)| from.starts_with("the ") || from.starts_with("what "));
    shown.extend(heard.showing(NAME));
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

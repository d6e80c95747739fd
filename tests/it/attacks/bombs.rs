//! Requests that expand to more than their size on the wire, and the limits that the server advertises.

use std::{io::Write as _, time::Duration};

use contextd::pb::{self, json_schema};
use flate2::{Compression, write::GzEncoder};
use prost::Message as _;
use tokio::time::Instant;
use tonic::Code;

use super::wire::{
    END_HEADERS, HEADERS, MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE, Wire, call, field, frame, message,
};
use crate::harness::{
    Options, Replica, TestDatabase,
    host::{MODEL, until},
    process::Place,
    raw,
    requests::{tools, turn},
};

/// The number of the field `tools` of ExecuteTurnRequest.
const TOOLS: u8 = 6;
/// The HTTP/2 error code REFUSED_STREAM.
const REFUSED: u32 = 7;

/// Row I11
#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_told_its_limits_and_kept_to_them() {
    let place = Place::new("[server]\nmax_concurrent_streams = 10\nmax_header_bytes = 8192\n");
    let database = TestDatabase::new().await;
    let served = place.serve_over(&database).await;
    let soon = Instant::now() + Duration::from_secs(5);
    let mut wire = Wire::connect(served.address, &[]).await.unwrap();
    let put = call("contextd.v1.BlobService/PutBlob");
    let open: Vec<u8> = (1..30).step_by(2).flat_map(|id| frame(HEADERS, END_HEADERS, id, &put)).collect();
    assert!(wire.send(&open, soon).await);
    until("five of fifteen streams to be refused", || async {
        wire.hears(|heard| heard.resets.get(&REFUSED) == Some(&5))
    })
    .await;
    let settings = wire.hears(|heard| heard.settings.clone());
    assert_eq!(settings.get(&MAX_CONCURRENT_STREAMS), Some(&10));
    assert_eq!(settings.get(&MAX_HEADER_LIST_SIZE), Some(&8192));

    let mut wire = Wire::connect(served.address, &[]).await.unwrap();
    let large = [put, field("x-large", &"a".repeat(9_000))].concat();
    let request = frame(HEADERS, END_HEADERS, 1, &large);
    assert!(wire.send(&request, soon).await);
    until("the refusal of the headers", || async { wire.hears(|heard| heard.refusals == 1) }).await;
    assert!(!wire.hears(|heard| heard.closed));
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_requests_are_refused_unread() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    // 64 MB of zeros, compressed.
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&vec![0; 64 << 20]).unwrap();
    let packed = packed.finish().unwrap();
    let mut body = message(&packed);
    body[0] = 1;
    let rpc = "contextd.v1.SessionService/ListSessions";
    let refused = raw::post_encoded(replica.channel().await, rpc, "gzip", body).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
}

/// A Struct nested to this depth. The wire format is built from the innermost level outwards.
fn nested(levels: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..levels {
        // Value.struct_value = 5; Struct.fields = 1 of the entry {key = 1, value = 2}.
        let value = tagged(5, &bytes);
        let entry = [tagged(1, b"k"), tagged(2, &value)].concat();
        bytes = tagged(1, &entry);
    }
    bytes
}

fn tagged(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut tagged = vec![field << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut tagged);
    tagged.extend(bytes);
    tagged
}

/// An ExecuteTurn request with one tool that has this schema.
fn with_schema(schema: Option<json_schema::Schema>) -> pb::ExecuteTurnRequest {
    let mut tools = tools(&["look"]).unwrap();
    tools.host_tools[0].input_schema = Some(pb::JsonSchema { schema });
    pb::ExecuteTurnRequest { tools: Some(tools), ..turn("s", MODEL, "Hello") }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nested_too_deep_is_refused() {
    let (_database, replica) = Replica::alone(Options::default()).await;
    let rpc = "contextd.v1.TurnService/ExecuteTurn";
    for levels in [200, 5_000] {
        // The tool, with the schema as field 3 and in it the Struct as field 2.
        let tool = [tagged(1, b"look"), tagged(3, &tagged(2, &nested(levels)))].concat();
        let request = pb::ExecuteTurnRequest { tools: None, ..turn("s", MODEL, "Hello") };
        let request = [request.encode_to_vec(), tagged(TOOLS, &tagged(1, &tool))].concat();
        let refused = raw::call(replica.channel().await, rpc, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{levels}: {refused}");
    }
    for levels in [200, 100_000] {
        let json = format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let request = with_schema(Some(json_schema::Schema::Json(json)));
        let refused = replica.turns().await.execute_turn(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{levels}: {refused}");
    }
    let mut sessions = replica.sessions().await;
    let list = sessions.list_sessions(pb::ListSessionsRequest::default());
    list.await.unwrap();
}

//! Uploads: content is returned unchanged, stored once, verified, and only available when it is complete.

use std::time::Duration;

use contextd::{
    config::BlobsConfig,
    model::{BlobId, TenantId, derive},
    pb::{self, blob_service_client::BlobServiceClient, put_blob_request::Data},
};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{Code, Status, transport::Channel};

use crate::harness::{
    Options, Replica, TestDatabase, as_worker,
    errors::{Refusal, refusal},
    host::until,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn header(change: impl FnOnce(&mut pb::BlobHeader)) -> pb::PutBlobRequest {
    let mut header = pb::BlobHeader { media_type: "application/x-test".to_owned(), ..pb::BlobHeader::default() };
    change(&mut header);
    pb::PutBlobRequest { data: Some(Data::Header(header)) }
}

fn chunk(bytes: &[u8]) -> pb::PutBlobRequest {
    pb::PutBlobRequest { data: Some(Data::Chunk(bytes.to_vec())) }
}

/// Content whose chunks all differ.
fn content(size: usize) -> Vec<u8> {
    (0..size as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The messages of an upload in chunks of this size.
fn upload(header: pb::PutBlobRequest, content: &[u8], size: usize) -> Vec<pb::PutBlobRequest> {
    std::iter::once(header).chain(content.chunks(size).map(chunk)).collect()
}

/// Stores content through clients of the published API.
struct Uploader {
    database: TestDatabase,
    replica: Replica,
    blobs: BlobServiceClient<Channel>,
}

impl Uploader {
    async fn new(options: Options) -> Self {
        let (database, replica) = Replica::alone(options).await;
        let blobs = BlobServiceClient::new(replica.channel().await);
        Self { database, replica, blobs }
    }

    async fn put(&self, messages: Vec<pb::PutBlobRequest>) -> Result<pb::Blob, Status> {
        let answer = self.blobs.clone().put_blob(tokio_stream::iter(messages)).await?;
        Ok(answer.into_inner().blob.unwrap())
    }

    async fn refused(&self, messages: Vec<pb::PutBlobRequest>) -> Refusal {
        let refused = refusal(&self.put(messages).await.unwrap_err());
        self.nothing_is_left().await;
        refused
    }

    async fn read(&self, id: &str, offset_bytes: usize, length_bytes: usize) -> (pb::Blob, Vec<u8>) {
        let offset_bytes = offset_bytes as i64;
        let length_bytes = length_bytes as i64;
        self.replica.blob(pb::GetBlobRequest { blob_id: id.to_owned(), offset_bytes, length_bytes }).await
    }

    /// The number of rows of blobs and of blob chunks.
    async fn rows(&self) -> (i64, i64) {
        let client = self.database.client().await;
        let counts = "select (select count(*) from blobs), (select count(*) from blob_chunks)";
        let row = client.query_one(counts, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }

    async fn nothing_is_left(&self) {
        assert_eq!(self.rows().await, (0, 0));
    }
}

fn wrong(fields: &[(&str, &str)]) -> Refusal {
    Refusal {
        code: Code::InvalidArgument,
        reason: "INVALID_REQUEST".to_owned(),
        metadata: [].into(),
        fields: fields.iter().map(|(field, reason)| ((*field).to_owned(), (*reason).to_owned())).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_any_size_round_trips() {
    let uploader = Uploader::new(Options::default()).await;
    let sizes = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB - 1, MIB, MIB + 1, 5 * MIB + 7];
    for (size, chunks) in sizes.into_iter().zip([MIB, 1, MIB, 1000, 64 * KIB, MIB, MIB, 100_000, MIB]) {
        let content = content(size);
        let said = header(|it| (it.size_bytes, it.sha256) = (size as i64, sha256(&content)));
        let blob = uploader.put(upload(said, &content, chunks)).await.unwrap();
        assert_eq!((blob.blob_id.clone(), blob.size_bytes), (sha256(&content), size as i64), "{size}");
        assert_eq!(blob.media_type, "application/x-test");
        let (read, bytes) = uploader.read(&blob.blob_id, 0, 0).await;
        assert_eq!(read, blob);
        assert!(bytes == content, "{size} bytes changed on the way");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_range_is_exact_and_one_outside_is_refused() {
    let uploader = Uploader::new(Options::default()).await;
    let content = content(3 * MIB + 5);
    let id = uploader.put(upload(header(|_| ()), &content, MIB)).await.unwrap().blob_id;
    let size = content.len();
    let piece = 64 * KIB;
    let ranges = [
        (0, 1),
        (piece - 1, 2),
        (piece, piece),
        (piece + 1, 2 * MIB),
        (MIB - 3, 7),
        (size - 1, 1),
        (size - 1, 0),
        (size, 0),
        (0, size),
    ];
    for (offset, length) in ranges {
        let end = if length == 0 { size } else { offset + length };
        let (blob, bytes) = uploader.read(&id, offset, length).await;
        assert_eq!(blob.size_bytes, size as i64, "the description is of the whole");
        assert!(bytes == content[offset..end], "{offset} {length}");
    }
    let size = size as i64;
    let outside = [
        (size + 1, 0, "offset_bytes"),
        (i64::MAX, i64::MAX, "offset_bytes"),
        (-1, 0, "offset_bytes"),
        (0, size + 1, "length_bytes"),
        (size, 1, "length_bytes"),
        (1, i64::MAX, "length_bytes"),
        (0, -1, "length_bytes"),
    ];
    for (offset_bytes, length_bytes, field) in outside {
        let request = pb::GetBlobRequest { blob_id: id.clone(), offset_bytes, length_bytes };
        let status = uploader.blobs.clone().get_blob(request).await.unwrap_err();
        assert_eq!(refusal(&status), wrong(&[(field, "OUT_OF_RANGE")]), "{offset_bytes} {length_bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_content_is_stored_once() {
    let uploader = Uploader::new(Options::default()).await;
    let content = content(2 * MIB);
    let first = uploader.put(upload(header(|_| ()), &content, MIB)).await.unwrap();
    let stored = uploader.rows().await;
    assert_eq!(stored, (1, 32));
    let other = header(|it| it.media_type = "text/plain".to_owned());
    assert_eq!(uploader.put(upload(other, &content, 1000)).await.unwrap(), first, "as it was stored first");
    assert_eq!(uploader.rows().await, stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_uploads_of_the_same_content_at_once_on_two_replicas_are_one_blob() {
    let uploader = Uploader::new(Options::default()).await;
    let other = Replica::start(&uploader.database, Options::default()).await;
    for round in 0..10 {
        let mut content = content(MIB + 3);
        content[0] = round;
        let messages = upload(header(|_| ()), &content, 300_000);
        let mut beside = BlobServiceClient::new(other.channel().await);
        let (here, there) =
            tokio::join!(uploader.put(messages.clone()), beside.put_blob(tokio_stream::iter(messages.clone())));
        let here = here.unwrap();
        let there = there.unwrap().into_inner().blob.unwrap();
        assert_eq!(here, there);
        let chunks = 17 * (i64::from(round) + 1);
        assert_eq!(uploader.rows().await, (i64::from(round) + 1, chunks), "round {round}");
        assert!(uploader.read(&here.blob_id, 0, 0).await.1 == content, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_not_what_its_header_says_is_not_stored() {
    let uploader = Uploader::new(Options::default()).await;
    let content = content(MIB + 1);
    let put = |change: &dyn Fn(&mut pb::BlobHeader)| upload(header(change), &content, MIB);
    let size = (MIB + 1) as i64;
    for said in [size - 1, size + 1, 1] {
        let refused = uploader.refused(put(&|it| it.size_bytes = said)).await;
        assert_eq!(refused, wrong(&[("header.size_bytes", "CONFLICT")]));
    }
    let refused = uploader.refused(put(&|it| it.sha256 = "0".repeat(64))).await;
    assert_eq!(refused, wrong(&[("header.sha256", "CONFLICT")]));
    let refused = uploader.refused(put(&|it| (it.size_bytes, it.sha256) = (1, "0".repeat(64)))).await;
    assert_eq!(refused, wrong(&[("header.size_bytes", "CONFLICT"), ("header.sha256", "CONFLICT")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_upload_is_refused_as_early_as_possible() {
    let blobs = BlobsConfig { max_bytes: 2 * MIB as u64, ..Options::default().blobs };
    let uploader = Uploader::new(Options { blobs, ..Options::default() }).await;
    let too_large = Refusal {
        code: Code::ResourceExhausted,
        reason: "REQUEST_TOO_LARGE".to_owned(),
        metadata: [("limit_bytes".to_owned(), (2 * MIB).to_string())].into(),
        fields: Vec::new(),
    };
    assert_eq!(uploader.refused(upload(header(|_| ()), &content(2 * MIB + 1), MIB)).await, too_large);
    let said = header(|it| it.size_bytes = 2 * MIB as i64 + 1);
    let (messages, stream) = mpsc::channel(1);
    messages.send(said).await.unwrap();
    let status = uploader.blobs.clone().put_blob(ReceiverStream::new(stream)).await.unwrap_err();
    assert_eq!(refusal(&status), too_large, "before any chunk came");
    uploader.put(upload(header(|_| ()), &content(2 * MIB), MIB)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_a_header_and_then_chunks() {
    let uploader = Uploader::new(Options::default()).await;
    let nothing = || pb::PutBlobRequest { data: None };
    let large = vec![0; MIB + 1];
    let rows = [
        (vec![], wrong(&[("header", "REQUIRED")])),
        (vec![nothing()], wrong(&[("header", "REQUIRED")])),
        (vec![chunk(b"a"), header(|_| ())], wrong(&[("header", "REQUIRED")])),
        (vec![header(|_| ()), chunk(b"a"), header(|_| ())], wrong(&[("header", "CONFLICT")])),
        (vec![header(|_| ()), nothing()], wrong(&[("chunk", "REQUIRED")])),
        (vec![header(|_| ()), chunk(&content(MIB)), chunk(&large)], wrong(&[("chunk", "TOO_LARGE")])),
    ];
    for (messages, expected) in rows {
        let what = format!("{} messages", messages.len());
        assert_eq!(uploader.refused(messages).await, expected, "{what}");
    }
    let pieces = vec![header(|_| ()), chunk(b"a"), chunk(b""), chunk(b"b")];
    let blob = uploader.put(pieces).await.unwrap();
    assert_eq!(uploader.read(&blob.blob_id, 0, 0).await.1, b"ab");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_request_id_is_bound_to_its_header_and_content() {
    let uploader = Uploader::new(Options::default()).await;
    let named =
        |media_type: &str| header(|it| (it.request_id, it.media_type) = ("r".to_owned(), media_type.to_owned()));
    let first = uploader.put(upload(named("text/plain"), b"hello", 5)).await.unwrap();
    assert_eq!(uploader.put(upload(named("text/plain"), b"hello", 1)).await.unwrap(), first, "in other chunks");
    let before = uploader.rows().await;
    for messages in [upload(named("text/plain"), b"hallo", 5), upload(named("text/html"), b"hello", 5)] {
        let expected = Refusal {
            code: Code::InvalidArgument,
            reason: "IDEMPOTENCY_MISMATCH".to_owned(),
            metadata: [("request_id".to_owned(), "r".to_owned())].into(),
            fields: vec![("header.request_id".to_owned(), "CONFLICT".to_owned())],
        };
        assert_eq!(refusal(&uploader.put(messages).await.unwrap_err()), expected);
        assert_eq!(uploader.rows().await, before);
    }
}

/// Starts an upload, of which one batch is written, and leaves it open.
async fn half_an_upload(
    uploader: &Uploader,
) -> (mpsc::Sender<pb::PutBlobRequest>, tokio::task::JoinHandle<Result<pb::Blob, Status>>) {
    let (messages, stream) = mpsc::channel(4);
    let mut blobs = uploader.blobs.clone();
    let call =
        tokio::spawn(async move { Ok(blobs.put_blob(ReceiverStream::new(stream)).await?.into_inner().blob.unwrap()) });
    for message in upload(header(|_| ()), &content(MIB + 1), MIB) {
        messages.send(message).await.unwrap();
    }
    until("the first batch", || async { uploader.rows().await.1 >= 16 }).await;
    (messages, call)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_dropped_leaves_nothing() {
    let uploader = Uploader::new(Options::default()).await;
    for _ in 0..20 {
        let (_messages, call) = half_an_upload(&uploader).await;
        assert_eq!(uploader.rows().await.0, 0, "nobody sees what is not complete");
        call.abort();
        until("the chunks to go", || async { uploader.rows().await.1 == 0 }).await;
        assert_eq!(uploader.rows().await.0, 0, "what broke off was taken for the whole");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_connection_is_lost_leaves_nothing() {
    let uploader = Uploader::new(Options::default()).await;
    let (_messages, call) = half_an_upload(&uploader).await;
    let Uploader { database, replica, blobs } = uploader;
    call.abort();
    drop(blobs);
    let uploader = Uploader { blobs: BlobServiceClient::new(replica.channel().await), database, replica };
    until("the chunks to go", || async { uploader.rows().await == (0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_or_slow_upload_is_aborted() {
    let usual = Options::default().blobs;
    let short = Duration::from_millis(300);
    let long = Duration::from_secs(600);
    for (upload_idle_timeout, upload_timeout) in [(short, long), (long, short)] {
        let blobs = BlobsConfig { upload_idle_timeout, upload_timeout, ..usual };
        let uploader = Uploader::new(Options { blobs, ..Options::default() }).await;
        let (messages, stream) = mpsc::channel(1);
        messages.send(header(|_| ())).await.unwrap();
        let status = uploader.blobs.clone().put_blob(ReceiverStream::new(stream)).await.unwrap_err();
        assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"));
        until("the chunks to go", || async { uploader.rows().await == (0, 0) }).await;
    }
}

/// Row I11
#[tokio::test(flavor = "multi_thread")]
async fn uploads_over_the_limit_are_refused_with_a_retry_delay() {
    let blobs = BlobsConfig { max_uploads: 1, ..Options::default().blobs };
    let uploader = Uploader::new(Options { blobs, ..Options::default() }).await;
    let (messages, call) = half_an_upload(&uploader).await;
    let status = uploader.put(upload(header(|_| ()), b"hello", 5)).await.unwrap_err();
    assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::Unavailable, "OVERLOADED"));
    drop(messages);
    let blob = call.await.unwrap().unwrap();
    assert_eq!(blob.size_bytes, MIB as i64 + 1);
    uploader.put(upload(header(|_| ()), b"hello", 5)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_refuses_new_uploads_and_aborts_running_ones() {
    let uploader = Uploader::new(Options::default()).await;
    let (_messages, call) = half_an_upload(&uploader).await;
    as_worker(uploader.replica.engine.drain(Duration::from_secs(30))).await;
    let status = call.await.unwrap().unwrap_err();
    assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::Unavailable, "DRAINING"));
    uploader.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_a_dead_replica_are_swept_and_nothing_else() {
    let uploader = Uploader::new(Options { workers: false, ..Options::default() }).await;
    let kept = uploader.put(upload(header(|_| ()), b"hello", 5)).await.unwrap();
    let store = uploader.replica.engine.store();
    let ours = TenantId::new("default");
    let theirs = TenantId::new("another");
    let begun = |ago: Duration| {
        let now = uuid::Uuid::now_v7().get_timestamp().unwrap().to_unix();
        let then = uuid::Timestamp::from_unix(uuid::NoContext, now.0 - ago.as_secs(), now.1);
        derive::upload(uuid::Uuid::new_v7(then))
    };
    let old = begun(Duration::from_hours(25));
    let older = begun(Duration::from_hours(999));
    let fresh = begun(Duration::from_hours(23));
    for (tenant, upload) in [(&ours, &old), (&theirs, &older), (&ours, &fresh), (&theirs, &fresh)] {
        as_worker(store.write_upload(tenant, upload, 0, &[b"left", b"behind"])).await.unwrap();
    }
    as_worker(uploader.replica.engine.sessions.sweep_uploads()).await.unwrap();
    let client = uploader.database.client().await;
    let left = client.query("select blob_id from blob_chunks order by tenant_id, blob_id, idx", &[]).await.unwrap();
    let left: Vec<BlobId> = left.iter().map(|row| BlobId::new(row.get::<_, String>(0))).collect();
    assert_eq!(left, [fresh.clone(), fresh.clone(), BlobId::new(kept.blob_id), fresh.clone(), fresh]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_all_of_a_large_blob() {
    let uploader = Uploader::new(Options::default()).await;
    let content = content(4 * MIB);
    let id = uploader.put(upload(header(|_| ()), &content, MIB)).await.unwrap().blob_id;
    let request = pb::GetBlobRequest { blob_id: id, ..pb::GetBlobRequest::default() };
    let stream = uploader.blobs.clone().get_blob(request).await.unwrap().into_inner();
    let mut read = Vec::new();
    let mut pieces = std::pin::pin!(stream.throttle(Duration::from_millis(5)));
    while let Some(piece) = pieces.next().await {
        if let Some(pb::get_blob_response::Data::Chunk(bytes)) = piece.unwrap().data {
            read.extend(bytes);
        }
    }
    assert!(read == content);
}

//! The server: all services on one listener.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;

use super::{
    admin::{Admin, Limits},
    admission::{Admission, Capacity},
    blob::Blobs,
    call::Calls,
    connection,
    context::Contexts,
    deadline::Deadlines,
    decode::LARGEST_CHUNK,
    gate::Gate,
    guard::Guard,
    model::Models,
    queue::Queue,
    request_body::{self, MOST_HEALTH_BYTES, RequestBodies},
    session::Sessions,
    stream::Waiting,
    tls::Tls,
    turn::Turns,
    whole_body::WholeBodies,
    wire_errors::WireErrors,
};
use crate::{
    auth::Auth,
    pb::{
        DESCRIPTOR_SET, admin_service_server::AdminServiceServer,
        blob_service_server::BlobServiceServer, context_service_server::ContextServiceServer,
        model_service_server::ModelServiceServer, queue_service_server::QueueServiceServer,
        session_service_server::SessionServiceServer, turn_service_server::TurnServiceServer,
    },
    turn::Engine,
};

/// Bytes of one answer; pages and events stay far below.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of a request to reflection.
const MOST_REFLECTION_BYTES: usize = 4 * 1024;
/// What a message has on top of its chunk, in bytes.
const CHUNK_FRAME: usize = 1024;

/// The server's bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of requests that are being read.
    pub requests: request_body::Bounds,
    /// Bytes of a blob.
    pub max_blob_bytes: u64,
    /// Of connections.
    pub connections: connection::Bounds,
    /// Of what a client may do on one of them.
    pub http2: Http2,
    /// Of requests and streams.
    pub capacity: Capacity,
    /// What may wait for a reader.
    pub reader: Waiting,
    /// Whether reflection is served.
    pub reflection: bool,
}

/// What a client may do on one connection.
#[derive(Debug, Clone, Copy)]
pub struct Http2 {
    /// RPCs at once.
    pub max_concurrent_streams: u32,
    /// Bytes of the headers of a request, unpacked.
    pub max_header_bytes: u32,
    /// Requests that it cancelled before the server saw them.
    pub max_pending_resets: usize,
    /// Requests that the server had to end because the client's frames were wrong.
    pub max_error_resets: usize,
    /// How often a silent connection is asked whether it lives.
    pub keepalive_interval: Duration,
    /// How long it may take to answer.
    pub keepalive_timeout: Duration,
}

/// A health service and what sets it, that reports NOT_SERVING until it is set to something else.
pub fn health() -> (
    HealthReporter,
    tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health>,
) {
    tonic_health::server::health_reporter()
}

/// Who may come in, and how.
#[derive(Debug)]
pub struct Entrance {
    /// What is answered while the server is not ready.
    pub gate: Gate,
    /// Who callers are.
    pub auth: Arc<Auth>,
    /// TLS. `None`: plain text.
    pub tls: Option<Arc<Tls>>,
}

/// Serves what the gate lets through until `stop` comes, and then until the RPCs that run have
/// ended.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    health: tonic_health::pb::health_server::HealthServer<
        impl tonic_health::pb::health_server::Health,
    >,
    entrance: Entrance,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let metrics = engine.metrics().clone();
    let calls = Calls::new(metrics.clone(), engine.traces().clone());
    let read = bounds.requests.max_bytes;
    let write = MAX_RESPONSE_BYTES;
    let Entrance { gate, auth, tls } = entrance;
    let is_shared = auth.is_required();
    let admission = Admission::new(Arc::clone(&engine), bounds.capacity, is_shared);
    let limits = Limits {
        max_request_bytes: read,
        max_blob_bytes: bounds.max_blob_bytes,
    };
    let admin = AdminServiceServer::new(Admin::new(Arc::clone(&auth), Arc::clone(&engine), limits));
    let sessions = SessionServiceServer::new(Sessions::new(Arc::clone(&engine)));
    let blobs = BlobServiceServer::new(Blobs::new(Arc::clone(&engine)));
    let models = ModelServiceServer::new(Models::new(Arc::clone(&engine)));
    let queue = QueueServiceServer::new(Queue::new(Arc::clone(&engine)));
    let contexts = ContextServiceServer::new(Contexts::new(Arc::clone(&engine)));
    let turns = TurnServiceServer::new(Turns::new(engine, bounds.reader));
    let router = bounds
        .http2
        .server()
        .layer(calls)
        .layer(gate)
        .layer(Deadlines)
        .layer(Guard::new(Arc::clone(&auth)))
        .layer(admission)
        .layer(RequestBodies::new(bounds.requests, is_shared))
        .layer(WholeBodies)
        .layer(WireErrors {
            max_request_bytes: read,
        })
        .add_service(health.max_decoding_message_size(MOST_HEALTH_BYTES))
        .add_service(admin.max_decoding_message_size(read))
        .add_service(
            sessions
                .max_decoding_message_size(read)
                .max_encoding_message_size(write),
        )
        .add_service(
            turns
                .max_decoding_message_size(read)
                .max_encoding_message_size(write),
        )
        .add_service(
            queue
                .max_decoding_message_size(read)
                .max_encoding_message_size(write),
        )
        .add_service(
            contexts
                .max_decoding_message_size(read)
                .max_encoding_message_size(write),
        )
        .add_service(blobs.max_decoding_message_size(read.max(LARGEST_CHUNK + CHUNK_FRAME)))
        .add_service(
            models
                .max_decoding_message_size(read)
                .max_encoding_message_size(write),
        );
    let router = if bounds.reflection {
        let v1 = described().build_v1()?;
        let v1alpha = described().build_v1alpha()?;
        router
            .add_service(v1.max_decoding_message_size(MOST_REFLECTION_BYTES))
            .add_service(v1alpha.max_decoding_message_size(MOST_REFLECTION_BYTES))
    } else {
        router
    };
    let incoming = connection::accept(listener, tls, bounds.connections, metrics);
    router.serve_with_incoming_shutdown(incoming, stop).await?;
    Ok(())
}

impl Http2 {
    fn server(&self) -> Server {
        Server::builder()
            .max_concurrent_streams(self.max_concurrent_streams)
            .http2_max_header_list_size(self.max_header_bytes)
            .http2_max_pending_accept_reset_streams(Some(self.max_pending_resets))
            .http2_max_local_error_reset_streams(Some(self.max_error_resets))
            .http2_keepalive_interval(Some(self.keepalive_interval))
            .http2_keepalive_timeout(Some(self.keepalive_timeout))
    }
}

/// What reflection knows.
fn described() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The details of errors, which clients such as grpcurl cannot show otherwise.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

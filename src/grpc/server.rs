//! The gRPC server: all services on one listener, with their middleware.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;

use super::{
    admin::{Admin, Limits},
    admission::{Admission, Capacity},
    blob::Blobs,
    body_end::BodyEndLayer,
    call::CallLogLayer,
    connection,
    context::Contexts,
    deadline::DeadlineLayer,
    decode::MAX_CHUNK_BYTES,
    gate::Gate,
    guard::Guard,
    model::Models,
    queue::Queue,
    request_body::{self, MAX_HEALTH_REQUEST_BYTES, RequestBodyLayer},
    session::Sessions,
    stream::ReaderLimits,
    tls::Tls,
    turn::Turns,
    wire_errors::WireErrorLayer,
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

/// Maximum size of a response in bytes. Pages and events stay far below it.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size in bytes of a request to reflection.
const MAX_REFLECTION_REQUEST_BYTES: usize = 4 * 1024;
/// Bytes that an upload message adds to its chunk.
const CHUNK_OVERHEAD_BYTES: usize = 1024;

/// The limits of the server.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Limits for reading requests.
    pub requests: request_body::Bounds,
    /// Maximum size of a blob.
    pub max_blob_bytes: u64,
    pub connections: connection::Bounds,
    /// Limits for a client on one connection.
    pub http2: Http2,
    /// Limits of concurrent requests and streams.
    pub capacity: Capacity,
    /// Limits of what may be buffered for a reader.
    pub reader: ReaderLimits,
    /// Whether reflection is served.
    pub reflection: bool,
}

/// What a client may do on one connection.
#[derive(Debug, Clone, Copy)]
pub struct Http2 {
    /// Maximum number of concurrent RPCs.
    pub max_concurrent_streams: u32,
    /// Maximum size of the headers of a request, uncompressed.
    pub max_header_bytes: u32,
    /// Maximum number of requests that the client has reset and the server has not accepted yet.
    pub max_pending_resets: usize,
    /// Maximum number of requests that the server reset because of protocol errors of the client.
    pub max_error_resets: usize,
    /// How often an idle connection is probed with a PING.
    pub keepalive_interval: Duration,
    /// How long the client may take to acknowledge the PING.
    pub keepalive_timeout: Duration,
}

/// Creates the health service and its reporter. It reports NOT_SERVING until the reporter is set.
pub fn health() -> (
    HealthReporter,
    tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health>,
) {
    tonic_health::server::health_reporter()
}

/// Access to the server: readiness, authentication and TLS.
#[derive(Debug)]
pub struct ServerAccess {
    /// Rejects requests while the server is not ready.
    pub gate: Gate,
    /// Authenticates callers.
    pub auth: Arc<Auth>,
    /// TLS. `None` for plain text.
    pub tls: Option<Arc<Tls>>,
}

/// Serves until `stop` resolves, and then until all running RPCs have ended.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    health: tonic_health::pb::health_server::HealthServer<
        impl tonic_health::pb::health_server::Health,
    >,
    entrance: ServerAccess,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let metrics = engine.metrics().clone();
    let calls = CallLogLayer::new(metrics.clone(), engine.traces().clone());
    let read = bounds.requests.max_bytes;
    let write = MAX_RESPONSE_BYTES;
    let ServerAccess { gate, auth, tls } = entrance;
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
        .layer(DeadlineLayer)
        .layer(Guard::new(Arc::clone(&auth)))
        .layer(admission)
        .layer(RequestBodyLayer::new(bounds.requests, is_shared))
        .layer(BodyEndLayer)
        .layer(WireErrorLayer {
            max_request_bytes: read,
        })
        .add_service(health.max_decoding_message_size(MAX_HEALTH_REQUEST_BYTES))
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
        .add_service(
            blobs.max_decoding_message_size(read.max(MAX_CHUNK_BYTES + CHUNK_OVERHEAD_BYTES)),
        )
        .add_service(
            models
                .max_decoding_message_size(read)
                .max_encoding_message_size(write),
        );
    let router = if bounds.reflection {
        let v1 = reflection_builder().build_v1()?;
        let v1alpha = reflection_builder().build_v1alpha()?;
        router
            .add_service(v1.max_decoding_message_size(MAX_REFLECTION_REQUEST_BYTES))
            .add_service(v1alpha.max_decoding_message_size(MAX_REFLECTION_REQUEST_BYTES))
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

/// The descriptors that reflection serves.
fn reflection_builder() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The types of error details, which clients such as grpcurl cannot show otherwise.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

//! The gRPC server: all services on one listener, with their middleware.

use std::{future::Future, sync::Arc};

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;

use super::{
    admin::Admin,
    admission::Admission,
    blob::Blobs,
    body_end::BodyEndWatch,
    call::CallLog,
    connection,
    context::Contexts,
    deadline::Deadline,
    decode::MAX_CHUNK_BYTES,
    gate::Gate,
    guard::Guard,
    middleware::With,
    model::Models,
    queue::Queue,
    request_body::{MAX_HEALTH_REQUEST_BYTES, RequestBodies},
    session::Sessions,
    tls::Tls,
    turn::Turns,
    wire_errors::WireErrors,
};
use crate::{
    auth::Auth,
    config::{Config, ServerConfig},
    pb::{
        DESCRIPTOR_SET, admin_service_server::AdminServiceServer, blob_service_server::BlobServiceServer,
        context_service_server::ContextServiceServer, model_service_server::ModelServiceServer,
        queue_service_server::QueueServiceServer, session_service_server::SessionServiceServer,
        turn_service_server::TurnServiceServer,
    },
    turn::Engine,
};

/// Maximum size of a response in bytes. Pages and events stay far below it.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size in bytes of a request to reflection.
const MAX_REFLECTION_REQUEST_BYTES: usize = 4 * 1024;
/// Bytes that an upload message adds to its chunk.
const CHUNK_OVERHEAD_BYTES: usize = 1024;

/// Creates the health service and its reporter. It reports NOT_SERVING until the reporter is set.
pub fn health()
-> (HealthReporter, tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health>) {
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
    health: tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health>,
    entrance: ServerAccess,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let metrics = engine.metrics().clone();
    let calls = CallLog::new(metrics.clone(), engine.traces().clone());
    let read = config.server.max_request_bytes;
    let write = MAX_RESPONSE_BYTES;
    let ServerAccess { gate, auth, tls } = entrance;
    let admission = Admission::new(Arc::clone(&engine), config);
    let bodies = RequestBodies::new(config.server, config.auth.is_shared());
    let admin = AdminServiceServer::new(Admin::new(Arc::clone(&auth), Arc::clone(&engine), read));
    let sessions = SessionServiceServer::new(Sessions::new(Arc::clone(&engine)));
    let blobs = BlobServiceServer::new(Blobs::new(Arc::clone(&engine)));
    let models = ModelServiceServer::new(Models::new(Arc::clone(&engine)));
    let queue = QueueServiceServer::new(Queue::new(Arc::clone(&engine)));
    let contexts = ContextServiceServer::new(Contexts::new(Arc::clone(&engine)));
    let turns = TurnServiceServer::new(Turns::new(engine, config.stream));
    let router = server(&config.server)
        .layer(With(calls))
        .layer(With(gate))
        .layer(With(Deadline))
        .layer(With(Guard::new(Arc::clone(&auth))))
        .layer(With(admission))
        .layer(With(bodies))
        .layer(With(BodyEndWatch))
        .layer(With(WireErrors { max_request_bytes: read }))
        .add_service(health.max_decoding_message_size(MAX_HEALTH_REQUEST_BYTES))
        .add_service(admin.max_decoding_message_size(read))
        .add_service(sessions.max_decoding_message_size(read).max_encoding_message_size(write))
        .add_service(turns.max_decoding_message_size(read).max_encoding_message_size(write))
        .add_service(queue.max_decoding_message_size(read).max_encoding_message_size(write))
        .add_service(contexts.max_decoding_message_size(read).max_encoding_message_size(write))
        .add_service(blobs.max_decoding_message_size(read.max(MAX_CHUNK_BYTES + CHUNK_OVERHEAD_BYTES)))
        .add_service(models.max_decoding_message_size(read).max_encoding_message_size(write));
    let router = if config.server.reflection {
        let v1 = reflection_builder().build_v1()?;
        let v1alpha = reflection_builder().build_v1alpha()?;
        router
            .add_service(v1.max_decoding_message_size(MAX_REFLECTION_REQUEST_BYTES))
            .add_service(v1alpha.max_decoding_message_size(MAX_REFLECTION_REQUEST_BYTES))
    } else {
        router
    };
    let incoming = connection::accept(listener, tls, config.server, metrics);
    router.serve_with_incoming_shutdown(incoming, stop).await?;
    Ok(())
}

/// A server with the limits of what a client may do on one connection.
fn server(config: &ServerConfig) -> Server {
    Server::builder()
        .max_concurrent_streams(config.max_concurrent_streams)
        .http2_max_header_list_size(config.max_header_bytes)
        .http2_max_pending_accept_reset_streams(Some(config.max_pending_resets))
        .http2_max_local_error_reset_streams(Some(config.max_error_resets))
        .http2_keepalive_interval(Some(config.keepalive_interval))
        .http2_keepalive_timeout(Some(config.keepalive_timeout))
}

/// The descriptors that reflection serves.
fn reflection_builder() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The types of error details, which clients such as grpcurl cannot show otherwise.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

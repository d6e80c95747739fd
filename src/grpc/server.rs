//! The server: all services on one listener.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tonic::transport::{Server, server::TcpIncoming};
use tonic_health::server::HealthReporter;

use super::{
    blob::Blobs, context::Contexts, deadline::Deadlines, decode::LARGEST_CHUNK, gate::Gate,
    model::Models, queue::Queue, session::Sessions, stream::Waiting, turn::Turns,
    whole_body::WholeBodies, wire_errors::WireErrors,
};
use crate::{
    pb::{
        DESCRIPTOR_SET, blob_service_server::BlobServiceServer,
        context_service_server::ContextServiceServer, model_service_server::ModelServiceServer,
        queue_service_server::QueueServiceServer, session_service_server::SessionServiceServer,
        turn_service_server::TurnServiceServer,
    },
    turn::Engine,
};

/// Bytes of one answer; pages and events stay far below.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// What a message has on top of its chunk, in bytes.
const CHUNK_FRAME: usize = 1024;
/// How often a silent connection is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The server's bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of a request.
    pub max_request_bytes: usize,
    /// RPCs at once on one connection.
    pub max_concurrent_streams: u32,
    /// What may wait for a reader.
    pub reader: Waiting,
    /// Whether reflection is served.
    pub reflection: bool,
}

/// A health service and what sets it, that reports NOT_SERVING until it is set to something else.
pub fn health() -> (
    HealthReporter,
    tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health>,
) {
    tonic_health::server::health_reporter()
}

/// Serves what the gate lets through until `stop` comes, and then until the RPCs that run have
/// ended.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    health: tonic_health::pb::health_server::HealthServer<
        impl tonic_health::pb::health_server::Health,
    >,
    gate: Gate,
    bounds: Bounds,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let read = bounds.max_request_bytes;
    let write = MAX_RESPONSE_BYTES;
    let sessions = SessionServiceServer::new(Sessions::new(Arc::clone(&engine)));
    let blobs = BlobServiceServer::new(Blobs::new(Arc::clone(&engine)));
    let models = ModelServiceServer::new(Models::new(Arc::clone(&engine)));
    let queue = QueueServiceServer::new(Queue::new(Arc::clone(&engine)));
    let contexts = ContextServiceServer::new(Contexts::new(Arc::clone(&engine)));
    let turns = TurnServiceServer::new(Turns::new(engine, bounds.reader));
    let router = Server::builder()
        .tcp_nodelay(true)
        .max_concurrent_streams(bounds.max_concurrent_streams)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(gate)
        .layer(Deadlines)
        .layer(WholeBodies)
        .layer(WireErrors {
            max_request_bytes: bounds.max_request_bytes,
        })
        .add_service(health)
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
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                // The details of errors, which clients such as grpcurl cannot show otherwise.
                .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        };
        router
            .add_service(described().build_v1()?)
            .add_service(described().build_v1alpha()?)
    } else {
        router
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    router.serve_with_incoming_shutdown(incoming, stop).await?;
    Ok(())
}

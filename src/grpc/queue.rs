//! QueueService: what users send while the agent works. Not implemented yet: every call says so.

use tonic::{Request, Response, Status};

use super::status::not_implemented_rpc;
use crate::pb::{self, queue_service_server::QueueService};

/// QueueService as far as it is built: not at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Queue;

#[tonic::async_trait]
impl QueueService for Queue {
    async fn enqueue_message(
        &self,
        _: Request<pb::EnqueueMessageRequest>,
    ) -> Result<Response<pb::EnqueueMessageResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.QueueService/EnqueueMessage"))
    }

    async fn list_queued_messages(
        &self,
        _: Request<pb::ListQueuedMessagesRequest>,
    ) -> Result<Response<pb::ListQueuedMessagesResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.QueueService/ListQueuedMessages"))
    }

    async fn cancel_queued_message(
        &self,
        _: Request<pb::CancelQueuedMessageRequest>,
    ) -> Result<Response<pb::CancelQueuedMessageResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.QueueService/CancelQueuedMessage"))
    }

    async fn clear_queue(&self, _: Request<pb::ClearQueueRequest>) -> Result<Response<pb::ClearQueueResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.QueueService/ClearQueue"))
    }
}

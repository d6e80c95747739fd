//! ModelService: the models of the configured providers. Not implemented yet: every call says so.

use tonic::{Request, Response, Status};

use super::status::not_implemented_rpc;
use crate::pb::{self, model_service_server::ModelService};

/// ModelService as far as it is built: not at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Models;

#[tonic::async_trait]
impl ModelService for Models {
    async fn list_models(&self, _: Request<pb::ListModelsRequest>) -> Result<Response<pb::ListModelsResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ModelService/ListModels"))
    }

    async fn get_model(&self, _: Request<pb::GetModelRequest>) -> Result<Response<pb::GetModelResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ModelService/GetModel"))
    }
}

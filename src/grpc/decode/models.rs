//! Decodes the requests about models.

use super::{Findings, PageRequest, page, text};
use crate::{
    grpc::violations::RequestError,
    pb::{self, rpc},
};

/// A validated request of ListModels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListModels {
    /// Return only models of this provider. `None` means all.
    pub provider: Option<String>,
    pub page: PageRequest,
}

/// Decodes a ListModelsRequest.
pub fn list_models(mut request: pb::ListModelsRequest) -> Result<ListModels, RequestError> {
    let found = Findings::check(rpc::LIST_MODELS, &mut request);
    let pb::ListModelsRequest { page_size, page_token, provider } = request;
    let page = page::page(page_size, page_token);
    found.finish(ListModels { provider: text::non_empty(provider), page })
}

/// Decodes a GetModelRequest to a model reference or an alias.
pub fn get_model(mut request: pb::GetModelRequest) -> Result<String, RequestError> {
    let found = Findings::check(rpc::GET_MODEL, &mut request);
    let pb::GetModelRequest { model } = request;
    found.finish(model)
}

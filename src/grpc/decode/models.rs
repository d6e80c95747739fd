//! Decodes the requests about models.

use super::{
    Findings, PageRequest, Path, config, page,
    text::{self, MaxLength},
};
use crate::{grpc::violations::RequestError, pb};

pub const LIST_MODELS: &str = "contextd.v1.ModelService/ListModels";
pub const GET_MODEL: &str = "contextd.v1.ModelService/GetModel";

/// Maximum length of a provider's name, in characters.
const MAX_PROVIDER_LENGTH: MaxLength = MaxLength::Chars(128);

/// A validated request of ListModels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListModels {
    /// Return only models of this provider. `None` means all.
    pub provider: Option<String>,
    pub page: PageRequest,
}

/// Decodes a ListModelsRequest.
pub fn list_models(request: pb::ListModelsRequest) -> Result<ListModels, RequestError> {
    let mut found = Findings::of(LIST_MODELS);
    let pb::ListModelsRequest {
        page_size,
        page_token,
        provider,
    } = request;
    let provider = text::single_line(
        Path::to("provider"),
        provider,
        MAX_PROVIDER_LENGTH,
        &mut found,
    );
    let page = page::page(page_size, page_token, &mut found);
    found.finish(ListModels {
        provider: (!provider.is_empty()).then_some(provider),
        page,
    })
}

/// Decodes a GetModelRequest to a model reference or an alias.
pub fn get_model(request: pb::GetModelRequest) -> Result<String, RequestError> {
    let mut found = Findings::of(GET_MODEL);
    let pb::GetModelRequest { model } = request;
    if model.is_empty() {
        found.required(Path::to("model"));
    }
    let model = config::model(Path::to("model"), model, &mut found);
    found.finish(model)
}

//! The requests for models.

use super::{
    Findings, PageRequest, Path, config, page,
    text::{self, AtMost},
};
use crate::{grpc::violations::Refused, pb};

/// Name of the RPC.
pub const LIST_MODELS: &str = "contextd.v1.ModelService/ListModels";
/// Name of the RPC.
pub const GET_MODEL: &str = "contextd.v1.ModelService/GetModel";

/// Most characters of a provider's name.
const LONGEST_PROVIDER: AtMost = AtMost::Chars(128);

/// Which models to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListModels {
    /// Only those of this provider. `None` means all.
    pub provider: Option<String>,
    /// How many, and from where.
    pub page: PageRequest,
}

/// Reads a ListModelsRequest.
pub fn list_models(request: pb::ListModelsRequest) -> Result<ListModels, Refused> {
    let mut found = Findings::of(LIST_MODELS);
    let pb::ListModelsRequest {
        page_size,
        page_token,
        provider,
    } = request;
    let provider = text::line(Path::to("provider"), provider, LONGEST_PROVIDER, &mut found);
    let page = page::page(page_size, page_token, &mut found);
    found.finish(ListModels {
        provider: (!provider.is_empty()).then_some(provider),
        page,
    })
}

/// Reads a GetModelRequest: a reference or an alias.
pub fn get_model(request: pb::GetModelRequest) -> Result<String, Refused> {
    let mut found = Findings::of(GET_MODEL);
    let pb::GetModelRequest { model } = request;
    if model.is_empty() {
        found.required(Path::to("model"));
    }
    let model = config::model(Path::to("model"), model, &mut found);
    found.finish(model)
}

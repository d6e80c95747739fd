//! What the providers of all protocols hold: the client of the service, and what is known about its
//! models.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderMap;
use jiff::Timestamp;

use super::{
    Error, ModelInfo, RefreshFuture,
    discovery::Family,
    http::{Client, Settings, SetupError},
    model_facts::Catalog,
    model_names::ModelNames,
    refused_media::RefusedMedia,
};
use crate::model::{DeclaredModel, Media, Role};

/// Status of a service that does not have the path.
const NOT_FOUND: u16 = 404;

/// A provider's connection to its service.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) models: Catalog,
    pub(super) refused: RefusedMedia,
}

impl Connection {
    /// Creates the connection with the models that the operator configured.
    pub(super) fn new(
        name: &str,
        settings: Settings,
        declared: BTreeMap<String, DeclaredModel>,
        names: ModelNames,
    ) -> Result<Self, SetupError> {
        let client = Client::new(name, settings)?;
        let models = Catalog::new(client.host(), declared).checked(names)?;
        Ok(Self { client, models, refused: RefusedMedia::default() })
    }

    /// The facts about a model.
    pub(super) fn info(&self, model: &str) -> ModelInfo {
        let known = self.models.model(model);
        known.unwrap_or_else(|| ModelInfo::unknown(model))
    }

    /// Refreshes the model list of a service that has one.
    pub(super) fn refresh(&self, family: Option<Family>, now: Timestamp, interval: Duration) -> RefreshFuture {
        let listing = self.models.listing();
        match family {
            Some(family) => listing.refresh(&self.client, family, now, interval),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Why the model cannot take a media part that its protocol can send. Returns `None` if it can.
    pub(super) fn unsupported_media(&self, model: &ModelInfo, media: &Media, role: Role) -> Option<String> {
        let refused = || self.refused.reason(&model.name, media);
        model.unsupported_media(media, role).or_else(refused)
    }

    /// Requests a token count, which the response has under `field`. `is_optional`: a service may
    /// lack the path, which gives `None`.
    pub(super) async fn count(
        &self,
        path: &str,
        (headers, body): (HeaderMap, Vec<u8>),
        field: &str,
        is_optional: bool,
    ) -> Result<Option<u32>, Error> {
        match self.client.post_json(path, &headers, body).await {
            Ok(answer) => {
                let tokens = self.client.parse_token_count(answer[field].as_u64());
                tokens.map(Some)
            }
            Err(error) if is_optional && error.status == NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }
}

//! Stores JSON that is too large for a response as a blob, which the response references.

use tonic::Status;

use crate::{
    model::{TenantId, derive},
    pb,
    turn::Engine,
};

/// The media type of these blobs.
const JSON: &str = "application/json";

/// Stores the JSON as a blob, which is readable when this returns.
pub(super) async fn keep(engine: &Engine, tenant: &TenantId, json: &[u8]) -> Result<pb::Blob, Status> {
    let id = derive::blob(json);
    engine.store().keep_blob(tenant, &id, JSON, json).await?;
    Ok(pb::Blob {
        blob_id: id.into_string(),
        media_type: JSON.to_owned(),
        size_bytes: i64::try_from(json.len()).unwrap_or(i64::MAX),
        create_time: None,
    })
}

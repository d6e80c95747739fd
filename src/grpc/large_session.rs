//! Encodes sessions for responses, and moves the large fields of a session that does not fit into a blob.

use prost::Message as _;
use tonic::Status;

use super::{
    encode::{self, Detail},
    json_blob,
};
use crate::{
    codec,
    model::TenantId,
    pb,
    store::{self, session::Session},
    turn::Engine,
};

/// Maximum size in bytes of a session within a response.
const MAX_SESSION_BYTES: usize = 2 * 1024 * 1024;

/// Encodes a session with its configuration. Large fields are stored as a blob before this returns.
pub(super) async fn to_pb(engine: &Engine, tenant: &TenantId, session: Session) -> Result<pb::Session, Status> {
    let mut shown = encode::session(session, Detail::Full);
    if let Some(large) = take_large(&mut shown) {
        let json = codec::json::encode(&large, "contextd.v1.Session").map_err(store::Error::from)?;
        drop(large);
        shown.configuration_blob = Some(json_blob::keep(engine, tenant, &json).await?);
    }
    Ok(shown)
}

/// Moves the fields that may be large out of a session over the limit, into a session that has only these.
/// The other fields are limited to far less than a response.
fn take_large(session: &mut pb::Session) -> Option<pb::Session> {
    (session.encoded_len() > MAX_SESSION_BYTES).then(|| pb::Session {
        system_prompt: std::mem::take(&mut session.system_prompt),
        pinned_blocks: std::mem::take(&mut session.pinned_blocks),
        tools: session.tools.take(),
        ..pb::Session::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_beyond_the_limit_loses_its_large_fields_and_no_others() {
        let session = |prompt: usize| pb::Session {
            session_id: "s".to_owned(),
            model: "main/m".to_owned(),
            system_prompt: "x".repeat(prompt),
            pinned_blocks: vec![pb::PinnedBlock::default()],
            tools: Some(pb::ToolSet::default()),
            ..pb::Session::default()
        };
        let rest = session(0).encoded_len();
        // The field's tag and its length take four bytes.
        let mut fits = session(MAX_SESSION_BYTES - rest - 4);
        assert_eq!(fits.encoded_len(), MAX_SESSION_BYTES);
        assert_eq!(take_large(&mut fits), None);
        let mut large = session(MAX_SESSION_BYTES - rest - 3);
        let taken = take_large(&mut large).expect("too large");
        assert_eq!(
            large,
            pb::Session { session_id: "s".to_owned(), model: "main/m".to_owned(), ..pb::Session::default() }
        );
        assert_eq!((taken.system_prompt.len(), taken.pinned_blocks.len()), (MAX_SESSION_BYTES - rest - 3, 1));
        assert!(taken.tools.is_some() && taken.session_id.is_empty());
    }
}

//! Decodes UpdateSession and DeleteSession.

use prost_types::FieldMask;

use super::{
    Findings, Path, config,
    hash::{idempotency, request_hash},
    text,
};
use crate::{
    codec::mask::{self, WrongPath},
    grpc::violations::RequestError,
    model::{
        SessionId,
        command::{ConfigChange, DeleteSession, UpdateSession},
    },
    pb::{self, FieldReason, rpc},
};

/// Maximum number of paths in a field mask.
const MAX_PATHS: usize = 256;

/// Decodes an UpdateSessionRequest. All fields that are set are checked, in the mask or not.
pub fn update_session(mut request: pb::UpdateSessionRequest) -> Result<UpdateSession, RequestError> {
    let is_partial = config::is_partial(request.session.as_ref());
    // Output-only elsewhere, a precondition here.
    let etag = request.session.as_ref().map_or(String::new(), |session| session.etag.clone());
    let mut found = Findings::check(rpc::UPDATE_SESSION, &mut request);
    if let Some(session) = &mut request.session {
        if is_partial {
            let mask = request.update_mask.as_ref();
            let listed = mask.map_or(&[][..], |mask| &mask.paths);
            config::check_large_fields(Path::to("session"), session, Some(listed), &mut found);
        }
        session.etag.clone_from(&etag);
    }
    let hash = request_hash(rpc::UPDATE_SESSION, &request);
    let pb::UpdateSessionRequest { session, update_mask, request_id } = request;
    let at = Path::to("session");
    let mut session = session.unwrap_or_default();
    let session_id = std::mem::take(&mut session.session_id);
    let etag = std::mem::take(&mut session.etag);
    if session_id.is_empty() {
        found.required(at.field("session_id"));
    }
    let update = UpdateSession {
        session: SessionId::new(session_id),
        etag: text::non_empty(etag),
        change: ConfigChange {
            paths: paths(Path::to("update_mask"), update_mask, &session, &mut found),
            values: config::draft(at, session, &mut found).config,
        },
        idempotency: idempotency(request_id, hash),
    };
    found.finish(update)
}

/// Decodes a DeleteSessionRequest.
pub fn delete_session(mut request: pb::DeleteSessionRequest) -> Result<DeleteSession, RequestError> {
    let found = Findings::check(rpc::DELETE_SESSION, &mut request);
    let hash = request_hash(rpc::DELETE_SESSION, &request);
    let pb::DeleteSessionRequest { session_id, etag, request_id } = request;
    let delete = DeleteSession {
        session: SessionId::new(session_id),
        etag: text::non_empty(etag),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(delete)
}

/// The fields in the mask. Without a mask, the fields that are set.
fn paths(at: Path<'_>, update_mask: Option<FieldMask>, session: &pb::Session, found: &mut Findings) -> Vec<String> {
    let FieldMask { paths } = update_mask.unwrap_or_default();
    if paths.is_empty() {
        return found.converted(at, mask::set_paths(session));
    }
    let at = at.field("paths");
    if paths.len() > MAX_PATHS {
        found.invalid(at, FieldReason::TooLarge, format!("must have at most {MAX_PATHS} elements"));
        return Vec::new();
    }
    for (i, path) in paths.iter().enumerate() {
        check_path(at.index(i), path, found);
    }
    paths
}

fn check_path(at: Path<'_>, path: &str, found: &mut Findings) {
    match mask::check(path) {
        Ok(()) => {}
        Err(WrongPath::Unknown) if path.is_empty() => found.required(at),
        Err(WrongPath::Unknown) => {
            let expected = "must be a field of the session's configuration; lists and maps are replaced as a whole";
            found.invalid(at, FieldReason::Unknown, expected);
        }
        Err(WrongPath::NotConfiguration) => {
            found.invalid(at, FieldReason::Unsupported, "is not part of the session's configuration");
        }
    }
}

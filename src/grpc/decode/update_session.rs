//! Decodes UpdateSession and DeleteSession.

use prost_types::FieldMask;

use super::{
    Findings, Path, config,
    hash::{idempotency, request_hash},
    id, ignored,
};
use crate::{
    codec::mask::{self, WrongPath},
    grpc::violations::RequestError,
    model::command::{ConfigChange, DeleteSession, UpdateSession},
    pb::{self, FieldReason},
};

pub const UPDATE_SESSION: &str = "contextd.v1.SessionService/UpdateSession";
pub const DELETE_SESSION: &str = "contextd.v1.SessionService/DeleteSession";

/// Maximum number of paths in a field mask.
const MAX_PATHS: usize = 256;

/// Decodes an UpdateSessionRequest. All fields that are set are checked, in the mask or not.
pub fn update_session(
    mut request: pb::UpdateSessionRequest,
) -> Result<UpdateSession, RequestError> {
    let mut found = Findings::of(UPDATE_SESSION);
    if let Some(session) = &request.session {
        let listed = request
            .update_mask
            .as_ref()
            .map(|mask| mask.paths.as_slice());
        config::check_large_fields(
            Path::to("session"),
            session,
            Some(listed.unwrap_or_default()),
            &mut found,
        );
    }
    request.session.iter_mut().for_each(clear_all_but_etag);
    let hash = request_hash(UPDATE_SESSION, &request);
    let pb::UpdateSessionRequest {
        session,
        update_mask,
        request_id,
    } = request;
    let at = Path::to("session");
    let mut session = session.unwrap_or_default();
    let session_id = std::mem::take(&mut session.session_id);
    let etag = std::mem::take(&mut session.etag);
    let update = UpdateSession {
        session: id::session(at.field("session_id"), session_id, &mut found),
        etag: non_empty(etag),
        change: ConfigChange {
            paths: paths(Path::to("update_mask"), update_mask, &session, &mut found),
            values: config::draft(at, session, &mut found).config,
        },
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(update)
}

/// Decodes a DeleteSessionRequest.
pub fn delete_session(request: pb::DeleteSessionRequest) -> Result<DeleteSession, RequestError> {
    let mut found = Findings::of(DELETE_SESSION);
    let hash = request_hash(DELETE_SESSION, &request);
    let pb::DeleteSessionRequest {
        session_id,
        etag,
        request_id,
    } = request;
    let delete = DeleteSession {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        etag: non_empty(etag),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(delete)
}

/// Clears the output-only fields except the etag, which is a precondition here.
fn clear_all_but_etag(session: &mut pb::Session) {
    let etag = std::mem::take(&mut session.etag);
    ignored::clear_session(session);
    session.etag = etag;
}

fn non_empty(etag: String) -> Option<String> {
    Some(etag).filter(|etag| !etag.is_empty())
}

/// The fields in the mask. Without a mask, the fields that are set.
fn paths(
    at: Path<'_>,
    update_mask: Option<FieldMask>,
    session: &pb::Session,
    found: &mut Findings,
) -> Vec<String> {
    let FieldMask { paths } = update_mask.unwrap_or_default();
    if paths.is_empty() {
        return found.converted(at, mask::set_paths(session));
    }
    let at = at.field("paths");
    if paths.len() > MAX_PATHS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_PATHS} elements"),
        );
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
            found.invalid(
                at,
                FieldReason::Unsupported,
                "is not part of the session's configuration",
            );
        }
    }
}

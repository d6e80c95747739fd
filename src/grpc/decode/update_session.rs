//! Decodes UpdateSession.

use prost_types::FieldMask;

use super::{Decode, Findings, Path, config, text};
use crate::{
    codec::{
        DecodeError,
        mask::{self, WrongPath},
    },
    model::{
        SessionId,
        command::{ConfigChange, UpdateSession},
    },
    pb::{self, FieldReason, limits::Limited as _},
};

/// Maximum number of paths in a field mask.
const MAX_PATHS: usize = 256;

/// All fields that are set are checked, in the mask or not.
impl Decode for pb::UpdateSessionRequest {
    type Command = UpdateSession;

    fn clear_server_fields(&mut self, found: &mut Findings) {
        let listed = self.update_mask.as_ref().map_or(&[][..], |mask| &mask.paths);
        config::check_large_fields(self.session.as_ref(), Some(listed), found);
        // Output-only elsewhere, a precondition here.
        let etag = self.session.as_mut().map(|session| std::mem::take(&mut session.etag));
        self.clear_output_only();
        if let Some(session) = &mut self.session {
            session.etag = etag.unwrap_or_default();
        }
    }

    fn read(self, found: &mut Findings) -> Result<UpdateSession, DecodeError> {
        let Self { session, update_mask, request_id } = self;
        let at = Path::to("session");
        let mut session = session.unwrap_or_default();
        let session_id = std::mem::take(&mut session.session_id);
        let etag = std::mem::take(&mut session.etag);
        if session_id.is_empty() {
            found.required(at.field("session_id"));
        }
        Ok(UpdateSession {
            session: SessionId::new(session_id),
            etag: text::non_empty(etag),
            change: ConfigChange {
                paths: paths(Path::to("update_mask"), update_mask, &session, found),
                values: config::draft(at, session, found).config,
            },
            idempotency: found.idempotency(request_id),
        })
    }
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

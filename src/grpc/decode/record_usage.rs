//! Decodes RecordUsage.

use super::{Decode, Findings, Path, number, response, text};
use crate::{
    codec::DecodeError,
    model::{MessageId, SessionId, UsagePurpose, command::RecordUsage},
    pb,
};

impl Decode for pb::RecordUsageRequest {
    type Command = RecordUsage;

    fn read(self, found: &mut Findings) -> Result<RecordUsage, DecodeError> {
        let Self { session_id, request_id, model, usage, purpose, message_id, context_version } = self;
        Ok(RecordUsage {
            session: SessionId::new(session_id),
            idempotency: found.idempotency(request_id),
            model: text::non_empty(model),
            usage: usage.and_then(|it| response::usage(Path::to("usage"), it, found)).unwrap_or_default(),
            purpose: number::choice_or(purpose, UsagePurpose::Turn),
            message: text::non_empty(message_id).map(MessageId::new),
            version: number::large_count(context_version),
        })
    }
}

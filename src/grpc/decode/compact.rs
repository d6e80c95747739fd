//! Decodes Compact.

use super::{Decode, Findings, Path, hash::request_hash, number, policy, text};
use crate::{
    codec::{DecodeError, field::Field},
    model::{
        SessionId,
        command::Compact,
        compaction::{CompactionOverrides, InstructionsMode},
    },
    pb::{self, Rpc as _},
};

impl Decode for pb::CompactRequest {
    type Command = Compact;

    fn hash(&mut self) -> String {
        request_hash(Self::NAME, &Self { wait: false, ..self.clone() })
    }

    fn read(self, found: &mut Findings) -> Result<Compact, DecodeError> {
        let Self {
            session_id,
            request_id,
            strategy,
            target_tokens,
            instructions,
            instructions_mode,
            summary_model,
            wait,
            validate_only,
        } = self;
        let strategy = found.converted(Path::to("strategy"), Field::from_field("strategy", strategy));
        let mode = found.converted(
            Path::to("instructions_mode"),
            Option::<InstructionsMode>::from_field("instructions_mode", instructions_mode),
        );
        policy::check_summary_model(Path::to("summary_model"), &summary_model, found);
        let summary_model = text::non_empty(summary_model);
        Ok(Compact {
            session: SessionId::new(session_id),
            overrides: CompactionOverrides { strategy, summary_model, ..CompactionOverrides::default() },
            instructions: (instructions, mode.unwrap_or_default()),
            target: number::count(target_tokens),
            wait,
            dry_run: validate_only,
            idempotency: found.idempotency(request_id),
        })
    }
}

//! Decodes WatchEvents.

use super::{Decode, Findings, StreamOptions, stream, text};
use crate::{
    codec::DecodeError,
    model::{Seq, SessionId, TurnId, command::Watch},
    pb,
};

impl Decode for pb::WatchEventsRequest {
    type Command = (Watch, StreamOptions);

    fn read(self, _: &mut Findings) -> Result<(Watch, StreamOptions), DecodeError> {
        let Self { session_id, turn_id, after_seq, follow, stream } = self;
        let (session, turn) = (SessionId::new(session_id), text::non_empty(turn_id).map(TurnId::new));
        Ok((Watch { session, turn, after: Seq(after_seq), follow }, stream::options(stream)))
    }
}

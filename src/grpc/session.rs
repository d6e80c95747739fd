//! SessionService: manages sessions and reads and appends their messages.

use std::sync::Arc;

use tonic::Status;

use super::{
    decode::{DecodedAppend, ExportMessages, ListMessages, ListSessions},
    encode::{self, Detail},
    export,
    handler::service,
    large_session,
    page_budget::READ_BYTES,
    page_token::BadToken,
    pager::Pager,
    preview::fit_message,
    status,
};
use crate::{
    codec::{self, field::Field as _},
    model::{
        Principal, Seq, SessionId, SessionKey,
        command::{CreateSession, DeleteSession, ForkSession, UpdateSession},
    },
    pb::{self, session_service_server::SessionService},
    store::message::{Page, PlacedMessage},
    turn::{Engine, Error},
};

/// Messages per database read. A page takes as many reads as it needs.
const MESSAGES_PER_READ: u32 = 16;

/// SessionService on top of an engine.
#[derive(Debug, Clone)]
pub struct Sessions {
    engine: Arc<Engine>,
}

service! {
    SessionService for Sessions {
        create_session: CreateSessionRequest,
        get_session: GetSessionRequest,
        list_sessions: ListSessionsRequest,
        update_session: UpdateSessionRequest,
        delete_session: DeleteSessionRequest,
        fork_session: ForkSessionRequest,
        append_messages: AppendMessagesRequest,
        list_messages: ListMessagesRequest,
        export_messages: ExportMessagesRequest,
    }
}

impl Sessions {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn create_session(
        &self,
        caller: Principal,
        command: CreateSession,
    ) -> Result<pb::CreateSessionResponse, Status> {
        let session = self.engine.sessions.create_session(caller.tenant.clone(), command).await?;
        let session = Some(large_session::to_pb(&self.engine, &caller.tenant, session).await?);
        Ok(pb::CreateSessionResponse { session })
    }

    async fn get_session(&self, caller: Principal, session: SessionId) -> Result<pb::GetSessionResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        let session = self.engine.prompts.session(&key).await?;
        let session = Some(large_session::to_pb(&self.engine, &key.tenant, session).await?);
        Ok(pb::GetSessionResponse { session })
    }

    async fn list_sessions(
        &self,
        Principal { tenant, .. }: Principal,
        ListSessions { filter, page }: ListSessions,
    ) -> Result<pb::ListSessionsResponse, Status> {
        let chosen = format!("{tenant}{}", filter.fingerprint());
        let mut page: Pager<String, _> = Pager::new("ListSessions", chosen, page)?;
        // One read per page: what is shown of a session may be much smaller than what is read.
        if let Some(most) = page.next_read(u32::MAX) {
            let after = page.position.as_deref().map(session_position).transpose()?;
            let read = self.engine.store().sessions(&tenant, &filter, after.as_ref(), most, READ_BYTES).await?;
            for session in page.take(read.items, read.more) {
                let place = format!("{}/{}", session.updated_at, session.id);
                if !page.push(place, encode::session(session, Detail::Brief)) {
                    break;
                }
            }
        }
        let (sessions, next_page_token) = page.finish();
        Ok(pb::ListSessionsResponse { sessions, next_page_token })
    }

    async fn update_session(
        &self,
        caller: Principal,
        command: UpdateSession,
    ) -> Result<pb::UpdateSessionResponse, Status> {
        let session = self.engine.sessions.update_session(caller.tenant.clone(), command).await?;
        let session = Some(large_session::to_pb(&self.engine, &caller.tenant, session).await?);
        Ok(pb::UpdateSessionResponse { session })
    }

    async fn delete_session(
        &self,
        caller: Principal,
        command: DeleteSession,
    ) -> Result<pb::DeleteSessionResponse, Status> {
        self.engine.sessions.delete_session(caller.tenant, command).await?;
        Ok(pb::DeleteSessionResponse {})
    }

    async fn fork_session(&self, caller: Principal, command: ForkSession) -> Result<pb::ForkSessionResponse, Status> {
        let session = self.engine.sessions.fork(caller.tenant.clone(), command).await?;
        let session = Some(large_session::to_pb(&self.engine, &caller.tenant, session).await?);
        Ok(pb::ForkSessionResponse { session })
    }

    async fn append_messages(
        &self,
        caller: Principal,
        DecodedAppend { command, message_paths }: DecodedAppend,
    ) -> Result<pb::AppendMessagesResponse, Status> {
        let receipt = match self.engine.sessions.append_messages(caller.tenant, command).await {
            Err(Error::Misfit(flaws)) => {
                return Err(status::append_rejected(&flaws, &message_paths));
            }
            receipt => receipt?,
        };
        Ok(pb::AppendMessagesResponse {
            message_ids: receipt.messages.to_field(),
            context_version: receipt.version,
            context_tokens: receipt.size.to_field(),
        })
    }

    async fn list_messages(
        &self,
        caller: Principal,
        ListMessages { session, view, at: seq, newest_first, page }: ListMessages,
    ) -> Result<pb::ListMessagesResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        self.check_at_seq(&key, seq).await?;
        let name = format!("{view:?}").to_lowercase();
        let filter = format!("{}/{}/{name}/{newest_first}/{}", key.tenant, key.session, seq.unwrap_or_default());
        let mut page: Pager<i64, _> = Pager::new("ListMessages", filter, page)?;
        while let Some(most) = page.next_read(MESSAGES_PER_READ) {
            let place = if newest_first {
                Page::Before(Seq(page.position.unwrap_or(i64::MAX)))
            } else {
                Page::After(Seq(page.position.unwrap_or_default()))
            };
            let read = self.engine.store().messages_within(&key, view, seq, place, (most, READ_BYTES)).await?;
            for PlacedMessage { place, message } in page.take(read.items, read.more) {
                let mut shown = codec::message::to_pb(&message, &key.session);
                fit_message(&self.engine, &key, &mut shown).await?;
                if !page.push(place.0, shown) {
                    break;
                }
            }
        }
        let (messages, next_page_token) = page.finish();
        Ok(pb::ListMessagesResponse { messages, next_page_token })
    }

    async fn export_messages(
        &self,
        caller: Principal,
        wanted: ExportMessages,
    ) -> Result<pb::ExportMessagesResponse, Status> {
        let key = SessionKey::new(caller.tenant, wanted.session.clone());
        self.check_at_seq(&key, wanted.at).await?;
        export::page(&self.engine, &key, wanted).await
    }

    /// Checks that the session exists, and has reached the seq.
    async fn check_at_seq(&self, key: &SessionKey, at: Option<Seq>) -> Result<(), Error> {
        let session = self.engine.prompts.session(key).await?;
        if at.is_some_and(|at| at > session.last_seq) {
            return Err(Error::AtSeqAhead { last: session.last_seq });
        }
        Ok(())
    }
}

/// Parses the position of a session in the list of sessions.
fn session_position(text: &str) -> Result<(jiff::Timestamp, SessionId), BadToken> {
    let (at, id) = text.split_once('/').ok_or(BadToken)?;
    Ok((at.parse().map_err(|_| BadToken)?, SessionId::new(id)))
}

//! SessionService: manages sessions and reads and appends their messages.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{
    caller::tenant,
    decode::{self, MessageView},
    encode::{self, Detail},
    export, large_session,
    page_budget::{PageBudget, READ_BYTES},
    page_token,
    preview::fit_message,
    status,
};
use crate::{
    codec::{self, field::Field as _},
    model::{Seq, SessionId, SessionKey, TenantId},
    pb::{self, session_service_server::SessionService},
    store::message::{Page, PlacedMessage, View},
    turn::{Engine, Error},
};

/// Messages per database read. A page takes as many reads as it needs.
const MESSAGES_PER_READ: u32 = 16;

/// SessionService on top of an engine.
#[derive(Debug, Clone)]
pub struct Sessions {
    engine: Arc<Engine>,
}

impl Sessions {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn sessions_page(
        &self,
        tenant: TenantId,
        wanted: decode::ListSessions,
    ) -> Result<pb::ListSessionsResponse, Status> {
        const LIST: &str = "ListSessions";
        let decode::ListSessions { filter, page } = wanted;
        let decode::PageRequest { size, token } = page;
        let chosen = format!("{tenant}{}", filter.fingerprint());
        let after = match token {
            Some(token) => Some(session_position(&page_token::decode(&token, LIST, &chosen)?)?),
            None => None,
        };
        let mut read = self.engine.store().sessions(&tenant, &filter, after.as_ref(), size + 1, READ_BYTES).await?;
        read.truncate(size as usize);
        let mut more = read.more;
        let mut last = String::new();
        let mut room = PageBudget::default();
        let mut sessions = Vec::with_capacity(read.items.len());
        for session in read.items {
            let place = format!("{}/{}", session.updated_at, session.id);
            let shown = encode::session(session, Detail::Brief);
            if !room.try_reserve(shown.encoded_len()) {
                more = true;
                break;
            }
            last = place;
            sessions.push(shown);
        }
        let next_page_token = page_token::next(more, LIST, &chosen, &last);
        Ok(pb::ListSessionsResponse { sessions, next_page_token })
    }

    async fn messages_page(
        &self,
        key: &SessionKey,
        wanted: decode::ListMessages,
    ) -> Result<pb::ListMessagesResponse, Status> {
        const LIST: &str = "ListMessages";
        let decode::ListMessages { session: _, view, at: seq, newest_first, page: decode::PageRequest { size, token } } =
            wanted;
        let (view, name) = match view {
            MessageView::All => (View::All, "all"),
            MessageView::Live => (View::Live, "live"),
        };
        let filter = format!("{}/{}/{name}/{newest_first}/{}", key.tenant, key.session, seq.unwrap_or_default());
        let start = if newest_first { Seq(i64::MAX) } else { Seq(0) };
        let mut at = match token {
            Some(token) => page_token::position(&page_token::decode(&token, LIST, &filter)?)?,
            None => start,
        };
        let mut messages = Vec::new();
        let mut room = PageBudget::default();
        let batch = MESSAGES_PER_READ.min(size.saturating_add(1));
        let more = 'page: loop {
            let page = if newest_first { Page::Before(at) } else { Page::After(at) };
            let read = self.engine.store().messages_within(key, view, seq, page, (batch, READ_BYTES)).await?;
            for PlacedMessage { place, message } in read.items {
                let mut shown = codec::message::to_pb(&message, &key.session);
                fit_message(&self.engine, key, &mut shown).await?;
                if messages.len() == size as usize || !room.try_reserve(shown.encoded_len()) {
                    break 'page true;
                }
                at = place;
                messages.push(shown);
            }
            if !read.more {
                break false;
            }
        };
        let next_page_token = page_token::next(more, LIST, &filter, &at.to_string());
        Ok(pb::ListMessagesResponse { messages, next_page_token })
    }
}

#[tonic::async_trait]
impl SessionService for Sessions {
    async fn create_session(
        &self,
        request: Request<pb::CreateSessionRequest>,
    ) -> Result<Response<pb::CreateSessionResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::create_session(request.into_inner())?;
        let session = self.engine.sessions.create_session(tenant.clone(), command).await?;
        Ok(Response::new(pb::CreateSessionResponse {
            session: Some(large_session::to_pb(&self.engine, &tenant, session).await?),
        }))
    }

    async fn get_session(
        &self,
        request: Request<pb::GetSessionRequest>,
    ) -> Result<Response<pb::GetSessionResponse>, Status> {
        let tenant = tenant(&request)?;
        let key = SessionKey::new(tenant, decode::get_session(request.into_inner())?);
        let session = self.engine.prompts.session(&key).await?;
        Ok(Response::new(pb::GetSessionResponse {
            session: Some(large_session::to_pb(&self.engine, &key.tenant, session).await?),
        }))
    }

    async fn list_sessions(
        &self,
        request: Request<pb::ListSessionsRequest>,
    ) -> Result<Response<pb::ListSessionsResponse>, Status> {
        let tenant = tenant(&request)?;
        let wanted = decode::list_sessions(request.into_inner())?;
        Ok(Response::new(self.sessions_page(tenant, wanted).await?))
    }

    async fn update_session(
        &self,
        request: Request<pb::UpdateSessionRequest>,
    ) -> Result<Response<pb::UpdateSessionResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::update_session(request.into_inner())?;
        let session = self.engine.sessions.update_session(tenant.clone(), command).await?;
        Ok(Response::new(pb::UpdateSessionResponse {
            session: Some(large_session::to_pb(&self.engine, &tenant, session).await?),
        }))
    }

    async fn delete_session(
        &self,
        request: Request<pb::DeleteSessionRequest>,
    ) -> Result<Response<pb::DeleteSessionResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::delete_session(request.into_inner())?;
        self.engine.sessions.delete_session(tenant, command).await?;
        Ok(Response::new(pb::DeleteSessionResponse {}))
    }

    async fn fork_session(
        &self,
        request: Request<pb::ForkSessionRequest>,
    ) -> Result<Response<pb::ForkSessionResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::fork_session(request.into_inner())?;
        let session = self.engine.sessions.fork(tenant.clone(), command).await?;
        Ok(Response::new(pb::ForkSessionResponse {
            session: Some(large_session::to_pb(&self.engine, &tenant, session).await?),
        }))
    }

    async fn append_messages(
        &self,
        request: Request<pb::AppendMessagesRequest>,
    ) -> Result<Response<pb::AppendMessagesResponse>, Status> {
        let tenant = tenant(&request)?;
        let request = request.into_inner();
        let stored = self.engine.prompts.stored(&tenant, &decode::blobs_in_messages(&request.messages)).await?;
        let prefix = format!("call_{}_", Uuid::now_v7().simple());
        let decode::DecodedAppend { command, message_paths } = decode::append_messages(request, stored, &prefix)?;
        let receipt = match self.engine.sessions.append_messages(tenant, command).await {
            Err(Error::Misfit(flaws)) => {
                return Err(status::append_rejected(&flaws, &message_paths));
            }
            receipt => receipt?,
        };
        Ok(Response::new(pb::AppendMessagesResponse {
            message_ids: receipt.messages.into_iter().map(|message| message.into_string()).collect(),
            context_version: receipt.version,
            context_tokens: receipt.size.to_field(),
        }))
    }

    async fn list_messages(
        &self,
        request: Request<pb::ListMessagesRequest>,
    ) -> Result<Response<pb::ListMessagesResponse>, Status> {
        let tenant = tenant(&request)?;
        let wanted = decode::list_messages(request.into_inner())?;
        let key = SessionKey::new(tenant, wanted.session.clone());
        let session = self.engine.prompts.session(&key).await?;
        if wanted.at.is_some_and(|at| at > session.last_seq) {
            return Err(Error::AtSeqAhead { last: session.last_seq }.into());
        }
        Ok(Response::new(self.messages_page(&key, wanted).await?))
    }

    async fn export_messages(
        &self,
        request: Request<pb::ExportMessagesRequest>,
    ) -> Result<Response<pb::ExportMessagesResponse>, Status> {
        let tenant = tenant(&request)?;
        let wanted = decode::export_messages(request.into_inner())?;
        let key = SessionKey::new(tenant, wanted.session.clone());
        let session = self.engine.prompts.session(&key).await?;
        if wanted.at.is_some_and(|at| at > session.last_seq) {
            return Err(Error::AtSeqAhead { last: session.last_seq }.into());
        }
        Ok(Response::new(export::page(&self.engine, &key, wanted).await?))
    }
}

/// Parses the position of a session in the list of sessions.
fn session_position(text: &str) -> Result<(jiff::Timestamp, SessionId), page_token::BadToken> {
    let (at, id) = text.split_once('/').ok_or(page_token::BadToken)?;
    Ok((at.parse().map_err(|_| page_token::BadToken)?, SessionId::new(id)))
}

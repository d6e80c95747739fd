//! The session and the turn that a request names, and the tenant and the key that it manages, for the
//! log.

use tonic::Streaming;

use crate::pb;

/// A request, as far as the log tells which things it is about.
pub(super) trait Names {
    /// The session's id; empty for none.
    fn session(&self) -> &str {
        ""
    }

    /// The turn's id; empty for none.
    fn turn(&self) -> &str {
        ""
    }

    /// The tenant that is managed, which is empty for the caller's own.
    fn managed_tenant(&self) -> Option<&str> {
        None
    }

    /// The id of the API key that is managed; empty for none.
    fn managed_key(&self) -> &str {
        ""
    }
}

impl<T> Names for Streaming<T> {}

macro_rules! none {
    ($($request:ident),+ $(,)?) => {
        $(impl Names for pb::$request {})+
    };
}

macro_rules! session {
    ($($request:ident),+ $(,)?) => {
        $(impl Names for pb::$request {
            fn session(&self) -> &str {
                &self.session_id
            }
        })+
    };
}

macro_rules! session_and_turn {
    ($($request:ident),+ $(,)?) => {
        $(impl Names for pb::$request {
            fn session(&self) -> &str {
                &self.session_id
            }

            fn turn(&self) -> &str {
                &self.turn_id
            }
        })+
    };
}

macro_rules! session_inside {
    ($($request:ident),+ $(,)?) => {
        $(impl Names for pb::$request {
            fn session(&self) -> &str {
                self.session.as_ref().map_or("", |session| &session.session_id)
            }
        })+
    };
}

macro_rules! tenant {
    ($($request:ident),+ $(,)?) => {
        $(impl Names for pb::$request {
            fn managed_tenant(&self) -> Option<&str> {
                Some(&self.tenant_id)
            }
        })+
    };
}

impl Names for pb::RevokeKeyRequest {
    fn managed_tenant(&self) -> Option<&str> {
        Some(&self.tenant_id)
    }

    fn managed_key(&self) -> &str {
        &self.key_id
    }
}

none!(
    GetBlobRequest,
    GetModelRequest,
    GetServerInfoRequest,
    ListModelsRequest,
    ListSessionsRequest,
);
tenant!(
    CreateKeyRequest,
    ListKeysRequest,
    GetTenantLimitsRequest,
    SetTenantLimitsRequest,
    DeleteTenantRequest,
    GetTenantDeletionRequest,
);
session!(
    AppendMessagesRequest,
    CancelQueuedMessageRequest,
    ClearQueueRequest,
    CompactRequest,
    CountTokensRequest,
    DeleteSessionRequest,
    EnqueueMessageRequest,
    ExecuteTurnRequest,
    ExportMessagesRequest,
    ForkSessionRequest,
    GetContextStatsRequest,
    GetSessionRequest,
    ListCompactionsRequest,
    ListMessagesRequest,
    ListQueuedMessagesRequest,
    ListTurnsRequest,
    PrepareContextRequest,
    PruneToolOutputsRequest,
    RecordUsageRequest,
    RenderContextRequest,
    RestoreToolOutputsRequest,
    RevertCompactionRequest,
    SubmitToolResultsRequest,
);
session_and_turn!(
    CancelTurnRequest,
    GetTurnRequest,
    ListEventsRequest,
    WatchEventsRequest,
);
session_inside!(CreateSessionRequest, UpdateSessionRequest);

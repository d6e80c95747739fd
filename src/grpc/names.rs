//! Extracts from requests, for the log, the ids of the session and turn, or of the tenant and API key, that
//! they name.

use tonic::Streaming;

use crate::pb;

/// The ids in a request that the log records.
pub(super) trait Names {
    /// The session id. Empty if there is none.
    fn session(&self) -> &str {
        ""
    }

    /// The turn id. Empty if there is none.
    fn turn(&self) -> &str {
        ""
    }

    /// The tenant that the request manages, empty for the caller's tenant. Returns `None` if it manages none.
    fn managed_tenant(&self) -> Option<&str> {
        None
    }

    /// The id of the API key that the request manages. Empty if there is none.
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

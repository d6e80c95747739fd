//! Idempotency keys: a repeated request gets the result of the first one, and a different request with the same key is
//! refused.

use crate::{
    model::{SessionKey, command::Idempotency},
    store::idempotency::StoredRequest,
    turn::{engine::Prompts, error::Error},
};

impl Prompts {
    /// The result that the same request stored before.
    pub(in crate::turn) async fn stored_result(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<Option<String>, Error> {
        let Some(request) = &idempotency.request else {
            return Ok(None);
        };
        let stored = self.store.stored_request(key, request).await?;
        stored.map(|stored| result_of(stored, idempotency)).transpose()
    }

    /// Stores the result of a request that changed nothing. Returns the result that a concurrent repetition of the
    /// request stored first, if any.
    pub(in crate::turn) async fn store_result(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
        result: &str,
    ) -> Result<Option<String>, Error> {
        if idempotency.request.is_none() {
            return Ok(None);
        }
        let first = self.store.store_request_result(key, idempotency, result).await?;
        first.map(|first| result_of(first, idempotency)).transpose()
    }
}

/// The stored result, if it was stored for this request.
pub(in crate::turn) fn result_of(stored: StoredRequest, idempotency: &Idempotency) -> Result<String, Error> {
    check_same(&stored.hash, idempotency).map(|()| stored.result)
}

/// Refuses a request whose key was first used with a request of another hash.
pub(in crate::turn) fn check_same(first: &str, idempotency: &Idempotency) -> Result<(), Error> {
    if first == idempotency.hash { Ok(()) } else { Err(mismatch(idempotency)) }
}

/// The key of the request was used with a different request.
pub(in crate::turn) fn mismatch(idempotency: &Idempotency) -> Error {
    let missing = || Error::Internal("an idempotency record has no key".to_owned());
    idempotency.request.clone().map_or_else(missing, Error::IdempotencyMismatch)
}

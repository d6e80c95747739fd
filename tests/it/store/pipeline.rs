//! Transactions that are sent in one pipeline are atomic, also if one of their statements cannot be sent.

use super::*;

const READ: &str = "-- store::idempotency::Request::read
    select req_hash, result from idempotency where tenant_id = $1 and session_id = $2 and request_id = $3";
/// The same statement with a number as its last parameter.
const MISTYPED: &str = "-- store::idempotency::Request::read
    select req_hash, result from idempotency where tenant_id = $1 and session_id = $2 and request_id = ($3::int)::text";

#[tokio::test]
async fn a_transaction_with_an_unsendable_statement_does_nothing() {
    let world = World::new().await;
    let key = world.idle("s").await;
    let pool = world.database.pool().rewriting(|statements| {
        assert!(statements.len() == 1 || statements.contains(&READ), "the statement is another one: {statements:?}");
        statements.iter().map(|sql| if *sql == READ { MISTYPED } else { sql }).collect()
    });
    let mistyped = Store::new(pool, "mistyped".to_owned(), LEASE);
    let remembered = mistyped.store_request_result(&key, &request("r"), "7").await;
    assert!(matches!(remembered, Err(contextd::store::Error::Broken(_))), "{remembered:?}");
    assert_eq!(world.store.stored_request(&key, &RequestId::new("r")).await.unwrap(), None);
    let first = world.store.store_request_result(&key, &request("r"), "8").await.unwrap();
    assert_eq!(first.map(|first| first.result), Some("8".to_owned()));
}

//! The memory of contextd: the only SQL.
//!
//! Writes are single statements or pipelined transactions ([`pipeline`]): nothing is awaited between BEGIN and COMMIT, so a
//! caller that goes away leaves no open transaction behind. What decides (leases, deadlines) is the database's clock; ids are
//! the caller's.

pub mod blob;
pub mod error;
pub mod event;
pub mod lease;
pub mod message;
pub mod migrate;
pub mod pipeline;
pub mod pool;
pub mod row;
pub mod rows;
pub mod session;
pub mod tool_call;
pub mod turn;

pub use error::Error;
pub use pool::{Connection, Database, Settings};
pub use rows::{NewMessage, Rows};

use std::time::Duration;

/// The database as one replica uses it.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    replica: String,
    lease: Duration,
}

impl Store {
    /// A store whose leases are taken in the name of `replica` (unique among running processes) for `lease`.
    pub fn new(database: Database, replica: impl Into<String>, lease: Duration) -> Self {
        Self { database, replica: replica.into(), lease }
    }

    /// In whose name leases are taken.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// How long a lease lasts after its last renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Asks the database for a sign of life.
    pub async fn ping(&self) -> Result<(), Error> {
        self.database.read("-- store::ping\nselect 1", &[]).await.map(drop)
    }
}

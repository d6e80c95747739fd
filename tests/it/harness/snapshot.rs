//! Resets a database to an earlier state, as after a failover to a standby that had not received the latest commits.

use tokio_postgres::error::SqlState;

use super::TestDatabase;

/// For each table: its name, and the columns that are written.
const EACH_TABLE: &str = "
    for t, cols in
      select c.table_name, string_agg(quote_ident(c.column_name), ', ' order by c.ordinal_position)
        from information_schema.columns c join pg_tables p on p.schemaname = 'public' and p.tablename = c.table_name
       where c.table_schema = 'public' and c.is_generated = 'NEVER' group by c.table_name
    loop";

/// A copy of all rows.
pub struct Snapshot<'a>(&'a TestDatabase);

impl<'a> Snapshot<'a> {
    /// Copies all rows.
    pub async fn of(database: &'a TestDatabase) -> Self {
        let sql = format!(
            "drop schema if exists snapshot cascade; create schema snapshot;
             do $$ declare t text; cols text; begin {EACH_TABLE}
               execute format('create table snapshot.%1$I as select %2$s from public.%1$I', t, cols);
             end loop; end $$"
        );
        database.client().await.batch_execute(&sql).await.unwrap();
        Self(database)
    }

    /// Restores all rows in one transaction; later commits are lost. A deadlock with a replica's statement is possible;
    /// if PostgreSQL aborts this transaction, it is retried.
    pub async fn restore(&self) {
        let sql = format!(
            "begin; set local session_replication_role = replica;
             do $$ declare t text; cols text; begin
               execute (select 'truncate ' || string_agg(format('public.%I', tablename), ', ') from pg_tables where schemaname = 'public');
               {EACH_TABLE}
               execute format('insert into public.%1$I (%2$s) overriding system value select %2$s from snapshot.%1$I', t, cols);
             end loop; end $$; commit"
        );
        let deadlock = Some(&SqlState::T_R_DEADLOCK_DETECTED);
        for _ in 0..10 {
            match self.0.client().await.batch_execute(&sql).await {
                Err(error) if error.code() == deadlock => {}
                other => return other.unwrap(),
            }
        }
        panic!("a deadlock in each of ten attempts");
    }
}

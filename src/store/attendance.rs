//! Attendance: which turns have clients that read their events. Turns that are cancelled without a reader are in a
//! small table of live turns, which is read as a whole.

use std::time::Duration;

use super::{
    Error, Store,
    key::key_columns,
    pipeline::{Param, Query},
    row::{get, session_key},
};
use crate::model::{SessionKey, TurnId};

/// A turn that is cancelled when it has no reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttendedTurn {
    pub key: SessionKey,
    pub turn: TurnId,
    /// Whether no reader was seen for the turn's patience interval.
    pub overdue: bool,
}

impl Store {
    /// Registers a turn that is cancelled when no client reads its events for `patience`. A turn that is already
    /// registered is unchanged.
    pub async fn register_attended_turn(
        &self,
        key: &SessionKey,
        turn: &TurnId,
        patience: Duration,
    ) -> Result<(), Error> {
        const SQL: &str = "-- store::attendance::attend
            insert into attendance as a (tenant_id, session_id, turn_id, patience)
            select r.tenant_id, r.session_id, $3, make_interval(secs => $4) from session_run r
             where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
            on conflict (tenant_id, session_id) do update
               set turn_id = excluded.turn_id, patience = excluded.patience, seen_until = now() where a.turn_id <> excluded.turn_id";
        let (turn, patience) = (turn.as_str(), patience.as_secs_f64());
        self.database.write_in(key, SQL, &[&turn, &patience]).await.map(drop)
    }

    /// Lists all registered turns.
    pub async fn attended(&self) -> Result<Vec<AttendedTurn>, Error> {
        const SQL: &str = "-- store::attendance::attended
            select a.tenant_id, a.session_id, a.turn_id, a.seen_until + a.patience < now() as overdue from attendance a";
        let attended = |row: &tokio_postgres::Row| {
            let turn = TurnId::new(get::<String>(row, "turn_id")?);
            let overdue = get(row, "overdue")?;
            Ok(AttendedTurn { key: session_key(row)?, turn, overdue })
        };
        self.database.read(SQL, &[]).await?.iter().map(attended).collect()
    }

    /// Records that these turns have readers, until `until` from now.
    pub async fn record_readers(&self, turns: &[AttendedTurn], until: Duration) -> Result<(), Error> {
        const SQL: &str = "-- store::attendance::seen
            update attendance a set seen_until = now() + make_interval(secs => $4)
              from unnest($1::text[], $2::text[], $3::text[]) as u(tenant, session, turn)
             where a.tenant_id = u.tenant and a.session_id = u.session and a.turn_id = u.turn";
        let (tenants, sessions) = key_columns(turns.iter().map(|it| &it.key));
        let ids: Vec<&str> = turns.iter().map(|it| it.turn.as_str()).collect();
        let until = until.as_secs_f64();
        let params: Vec<Param<'_>> = vec![&tenants, &sessions, &ids, &until];
        self.database.write(&Query::new(SQL, params)).await.map(drop)
    }

    /// Removes a turn that ended.
    pub async fn unregister_attended_turn(&self, key: &SessionKey, turn: &TurnId) -> Result<(), Error> {
        const SQL: &str = "-- store::attendance::unattend
            delete from attendance where tenant_id = $1 and session_id = $2 and turn_id = $3";
        self.database.write_in(key, SQL, &[&turn.as_str()]).await.map(drop)
    }
}

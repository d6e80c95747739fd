//! A rollback: the end of a turn that takes its messages back. They stay readable; the model sees
//! the conversation as it was before.
//!
//! It is rare, so it counts the whole transcript anew instead of taking off what each message had
//! added.

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
};
use crate::model::{CallId, Fence, MessageId, SessionKey, TurnId, Undone};

/// The seq that stands for now.
const NOW: i64 = i64::MAX;

/// Marks what the turn wrote, and the compactions that reach into it. After `stop`, in its
/// transaction: it sees all of the turn, and reports the compactions after the end of it, the
/// newest first.
const VOID: &str = "-- store::rollback::void
    with run as (
      select r.turn_id, t.first_seq, r.next_seq - 1 as seq, r.epoch
        from session_run r join turns t on t.tenant_id = $1 and t.session_id = $2 and t.turn_id = r.turn_id and t.state = 4
       where r.tenant_id = $1 and r.session_id = $2 and r.epoch = $3 and r.op = $4::bigint + 1 and r.state = 0
         and r.written_by = $5 and r.turn_id = $6),
    back as (
      select c.compaction_id, row_number() over (order by c.active_from_seq desc) as k
        from run join compactions c on c.tenant_id = $1 and c.session_id = $2 and c.status = 2 and c.to_seq >= run.first_seq),
    revert as (
      update compactions c set status = 4, reverted_at_seq = run.seq
        from run, back where c.tenant_id = $1 and c.session_id = $2 and c.compaction_id = back.compaction_id),
    write_reverted as (
      insert into events (tenant_id, session_id, seq, epoch, step, attempt, kind, refs, payload)
      select $1, $2, run.seq + back.k, run.epoch, 0, 0, 'compaction_reverted', array[back.compaction_id], ''::bytea from run, back),
    grow as (
      update session_run r set next_seq = r.next_seq + (select count(*) from back)
        from run where r.tenant_id = $1 and r.session_id = $2)
    update messages m set voided_at_seq = run.seq
      from run
     where m.tenant_id = $1 and m.session_id = $2 and m.seq between run.first_seq and run.seq and m.turn_id = run.turn_id
       and m.voided_at_seq is null";

/// What is left is counted. A repetition counts the same.
const RECOUNT: &str = concat!(
    "-- store::rollback::recount\n",
    include_str!("sql/live.sql"),
    include_str!("sql/size.sql"),
    include_str!("sql/counted.sql"),
    include_str!("sql/recount.sql")
);

/// What follows `stop` in the transaction of a rollback. The last one answers as `stop` does.
pub(super) fn queries<'a>(
    key: &'a Key,
    fence: &'a Fence,
    [owner, turn]: [Param<'a>; 2],
) -> [Query<'a>; 2] {
    let Fence { epoch, op } = fence;
    [
        Query::new(
            VOID,
            vec![
                &key.tenant as Param<'_>,
                &key.session,
                epoch,
                op,
                owner,
                turn,
            ],
        ),
        Query::new(
            RECOUNT,
            vec![
                &key.tenant as Param<'_>,
                &key.session,
                &NOW,
                epoch,
                op,
                owner,
                turn,
            ],
        ),
    ]
}

impl Store {
    /// What a rollback of the turn takes back: the messages that it has, and that which closes the
    /// calls that are still open.
    pub async fn undone(&self, key: &SessionKey, turn: &TurnId) -> Result<Undone, Error> {
        const SQL: &str = "-- store::rollback::undone
            select array(select m.message_id from messages m
                          where m.tenant_id = $1 and m.session_id = $2 and m.seq >= t.first_seq and m.turn_id = t.turn_id
                            and m.voided_at_seq is null order by m.seq) as messages,
                   (select min(c.result_message_id) from tool_calls c
                     where c.tenant_id = $1 and c.session_id = $2 and c.turn_id = t.turn_id and c.status < 3) as closing,
                   array(select c.call_id from tool_calls c
                          where c.tenant_id = $1 and c.session_id = $2 and c.turn_id = t.turn_id and c.status = 3
                          order by c.step, c.ord) as executed
              from turns t where t.tenant_id = $1 and t.session_id = $2 and t.turn_id = $3";
        let key = Key::from(key);
        let rows = self
            .database
            .read(SQL, &[&key.tenant, &key.session, &turn.as_str()])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(Undone::default());
        };
        let messages = get::<Vec<String>>(row, "messages")?
            .into_iter()
            .chain(get::<Option<String>>(row, "closing")?);
        Ok(Undone {
            messages: messages.map(MessageId::new).collect(),
            executed: get::<Vec<String>>(row, "executed")?
                .into_iter()
                .map(CallId::new)
                .collect(),
        })
    }
}

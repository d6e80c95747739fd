//! A rollback: the end of a turn that takes its messages back. They stay readable; the model sees
//! the conversation as it was before.
//!
//! It is rare, so it counts the whole transcript anew instead of taking off what each message had
//! added.

use super::{Error, Store, row::get, rows::Key};
use crate::model::{CallId, MessageId, SessionKey, TurnId, Undone};

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

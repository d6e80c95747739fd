//! The operations of the owner of a turn.

use contextd::{
    model::{
        CancelCause, CancelOutcome, Category, CompletionReason, Ending, MessageId, Role, Seq, SessionKey, TurnFence,
        TurnResult, Undone, command::TurnRequest, event::CallCancelReason,
    },
    session::{
        SessionState,
        change::SyntheticResult,
        cost::StepCost,
        ending::TurnEnd,
        new_calls::Batch,
        rows::Rows,
        steps::NewStep,
        take::{Advance, TakenMessage},
    },
    store::{
        Error, Store,
        lease::{HeldTurn, Interruption},
        queue::QueueSnapshot,
        written::{ConditionalWriteOutcome, WriteOutcome},
    },
};

use super::{
    actors::{Actor, Hold},
    history::Told,
    words::{self, Handing, OVERHEAD},
};
use crate::harness::{payloads, remembered::remembers};

/// An operation of an owner.
#[derive(Debug, Clone, Copy)]
pub(super) enum Own {
    Say,
    Note,
    Call,
    Retry,
    Begin,
    Take,
    Finish,
    Stop,
    HandOver,
    Beat,
    Crash,
}

/// A write under a fence.
enum Write {
    Append(Rows, Option<Batch>),
    Retry(Rows, Option<Box<TurnRequest>>),
    Begin,
    Take { rows: Rows, seen: Seq, ids: Vec<MessageId>, into: MessageId },
    Finish(Rows),
    Stop(Rows, Ending),
}

/// The outcome of a write.
enum Sent {
    Applied(SessionState),
    Moved,
    Gone,
}

impl Actor {
    /// Reads the turn, pauses sometimes, and writes. By then the turn may have another owner.
    pub(super) async fn own(&mut self, session: usize, deed: Own) {
        let key = self.key(session);
        let store = self.store.clone();
        let hold = self.held[&session].clone();
        let Some(Some(look)) = self.ask(store.queue_snapshot(&key)).await else {
            return;
        };
        if look.fence.epoch != hold.fence.epoch && self.dice.chance(50) {
            self.held.remove(&session);
            return;
        }
        self.nap().await;
        match deed {
            Own::Crash => {
                self.held.remove(&session);
            }
            Own::HandOver => {
                self.ask(store.hand_over(&key, hold.right())).await;
                self.held.remove(&session);
            }
            Own::Beat => {
                let held = [HeldTurn { key, turn: hold.turn.clone(), epoch: hold.fence.epoch }];
                self.ask(store.send_heartbeat()).await;
                if let Some(found) = self.ask(store.interrupted_turns(&held)).await
                    && found.iter().any(|(_, why)| *why == Interruption::LeaseLost)
                {
                    self.held.remove(&session);
                }
            }
            Own::Say | Own::Note | Own::Call | Own::Retry | Own::Begin | Own::Take | Own::Finish | Own::Stop => {
                Box::pin(self.write(session, &hold, deed, &look)).await;
            }
        }
    }

    async fn write(&mut self, session: usize, held: &Hold, deed: Own, look: &QueueSnapshot) {
        let fence = held.fence;
        let right = held.right();
        let key = self.key(session);
        let store = self.store.clone();
        let number = self.scene.number();
        let mark = |verb: &str| words::mark(verb, key.session.as_str(), fence, number);
        let (verb, write) = self.choose(deed, look, &mark);
        let sent = self.insist(async || Box::pin(send(&store, &key, right, &write)).await).await;
        let hold = self.held.get_mut(&session).filter(|hold| hold.fence == fence);
        match sent {
            Some(Sent::Applied(state)) => {
                if let Some(hold) = hold {
                    hold.fence = fence.next();
                    if self.compares_memory && self.dice.chance(30) {
                        let next = TurnFence { fence: fence.next(), ..right };
                        remembers(&store, &key, next).await;
                    }
                    if state != SessionState::Running {
                        self.held.remove(&session);
                    }
                }
                if !matches!(write, Write::Begin) {
                    self.tell(Told::Wrote { mark: mark(verb) });
                }
            }
            Some(Sent::Moved) => {}
            // A stale owner may not have noticed and continues for a while.
            Some(Sent::Gone) if self.dice.chance(30) => {}
            Some(Sent::Gone) | None => {
                self.held.remove(&session);
            }
        }
    }

    /// The write and its verb.
    fn choose(&mut self, deed: Own, look: &QueueSnapshot, mark: &dyn Fn(&str) -> String) -> (&'static str, Write) {
        let closed = look.open_calls == 0;
        let waiting: Vec<MessageId> = look.waiting.iter().map(|queued| queued.message.clone()).collect();
        match deed {
            _ if look.cancelled && self.dice.chance(80) => {
                let cause = CancelCause::Requested;
                let outcome = CancelOutcome::None;
                let undone = self.dice.chance(30).then(Undone::default);
                let ending = Ending::Cancelled { cause, outcome, reason: String::new(), undone };
                ("stop", Write::Stop(words::marked(&mark("stop")), ending))
            }
            Own::Say if closed => {
                let mark = mark("say");
                let mut rows = words::marked(&mark);
                let said = vec![words::text("words", 13, Category::Assistant)];
                rows.message(words::message(&format!("{mark}-m"), Role::Assistant, said), words::at());
                ("say", Write::Append(rows, None))
            }
            Own::Call if closed => {
                let handing = [Handing::AtOnce, Handing::AtOnce, Handing::OneByOne, Handing::AskingFirst];
                let handing = *self.dice.pick(&handing).unwrap();
                let (rows, batch) = words::calls(&mark("call"), 1 + self.dice.below(4), handing);
                ("call", Write::Append(rows, Some(batch)))
            }
            Own::Retry => {
                let mark = mark("retry");
                let (rows, fallback) = match self.dice.chance(30) {
                    true => words::fallback(&mark),
                    false => (words::marked(&mark), None),
                };
                ("retry", Write::Retry(rows, fallback))
            }
            Own::Begin if closed => ("begin", Write::Begin),
            // Also tried while calls are open, which the statement itself must detect.
            Own::Take if !waiting.is_empty() => {
                let into = format!("{}-m", mark("take"));
                let all: Vec<&str> = waiting.iter().map(MessageId::as_str).collect();
                let said = vec![words::text(&all.join(" "), 9, Category::User)];
                let mut rows = Rows::new(words::ESTIMATOR, 10);
                rows.event(payloads::applied(into.clone()), words::at());
                rows.message(words::message(&into, Role::User, said), words::at());
                rows.event(payloads::noted(&mark("take")), words::at());
                ("take", Write::Take { rows, seen: look.last_seq, ids: waiting, into: MessageId::new(into) })
            }
            Own::Finish if closed => ("finish", Write::Finish(words::marked(&mark("finish")))),
            Own::Stop => {
                let ending = Ending::Completed(CompletionReason::Deadline);
                ("stop", Write::Stop(words::marked(&mark("stop")), ending))
            }
            Own::Say | Own::Call | Own::Begin | Own::Take | Own::Finish | Own::Note => {
                ("note", Write::Append(words::marked(&mark("note")), None))
            }
            Own::HandOver | Own::Beat | Own::Crash => unreachable!("no writes"),
        }
    }
}

async fn send(store: &Store, key: &SessionKey, right: TurnFence<'_>, write: &Write) -> Result<Sent, Error> {
    let cost = StepCost::default();
    let result = TurnResult::default();
    let end = |ending| TurnEnd {
        ending,
        result: &result,
        synthetic: SyntheticResult {
            text: "closed",
            tokens: 7,
            overhead: OVERHEAD,
            reason: CallCancelReason::TurnEnded,
        },
    };
    let written = match write {
        Write::Append(rows, batch) => store.append(key, right, rows, &cost, batch.as_ref()).await?,
        Write::Retry(rows, fallback) => store.retry(key, right, rows, &cost, fallback.as_deref()).await?,
        Write::Finish(rows) => {
            store.finish(key, right, rows, &cost, &end(&Ending::Completed(CompletionReason::Stop))).await?
        }
        Write::Stop(rows, ending) => store.stop(key, right, rows, &cost, &end(ending)).await?,
        Write::Begin => {
            let step = NewStep { revision: 1, in_any_case: true, started: b"", size_offset: 10 };
            return Ok(match store.begin_step(key, right, &step).await? {
                ConditionalWriteOutcome::Applied(ack) => Sent::Applied(ack.state),
                ConditionalWriteOutcome::Stale => Sent::Moved,
                ConditionalWriteOutcome::Fenced => Sent::Gone,
            });
        }
        Write::Take { rows, seen, ids, into } => {
            let taken: Vec<TakenMessage<'_>> =
                ids.iter().map(|message| TakenMessage { message, end: Ok(into), event: 1 }).collect();
            return Ok(match store.take(key, right, Some(*seen), rows, &taken, Advance::Stay).await? {
                ConditionalWriteOutcome::Applied(ack) => Sent::Applied(ack.state),
                ConditionalWriteOutcome::Stale => Sent::Moved,
                ConditionalWriteOutcome::Fenced => Sent::Gone,
            });
        }
    };
    Ok(match written {
        WriteOutcome::Applied(ack) => Sent::Applied(ack.state),
        WriteOutcome::Fenced => Sent::Gone,
    })
}

//! The counters equal a recount of the stored data after any operation on a session.

use contextd::{
    model::{CancelCause, CompactionId},
    session::{
        SessionState,
        compaction_rows::{Cost, Replacement},
        counters::{Counter, TokenCounters},
        marks::Marking,
    },
    store::written::ConditionalWriteOutcome,
};
use proptest::{prelude::*, test_runner::TestRunner};

use super::*;

/// Recounts the model's view: messages, overhead, then tokens and parts of user, assistant, reasoning, tool calls, tool
/// results and summaries. Results of an incomplete batch are counted.
const RECOUNT: &str = "
    with active as (select * from compactions where session_id = $1 and status = 2 order by active_from_seq desc limit 1),
    seen as (
      select m.* from messages m
       where m.session_id = $1 and m.voided_at_seq is null
         and case when m.is_summary then m.message_id = (select summary_message from active)
                  else not exists (select from active a where m.seq between a.from_seq and a.to_seq) end),
    counted as (
      select case when s.is_summary then 7 else p.category end as category, p.tokens
        from parts p left join messages m using (tenant_id, session_id, message_id) left join seen s using (tenant_id, session_id, message_id)
       where p.session_id = $1 and (s.seq is not null or m.seq is null)),
    sums as (
      select c, coalesce(sum(tokens), 0) as tokens, count(tokens) as parts
        from unnest(array[1, 2, 3, 4, 5, 7]) c left join counted on category = c group by c)
    select (select count(*) from seen) || (select array[coalesce(sum(tokens), 0)]::bigint[] from seen)
           || (select array_agg(tokens::bigint order by c) from sums) || (select array_agg(parts::bigint order by c) from sums)
           || (select array[coalesce(sum(p.original_tokens - p.tokens), 0), count(*)]::bigint[]
                 from parts p join seen s using (tenant_id, session_id, message_id)
                where p.session_id = $1 and p.pruned_at_seq is not null)";

/// The same numbers as stored, and whether the rest of the hot row is consistent.
const KEPT: &str = "
    select array[ctx_messages, ctx_overhead] || ctx_tokens[1:5] || ctx_tokens[7] || ctx_parts[1:5]::bigint[] || ctx_parts[7]::bigint
             || ctx_tokens[9] || ctx_parts[9]::bigint,
           r.open_calls = (select count(*) from tool_calls c where c.session_id = $1 and c.status < 3),
           r.open_calls > 0 or not exists (
             select from parts p left join messages m using (tenant_id, session_id, message_id)
              where p.session_id = $1 and m.seq is null)
      from session_run r where r.session_id = $1";

#[derive(Debug, Clone, Copy)]
enum Deed {
    Say(u32),
    Think(u32),
    Call(usize, Handing),
    Answer(usize),
    Approve,
    Deny,
    Enqueue,
    Take,
    Finish,
    Stop,
    Admit,
    TakeOver,
    Compact,
    Revert,
    Prune,
    Restore,
}

/// How calls are requested.
#[derive(Debug, Clone, Copy)]
enum Handing {
    AtOnce,
    OneByOne,
    AskingFirst,
    OneByOneAskingFirst,
}

impl Handing {
    /// The notation of the n-th call, see [`answer_with_calls`].
    fn notation(self, n: usize) -> &'static str {
        match (self, n) {
            (Self::AtOnce, _) | (Self::OneByOne, 0) => "",
            (Self::OneByOne, _) => ">",
            (Self::AskingFirst, _) | (Self::OneByOneAskingFirst, 0) => "?",
            (Self::OneByOneAskingFirst, _) => ">?",
        }
    }
}

fn handing() -> impl Strategy<Value = Handing> {
    use Handing::{AskingFirst, AtOnce, OneByOne, OneByOneAskingFirst};
    prop_oneof![Just(AtOnce), Just(OneByOne), Just(AskingFirst), Just(OneByOneAskingFirst)]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (1_u32..1000).prop_map(Deed::Say),
        (1_u32..1000).prop_map(Deed::Think),
        ((1_usize..4), handing()).prop_map(|(count, handing)| Deed::Call(count, handing)),
        (1_usize..4).prop_map(Deed::Answer),
        Just(Deed::Approve),
        Just(Deed::Deny),
        Just(Deed::Enqueue),
        Just(Deed::Take),
        Just(Deed::Finish),
        Just(Deed::Stop),
        Just(Deed::Admit),
        Just(Deed::TakeOver),
        Just(Deed::Compact),
        Just(Deed::Revert),
        Just(Deed::Prune),
        Just(Deed::Restore),
    ]
}

/// Performs operations where they are possible, and skips them otherwise.
struct Driver<'a> {
    world: &'a World,
    key: SessionKey,
    made: usize,
}

impl Driver<'_> {
    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    async fn act(&mut self, deed: Deed) {
        let store = &self.world.store;
        let look = store.queue_snapshot(&self.key).await.unwrap().unwrap();
        let turn = look.turn.as_ref().filter(|_| look.state == SessionState::Running);
        let owner = turn.map(|turn| TurnFence { turn, fence: look.fence });
        let closed = owner.filter(|_| look.open_calls == 0);
        match (deed, owner, closed) {
            (Deed::Say(tokens), _, Some(fence)) => self.say(fence, tokens, Category::Assistant).await,
            (Deed::Think(tokens), _, Some(fence)) => self.say(fence, tokens, Category::Reasoning).await,
            (Deed::Call(count, handing), _, Some(fence)) => self.call(fence, count, handing).await,
            (Deed::Answer(count), _, _) => {
                let open = store.open_calls(&self.key).await.unwrap();
                let calls: Vec<&str> = open.iter().take(count).map(|open| open.pending.call.id.as_str()).collect();
                submit(store, &self.key, &calls, &unremembered()).await;
            }
            (Deed::Approve | Deed::Deny, _, _) => {
                let open = store.open_calls(&self.key).await.unwrap();
                let asks = open.iter().find(|open| open.pending.waits_for == WaitsFor::Approval);
                if let Some(open) = asks {
                    let call = open.pending.call.id.as_str();
                    let decided = decide(store, &self.key, call, matches!(deed, Deed::Approve)).await;
                    let untouched = look.cancelled && decided.accepted.is_empty();
                    assert!(untouched || decided.accepted.len() == 1, "{decided:?}");
                }
            }
            (Deed::Enqueue, _, _) => {
                let id = self.name("q");
                enqueue(store, &self.key, &id).await;
            }
            (Deed::Take, _, Some(fence)) if !look.waiting.is_empty() && !look.cancelled => {
                let ids: Vec<&str> = look.waiting.iter().map(|queued| queued.message.as_str()).collect();
                let took = take(store, &self.key, fence, look.last_seq, &ids, false).await;
                assert!(matches!(took, ConditionalWriteOutcome::Applied(_)), "{took:?}");
            }
            (Deed::Finish, _, Some(fence)) => {
                let rows = says(&self.name("m"), Role::Assistant, 13, Category::Assistant);
                applied(finish(store, &self.key, fence, rows).await);
            }
            (Deed::Stop, _, _) if look.state.is_live() => self.stop(owner).await,
            (Deed::Admit, None, _) if look.state == SessionState::Idle => {
                let turn = self.name("t");
                admit(store, &self.key, &turn).await.unwrap();
            }
            (Deed::TakeOver, _, _) if look.state.is_live() => self.take_over(look.fence.epoch).await,
            (Deed::Compact, _, _) if look.open_calls == 0 => self.compact(look.last_seq).await,
            (Deed::Revert, _, _) => self.revert().await,
            (Deed::Prune, _, _) => self.prune().await,
            (Deed::Restore, _, _) => self.restore().await,
            _ => {}
        }
    }

    async fn say(&mut self, fence: TurnFence<'_>, tokens: u32, category: Category) {
        let rows = says(&self.name("m"), Role::Assistant, tokens, category);
        let cost = StepCost::default();
        applied(self.world.store.append(&self.key, fence, &rows, &cost, None).await.unwrap());
    }

    async fn call(&mut self, fence: TurnFence<'_>, count: usize, handing: Handing) {
        let calls: Vec<String> = (0..count).map(|n| format!("{}{}", handing.notation(n), self.name("c"))).collect();
        let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
        let (rows, batch) = answer_with_calls(&self.name("m"), &calls);
        let cost = StepCost::default();
        applied(self.world.store.append(&self.key, fence, &rows, &cost, Some(&batch)).await.unwrap());
    }

    async fn stop(&self, owner: Option<TurnFence<'_>>) {
        let store = &self.world.store;
        if let Some(right) = owner {
            applied(stop(store, &self.key, right).await);
            return;
        }
        let cause = CancelCause::Requested;
        let none = unremembered();
        let cancelled = store.cancel(&self.key, None, cause, "", &none).await.unwrap();
        let turn = cancelled.turn.unwrap();
        let fence = cancelled.fence.unwrap();
        applied(stop(store, &self.key, TurnFence { turn: &turn, fence }).await);
    }

    async fn take_over(&self, epoch: i64) {
        let client = self.world.database.client().await;
        let sql = "update session_run set version = version + 1, lease_until = '-infinity', tool_deadline = 'epoch' where session_id = $1";
        client.execute(sql, &[&self.key.session.as_str()]).await.unwrap();
        self.world.store.takeover(&self.key, epoch).await.unwrap().unwrap();
    }

    /// Replaces the model's view by a summary.
    async fn compact(&mut self, to: Seq) {
        let id = self.name("k");
        let seen = self.version().await;
        super::compaction::begin(&self.world.store, &self.key, &id, seen, &unremembered()).await.update.unwrap();
        let before = recount(self.world, &self.key).await;
        let mut shift = TokenCounters::default();
        let number = |value: i64| i32::try_from(value).unwrap();
        shift.messages(1 - number(before[0]), i64::from(OVERHEAD) - before[1]);
        let counters = [
            Counter::User,
            Counter::Assistant,
            Counter::Reasoning,
            Counter::ToolCalls,
            Counter::ToolResults,
            Counter::Summary,
        ];
        for (n, counter) in counters.into_iter().enumerate() {
            shift.count(counter, -number(before[8 + n]), -before[2 + n]);
        }
        shift.count(Counter::Summary, 1, 17);
        shift.count(Counter::Pruned, -number(before[15]), -before[14]);
        let summary = message(format!("{id}-summary"), Role::User, vec![part("in short", 17, Category::User)]);
        let replacement = Replacement {
            from: Seq(1),
            to,
            kept: &[],
            hides_pinned: false,
            shift,
            rows: &payloads::compacted_rows(&id, ESTIMATOR, Some(summary)),
            info: b"",
            cost: &Cost::default(),
        };
        let id = CompactionId::new(id);
        self.world.store.swap_compaction(&self.key, &id, &replacement).await.unwrap().update.unwrap();
    }

    async fn revert(&self) {
        let client = self.world.database.client().await;
        let sql = "select compaction_id from compactions where session_id = $1 and status = 2 order by active_from_seq desc limit 1";
        if let Some(row) = client.query_opt(sql, &[&self.key.session.as_str()]).await.unwrap() {
            let id = CompactionId::new(row.get::<_, String>(0));
            let seen = self.version().await;
            let reverted = self
                .world
                .store
                .revert_compaction(&self.key, &id, seen, &payloads::compaction_reverted(id.as_str()), &unremembered())
                .await;
            reverted.unwrap().update.unwrap();
        }
    }

    /// Clears every result in the model's view.
    async fn prune(&self) {
        let seen = self.world.store.transcript(&self.key).await.unwrap();
        let results = seen.messages.iter().flat_map(|message| {
            let parts = message.parts.iter().enumerate();
            parts
                .filter(|(_, part)| matches!(part.part.content, Content::ToolResult(_)) && part.pruned.is_none())
                .map(|(position, part)| ((message.id.clone(), position), part.size.tokens))
        });
        let (places, tokens): (Vec<_>, Vec<u32>) = results.unzip();
        let saved = tokens.iter().map(|tokens| i64::from(*tokens) - 1).sum();
        let Some(seen) = seen.context_version.filter(|_| !places.is_empty()) else {
            return;
        };
        let marking = Marking { seen, places: &places, tokens: saved, event: &payloads::pruned() };
        let store = &self.world.store;
        let nobody = unremembered();
        let prune = || store.prune(&self.key, &marking, 1, (&nobody, ""));
        prune().await.unwrap().unwrap();
        let again = prune().await.unwrap();
        assert_eq!(again, None, "the context is another one");
        let seen = store.transcript(&self.key).await.unwrap();
        let mut parts = seen.messages.iter().flat_map(|message| &message.parts);
        let are_cleared =
            parts.all(|part| part.pruned.is_some() || !matches!(part.part.content, Content::ToolResult(_)));
        assert!(are_cleared);
    }

    /// Reverts the newest prune for the results that are still in the model's view.
    async fn restore(&self) {
        let sql = "select coalesce(max(pruned_at_seq), 0) from parts where session_id = $1";
        let at = Seq(self.world.number(sql, &self.key).await);
        let found = self.world.store.cleared_by(&self.key, at).await.unwrap().unwrap();
        let tokens = found.results.iter().map(|it| i64::from(it.saved)).sum();
        let places: Vec<_> = found.results.into_iter().map(|result| result.place).collect();
        let marking = Marking { seen: found.version, places: &places, tokens, event: &payloads::restored() };
        let moved = self.world.store.restore(&self.key, &marking, at, &unremembered()).await.unwrap();
        assert_eq!(moved.is_some(), !places.is_empty());
    }

    async fn version(&self) -> i64 {
        self.world.number("select context_version from session_run where session_id = $1", &self.key).await
    }
}

async fn recount(world: &World, key: &SessionKey) -> Vec<i64> {
    world.database.client().await.query_one(RECOUNT, &[&key.session.as_str()]).await.unwrap().get(0)
}

async fn check(world: &World, session: &str, deeds: &[Deed]) {
    let (key, _) = world.running(session).await;
    let mut driver = Driver { world, key: key.clone(), made: 0 };
    let client = world.database.client().await;
    for deed in deeds {
        driver.act(*deed).await;
        let row = client.query_one(KEPT, &[&session]).await.unwrap();
        assert_eq!(row.get::<_, Vec<i64>>(0), recount(world, &key).await, "after {deed:?} of {deeds:?}");
        let agreed: [bool; 2] = std::array::from_fn(|n| row.get(n + 1));
        assert_eq!(agreed, [true; 2], "open calls, whole batches after {deed:?} of {deeds:?}");
    }
    world.assert_dense(&key).await;
}

/// Row I6
#[test]
fn counters_equal_a_recount_after_every_operation() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(World::new());
    let sessions = std::cell::Cell::new(0);
    let config =
        ProptestConfig { cases: 20, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&proptest::collection::vec(deed(), 5..30), |deeds| {
            sessions.set(sessions.get() + 1);
            runtime.block_on(check(&world, &format!("s{}", sessions.get()), &deeds));
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn counters_survive_a_compaction_between_two_turns_and_its_revert_in_a_waiting_one() {
    use Deed::{
        Admit, Answer, Approve, Call, Compact, Deny, Enqueue, Finish, Prune, Restore, Revert, Say, Stop, Take, TakeOver,
    };
    use Handing::{AskingFirst, AtOnce, OneByOne, OneByOneAskingFirst};
    let deeds = [
        Say(10),
        Call(3, AtOnce),
        Answer(2),
        Answer(1),
        Prune,
        Finish,
        Compact,
        Restore,
        Admit,
        Enqueue,
        Say(7),
        Finish,
        Take,
        Call(2, OneByOne),
        Revert,
        Restore,
        Answer(1),
        Answer(1),
        Prune,
        Compact,
        Call(3, OneByOneAskingFirst),
        Approve,
        Answer(1),
        Deny,
        TakeOver,
        Approve,
        Answer(1),
        Call(2, AskingFirst),
        Approve,
        Answer(1),
        Stop,
        Admit,
        Finish,
        Compact,
        Revert,
        Revert,
        Restore,
    ];
    check(&World::new().await, "s", &deeds).await;
}

//! Calls that are requested one at a time or after approval, while results and approvals for all calls are submitted
//! concurrently.

use futures_util::future::join_all;

use super::*;

/// The events of each call with their seqs.
async fn story(world: &World, key: &SessionKey) -> BTreeMap<String, Vec<(String, i64)>> {
    let client = world.database.client().await;
    let sql = "select refs[1], kind, seq from events where session_id = $1 and turn_id is not null
                  and kind in ('approval_requested', 'tool_call_requested', 'tool_call_completed') order by seq";
    let mut story: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for row in client.query(sql, &[&key.session.as_str()]).await.unwrap() {
        story.entry(row.get(0)).or_default().push((row.get(1), row.get(2)));
    }
    story
}

/// The number of open calls that were requested from the host, and whether the hot row counts all open calls.
async fn asked(world: &World, key: &SessionKey) -> (i64, bool) {
    let sql = "select (select count(*) from tool_calls c where c.session_id = $1 and c.status < 3 and c.deadline is not null),
                      r.open_calls = (select count(*) from tool_calls c where c.session_id = $1 and c.status < 3)
                 from session_run r where r.session_id = $1";
    let row = world.database.client().await.query_one(sql, &[&key.session.as_str()]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn sequential_calls_stay_sequential_under_concurrent_submissions() {
    let world = World::new().await;
    for round in 0..10 {
        let calls: Vec<String> = (0..4).map(|n| format!("r{round}c{n}")).collect();
        let notation =
            [calls[0].clone(), format!(">?{}", calls[1]), format!(">{}", calls[2]), format!(">?{}", calls[3])];
        let notation: Vec<&str> = notation.iter().map(String::as_str).collect();
        let (key, grant) = world.waiting(&format!("s{round}"), &notation).await;
        let stores: Vec<Store> = (0..4).map(|n| world.replica(&format!("r{n}"))).collect();
        let ids: Vec<&str> = calls.iter().map(String::as_str).collect();
        let work = stores.iter().enumerate().map(|(n, store)| {
            let key = key.clone();
            let ids = ids.clone();
            let world = &world;
            async move {
                let mut grants = Vec::new();
                let mut open = true;
                while open {
                    for (m, call) in ids.iter().enumerate() {
                        let yes = (n + m) % 2 == 0;
                        for submitted in
                            [submit(store, &key, &ids, &unremembered()).await, decide(store, &key, call, yes).await]
                        {
                            grants.extend(submitted.grant);
                        }
                    }
                    let (count, counted) = asked(world, &key).await;
                    assert!(count <= 1 && counted, "{count} are asked about at once; counted: {counted}");
                    open = count > 0;
                }
                grants
            }
        });
        let grants: Vec<Grant> = join_all(work).await.into_iter().flatten().collect();
        assert_eq!(grants.len(), 1);
        assert_eq!(grants[0].fence.epoch, grant.fence.epoch + 1);
        world.assert_dense(&key).await;
        check(&story(&world, &key).await, &ids);
    }
}

/// Fails unless each call was requested, approved if necessary, and completed exactly once, each after the previous one
/// was completed.
fn check(story: &BTreeMap<String, Vec<(String, i64)>>, calls: &[&str]) {
    let mut over = 0;
    for (n, call) in calls.iter().enumerate() {
        let told = story.get(*call).cloned().unwrap_or_default();
        let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
        let allowed: &[&[&str]] = match n {
            // The request of the first call is written by the layer above.
            0 => &[&["tool_call_completed"]],
            1 | 3 => &[
                &["approval_requested", "tool_call_requested", "tool_call_completed"],
                &["approval_requested", "tool_call_completed"],
            ],
            _ => &[&["tool_call_requested", "tool_call_completed"]],
        };
        assert!(allowed.contains(&kinds.as_slice()), "{call}: {kinds:?}");
        assert!(told[0].1 > over, "{call} was asked about before the one before it was completed: {story:?}");
        over = told.last().unwrap().1;
    }
}

#[tokio::test]
async fn a_sequential_call_waits_until_no_approval_is_pending() {
    let world = World::new().await;
    let (key, _) = world.waiting("s", &["c1", "?c2", ">c3"]).await;
    let submitted = submit(&world.store, &key, &["c1", "c3"], &unremembered()).await;
    assert_eq!((submitted.accepted.len(), submitted.pending), (1, vec![CallId::new("c2")]));
    assert_eq!(decide(&world.store, &key, "c2", true).await.pending, [CallId::new("c2")]);
    assert_eq!(submit(&world.store, &key, &["c2"], &unremembered()).await.pending, [CallId::new("c3")]);
    assert!(submit(&world.store, &key, &["c3"], &unremembered()).await.grant.is_some());
    world.assert_dense(&key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_input_is_admitted_only_if_the_last_message_is_unanswered() {
    let world = World::new().await;
    let begin = async |key: &SessionKey, turn: &str| {
        let turn = TurnId::new(turn);
        let rows = opening_without_input();
        let request = TurnRequest::default();
        let idempotency = unremembered();
        let admission = Admission { continues: true, ..admission(&turn, &rows, &idempotency, &request) };
        world.store.admit(key, &admission).await.unwrap()
    };
    let (key, grant) = world.running("s").await;
    applied(stop(&world.store, &key, grant.turn_fence()).await);
    assert!(world.store.asks_for_an_answer(&key).await.unwrap());
    let grant = begin(&key, "t2").await.expect("the user spoke last");
    let rows = says("a1", Role::Assistant, 5, Category::Assistant);
    applied(finish(&world.store, &key, grant.turn_fence(), rows).await);
    assert!(!world.store.asks_for_an_answer(&key).await.unwrap());
    assert_eq!(begin(&key, "t3").await, None);
    assert!(admit(&world.store, &key, "t4").await.is_some(), "with input it goes on");
    world.assert_dense(&key).await;
}

//! An upgrade and its roll-back under load: the older program, a newer schema, and both programs at the same time.
//! `script/upgrade-check` builds the older program and runs this test.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use contextd::pb;

use crate::harness::{
    TestDatabase,
    process::{Place, Served},
    survivor::{Survivor, asking, recoveries, slow, two_tools},
    unary::unary_calls,
};

/// Variable with the path of the older program.
const OLD_PROGRAM: &str = "CONTEXTD_OLD_PROGRAM";
/// Number of clients that each run turns one after another.
const CLIENTS: usize = 6;
/// Number of clients that make unary calls in parallel: 200 per second in total, on two cores, while one replica is
/// restarting.
const CALLERS: usize = 8;
const PACE: Duration = Duration::from_millis(20);
/// When a replica stops, it keeps serving for a while, hands over its turns, and keeps its leases in the meantime.
const SETTINGS: &str =
    "[turn]\nlease_ttl = '1m'\npoll_interval = '50ms'\n[server]\ndrain_delay = '2s'\ndrain_timeout = '300ms'\n";

fn with_scripts(place: Place) -> Place {
    place.script("slow", &slow()).script("tools", &two_tools())
}

async fn migrate(place: &Place, database: &TestDatabase) {
    let output = place.run_over(database, "migrate").await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until this many more turns have ended, so that the current replicas have done some work.
async fn more_turns(ended: &AtomicUsize, more: usize) {
    let goal = ended.load(Ordering::Relaxed) + more;
    crate::harness::host::until("more turns", || async { ended.load(Ordering::Relaxed) >= goal }).await;
}

async fn restarted(place: &Place, database: &TestDatabase, served: Served) -> Served {
    let address = served.address;
    served.stop().await;
    place.serve_over_at(database, address).await
}

/// Row F35
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a program of an older commit: script/upgrade-check"]
async fn the_previous_version_serves_the_new_schema_alongside_the_new_one_and_alone() {
    let old_program = std::env::var_os(OLD_PROGRAM).expect("run script/upgrade-check");
    let before = with_scripts(Place::exactly(SETTINGS)).with_program(old_program);
    let now = with_scripts(Place::new(SETTINGS));
    let database = TestDatabase::empty().await;
    migrate(&before, &database).await;
    let (one, two) = tokio::join!(before.serve_over(&database), before.serve_over(&database));
    let addresses = [one.address, two.address];
    let ended = AtomicUsize::new(0);
    let enough = AtomicBool::new(false);
    let client = async |n: usize| {
        let mut hosts = Vec::new();
        while !enough.load(Ordering::Relaxed) {
            let script = ["scripted/slow", "scripted/tools"][hosts.len() % 2];
            let mut host = Survivor::new(asking(script, &format!("chat-{n}-{}", hosts.len())));
            let mut order = addresses;
            order.rotate_left((n + hosts.len()) % 2);
            host.survive_at(&order).await;
            ended.fetch_add(1, Ordering::Relaxed);
            hosts.push(host);
        }
        hosts
    };
    let upgrade = async {
        more_turns(&ended, 2 * CLIENTS).await;
        migrate(&now, &database).await; // like the Job of the chart, while the old program serves
        more_turns(&ended, 2 * CLIENTS).await;
        let one = restarted(&before, &database, one).await; // an old pod restarts on the new schema
        more_turns(&ended, 2 * CLIENTS).await;
        let two = restarted(&now, &database, two).await; // the new program runs in parallel with the old one
        more_turns(&ended, 4 * CLIENTS).await;
        let one = restarted(&now, &database, one).await; // the upgrade is complete
        more_turns(&ended, 2 * CLIENTS).await;
        let two = restarted(&before, &database, two).await; // the roll-back: first in parallel with the new program
        more_turns(&ended, 4 * CLIENTS).await;
        let one = restarted(&before, &database, one).await; // then alone
        more_turns(&ended, 2 * CLIENTS).await;
        enough.store(true, Ordering::Relaxed);
        (one, two)
    };
    let clients = futures_util::future::join_all((0..CLIENTS).map(client));
    let callers = (0..CALLERS).map(async |n| unary_calls(&n.to_string(), addresses, PACE, &enough).await);
    let callers = futures_util::future::join_all(callers);
    let begun = Instant::now();
    let ((one, two), hosts, calls) = tokio::join!(upgrade, clients, callers);
    let seconds = begun.elapsed().as_secs_f64();
    let hosts: Vec<Survivor> = hosts.into_iter().flatten().collect();
    let calls: usize = calls.into_iter().flatten().sum();
    eprintln!(
        "{} turns, and {calls} unary calls of which none failed, in {seconds:.0} s: {:.0} a second",
        hosts.len(),
        calls as f64 / seconds
    );
    assert!(calls > hosts.len(), "{calls} calls");
    for host in &hosts {
        host.check_outline(&one).await;
        for (cause, _) in recoveries(&host.seen) {
            assert_eq!(cause, pb::RecoveryCause::HandedOver, "{}", host.session());
        }
    }
    for served in [one, two] {
        assert!(!served.log_text().contains("panicked"), "{}", served.log_text());
        served.stop().await;
    }
}

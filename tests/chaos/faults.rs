//! Injects faults into replicas, and counts in which phase each fault occurred.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::{
    Plan,
    client::{Clients, Moment, Phase},
    fleet::Fleet,
    harness::{
        TestDatabase,
        proxy::{CutPoint, Link},
    },
    random::Random,
};

/// A moment is outdated after this time.
const FRESH: Duration = Duration::from_millis(20);
/// A commit follows the end of the model's response within this time, or not at all.
const SOON: Duration = Duration::from_millis(500);
/// How long to wait for a moment of the wanted phase before any other is accepted.
const PATIENCE: Duration = Duration::from_secs(5);

/// The ways to break a connection.
const CUTS: [Cut; 7] =
    [Cut::Database, Cut::DatabaseDies, Cut::BehindCommit, Cut::BeforeCommit, Cut::Client, Cut::ClientDies, Cut::Model];

/// A way to break a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    Database,
    DatabaseDies,
    BehindCommit,
    BeforeCommit,
    Client,
    ClientDies,
    Model,
}

/// How often each fault was injected.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    kills: BTreeMap<Phase, usize>,
    landed: BTreeMap<Phase, [usize; 2]>,
    cuts: BTreeMap<Cut, usize>,
}

impl Tally {
    /// Whether all planned faults were injected and every phase was covered.
    pub(crate) fn is_whole(&self, plan: &Plan) -> bool {
        let met = Phase::ALL.iter().all(|phase| self.kills.contains_key(phase)) || plan.kills < Phase::ALL.len();
        met && self.killed() >= plan.kills && self.broken() >= plan.cuts
    }

    fn killed(&self) -> usize {
        self.kills.values().sum()
    }

    fn broken(&self) -> usize {
        self.cuts.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kill -9 of replicas: {}", self.killed())?;
        for (phase, times) in &self.kills {
            writeln!(f, "  {phase:?}: {times}")?;
        }
        for (phase, [lost, landed]) in &self.landed {
            writeln!(
                f,
                "  of those {phase:?} whose response was complete, {landed} were committed and {lost} were not"
            )?;
        }
        writeln!(f, "connections broken: {}", self.broken())?;
        for (cut, times) in &self.cuts {
            writeln!(f, "  {cut:?}: {times}")?;
        }
        Ok(())
    }
}

/// Kills replicas, each time in the phase with the fewest kills so far.
pub(crate) async fn kill(fleet: &Fleet, clients: &Clients, database: &TestDatabase, plan: &Plan, tally: &mut Tally) {
    let mut random = Random::new(plan.seed, 2_000_000);
    let look = database.client().await;
    let mut moments = clients.moments();
    let begun = Instant::now();
    while tally.killed() < plan.kills {
        let wanted =
            *Phase::ALL.iter().min_by_key(|phase| tally.kills.get(phase).copied().unwrap_or_default()).unwrap();
        let Some(moment) = next_moment(&mut moments, fleet, wanted).await else {
            continue;
        };
        let replica = &fleet.replicas[moment.replica];
        let pause = match moment.phase {
            // The end of a turn or of a compaction is a commit at which the replica can be killed.
            Phase::Committing | Phase::Compacting if moment.last => {
                let mark = moment.mark.as_deref().unwrap_or_default();
                if !met_at_commit(&replica.database, mark, &mut random).await {
                    continue;
                }
                0
            }
            Phase::Committing => random.below(8_000),
            Phase::Resuming => random.below(15_000),
            Phase::Streaming | Phase::AwaitingTools | Phase::Compacting => random.below(30_000),
        };
        tokio::time::sleep(Duration::from_micros(u64::try_from(pause).unwrap_or_default())).await;
        replica.kill().await;
        *tally.kills.entry(moment.phase).or_default() += 1;
        if let Some(mark) = &moment.mark {
            commits_ended(&look).await;
            let sql = "select exists(select from parts where body like $1)";
            let landed: bool = look.query_one(sql, &[&format!("%{mark}%")]).await.unwrap().get(0);
            tally.landed.entry(moment.phase).or_default()[usize::from(landed)] += 1;
        }
        if tally.killed().is_multiple_of(50) {
            println!("{} kills after {:?}: {:?}", tally.killed(), begun.elapsed(), tally.kills);
        }
    }
}

/// Stops traffic at the next commit, so that no response returns. Returns whether a commit occurred.
async fn met_at_commit(link: &Link, mark: &str, random: &mut Random) -> bool {
    let before = link.times_cut();
    let landed = if random.happens(50) { CutPoint::After } else { CutPoint::Before };
    link.strand_at_commit_of(mark, landed);
    let met = tokio::time::timeout(SOON, link.was_cut(before + 1)).await.is_ok();
    if !met {
        link.spare();
    }
    met
}

/// A recent moment at a replica that may be killed.
async fn next_moment(moments: &mut Receiver<Moment>, fleet: &Fleet, wanted: Phase) -> Option<Moment> {
    let begun = Instant::now();
    loop {
        let moment = match tokio::time::timeout(PATIENCE, moments.recv()).await {
            Ok(Ok(moment)) => moment,
            Ok(Err(RecvError::Lagged(_))) => continue,
            Ok(Err(RecvError::Closed)) | Err(_) => return None,
        };
        let spared = fleet.alive() > 1 && fleet.replicas[moment.replica].is_alive();
        let right = moment.phase == wanted || begun.elapsed() > PATIENCE;
        if right && spared && moment.at.elapsed() < FRESH {
            return Some(moment);
        }
    }
}

/// Waits until the commits that run now have ended: that of a killed replica continues in the database.
async fn commits_ended(look: &tokio_postgres::Client) {
    const NOW: &str = "select clock_timestamp()::text";
    const RUNNING: &str = "
        select exists(select from pg_stat_activity where datname = current_database() and state = 'active' and pid <> pg_backend_pid()
                                                     and query like '-- store::commit::commit%' and query_start <= $1::text::timestamptz)";
    let now: String = look.query_one(NOW, &[]).await.unwrap().get(0);
    while look.query_one(RUNNING, &[&now]).await.unwrap().get(0) {
        tokio::task::yield_now().await;
    }
}

/// Breaks connections, alternating between the ways.
pub(crate) async fn cut(fleet: &Fleet, plan: &Plan, tally: &mut Tally) {
    let mut random = Random::new(plan.seed, 3_000_000);
    let begun = Instant::now();
    for number in 0..plan.cuts {
        let how = CUTS[number % CUTS.len()];
        let replica = random.of(&fleet.replicas);
        match how {
            Cut::Database => replica.database.cut(),
            Cut::DatabaseDies => replica.database.strand(),
            Cut::BehindCommit => at_commit(&replica.database, CutPoint::After).await,
            Cut::BeforeCommit => at_commit(&replica.database, CutPoint::Before).await,
            Cut::Client => replica.clients.cut(),
            Cut::ClientDies => replica.clients.strand(),
            Cut::Model => replica.model.cut(),
        }
        *tally.cuts.entry(how).or_default() += 1;
        if tally.broken().is_multiple_of(100) {
            println!("{} cuts after {:?}", tally.broken(), begun.elapsed());
        }
        let pause = Duration::from_millis(u64::try_from(40 + random.below(160)).unwrap_or_default());
        tokio::time::sleep(pause).await;
    }
}

/// Breaks the connection at the next commit; waits for the commit only for a limited time.
async fn at_commit(link: &Link, landed: CutPoint) {
    let before = link.times_cut();
    link.cut_at_commit(landed);
    let _ = tokio::time::timeout(Duration::from_secs(3), link.was_cut(before + 1)).await;
}

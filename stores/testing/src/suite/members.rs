//! A store on a cluster of servers whose members are killed and stand still, the leader first,
//! while writers commit: every acknowledged commit is there afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, StoredRow, SystemStore};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Trouble;
use crate::process::Frozen;
use crate::suite::Store;
use crate::suite::rows::{NUMBERS, must_commit, number, row};

/// The writers, each with a store of its own.
const WRITERS: usize = 16;
/// The commits that are acknowledged between two events.
const BETWEEN: i64 = 80;
/// Longest time until a cluster continues after an event.
const GOES_ON_LIMIT: Duration = Duration::from_secs(90);

/// Several servers that are one.
pub trait Members: Send {
    /// The URL of an empty store on them.
    fn url(&self) -> String;

    /// The number of members.
    fn count(&self) -> usize;

    /// The member that leads, if one does; where all are equal, any.
    fn leader(&self) -> Option<usize>;

    /// The main process of a member.
    fn pid(&self, member: usize) -> u32;

    /// Kills a member as a crash would.
    fn kill(&mut self, member: usize);

    /// Starts a member again on its data, as one of the cluster. `Ok` also when it does not serve
    /// yet.
    ///
    /// # Errors
    /// It does not start.
    fn start_again(&mut self, member: usize) -> Result<(), Trouble>;
}

/// Events of the members.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    /// Each member is killed, and not the leader alone.
    pub each: bool,
    /// The leader stands still, too.
    pub freeze: bool,
}

impl Events {
    /// The leader is killed, and stands still.
    pub const ALL: Self = Self { each: false, freeze: true };
}

/// Outcomes of the commits of [`outlive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The commits that were acknowledged.
    pub acknowledged: i64,
    /// Number of commits with an unknown outcome.
    pub unknown: i64,
    /// Number of commits that are there at the end.
    pub there: i64,
}

impl Told {
    /// The acknowledged commits that are not there, at least.
    pub fn lost(&self) -> i64 {
        (self.acknowledged - self.there).max(0)
    }
}

#[derive(Default)]
struct Tally {
    acknowledged: AtomicI64,
    conflicts: AtomicI64,
    unknown: AtomicI64,
    failed: AtomicI64,
}

impl Tally {
    fn of(&self) -> [i64; 4] {
        [&self.acknowledged, &self.conflicts, &self.unknown, &self.failed]
            .map(|count| count.load(Ordering::SeqCst))
    }
}

/// The version row and its number, which is the sum of all writers' commits.
///
/// # Panics
/// It is not: the read is no moment.
fn whole(rows: &[StoredRow]) -> (Option<&StoredRow>, i64) {
    let (version, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.row.key() == VERSION_ROW);
    let sum: i64 = others.iter().map(|row| number(row)).sum();
    let version = version.into_iter().next();
    assert_eq!(version.map_or(0, number), sum, "torn: {rows:?}");
    (version, sum)
}

/// Reads the version and commits, on and on. Unless commits may be lost, a writer finds its own
/// last one each time.
async fn write(
    store: Arc<dyn SystemStore>,
    me: String,
    tally: Arc<Tally>,
    may_lose: bool,
    done: watch::Receiver<bool>,
) {
    let count = |of: &AtomicI64| of.fetch_add(1, Ordering::SeqCst);
    let (mut mine, mut in_doubt) = (0, 0);
    while !*done.borrow() {
        let rows = match store.read_partition(&NUMBERS, "p").await {
            Ok(rows) => rows,
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                count(&tally.failed);
                continue;
            }
        };
        let (version, sum) = whole(&rows);
        let found = rows.iter().find(|row| row.row.key() == me).map_or(0, number);
        assert!(
            may_lose || (mine..=mine + in_doubt).contains(&found),
            "{me} finds {found} of its commits, not {mine}"
        );
        (mine, in_doubt) = (found, 0);
        let next = row(VERSION_ROW, sum + 1);
        let version = match version {
            Some(version) => Mutation::Replace { row: next, etag: version.etag.clone() },
            None => Mutation::Insert { row: next },
        };
        let commit = vec![version, Mutation::Upsert { row: row(me.clone(), mine + 1) }];
        match store.commit(&NUMBERS, "p", commit).await {
            Ok(CommitOutcome::Committed(_)) => {
                mine += 1;
                count(&tally.acknowledged);
            }
            Ok(CommitOutcome::Conflict(at)) => {
                assert_eq!(at, 0);
                count(&tally.conflicts);
            }
            // The next read says whether it happened.
            Ok(CommitOutcome::Unknown(_)) => {
                in_doubt = 1;
                count(&tally.unknown);
            }
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                count(&tally.failed);
            }
        }
    }
}

/// Kills the leader and starts it again, freezes the leader and lets it continue, as `events` says,
/// while `WRITERS` commit; then counts. Unless commits may be lost, no writer misses one of its
/// own.
///
/// # Panics
/// A read is torn or goes back, or the cluster does not continue within `GOES_ON_LIMIT`.
pub async fn outlive(
    members: &mut impl Members,
    opener: Store,
    events: Events,
    may_lose: bool,
) -> Told {
    let url = members.url();
    opener.patient(&url).await.ensure_tables(&[&NUMBERS]).await.unwrap();
    let (done, is_done) = watch::channel(false);
    let (tally, mut tasks) = (Arc::new(Tally::default()), JoinSet::new());
    for n in 0..WRITERS {
        let store = (opener.open)(url.clone()).await.unwrap();
        let (tally, is_done) = (tally.clone(), is_done.clone());
        tasks.spawn(write(store, format!("w{n}"), tally, may_lose, is_done));
    }
    let started = Instant::now();
    some_more(&tally, &mut tasks).await;
    say("all members", &tally, started);
    let mut whose = vec![None];
    whose.extend((0..members.count()).filter(|_| events.each).map(Some));
    for member in &whose {
        let member = member.unwrap_or_else(|| leader(members));
        let begun = Instant::now();
        tokio::task::block_in_place(|| members.kill(member));
        some_more(&tally, &mut tasks).await;
        say(&format!("without member {member}"), &tally, begun);
        let begun = Instant::now();
        tokio::task::block_in_place(|| members.start_again(member)).unwrap();
        some_more(&tally, &mut tasks).await;
        say(&format!("member {member} is back"), &tally, begun);
    }
    for member in whose.iter().filter(|_| events.freeze) {
        let member = member.unwrap_or_else(|| leader(members));
        let begun = Instant::now();
        let pid = members.pid(member);
        let frozen = tokio::task::block_in_place(|| Frozen::whole(pid)).unwrap();
        some_more(&tally, &mut tasks).await;
        say(&format!("member {member} stands still"), &tally, begun);
        let begun = Instant::now();
        tokio::task::block_in_place(|| drop(frozen));
        some_more(&tally, &mut tasks).await;
        say(&format!("member {member} goes on"), &tally, begun);
    }
    done.send_replace(true);
    tasks.join_all().await;
    let store = opener.patient(&url).await;
    let rows = store.read_partition(&NUMBERS, "p").await.unwrap();
    let (_, there) = whole(&rows);
    let [acknowledged, _, unknown, _] = tally.of();
    must_commit(&store, "after", vec![Mutation::Upsert { row: row("r", 1) }]).await;
    let told = Told { acknowledged, unknown, there };
    println!("{told:?}");
    assert!(there <= acknowledged + unknown, "commits that nobody sent: {told:?}");
    assert!(may_lose || there >= acknowledged, "acknowledged commits are lost: {told:?}");
    told
}

/// The leader, once there is one.
fn leader(members: &impl Members) -> usize {
    let begun = Instant::now();
    loop {
        if let Some(leader) = members.leader() {
            return leader;
        }
        assert!(begun.elapsed() < GOES_ON_LIMIT, "nobody leads");
        std::thread::sleep(crate::process::POLL);
    }
}

/// Waits until `BETWEEN` further commits were acknowledged.
async fn some_more(tally: &Tally, tasks: &mut JoinSet<()>) {
    let (before, begun) = (tally.acknowledged.load(Ordering::SeqCst), Instant::now());
    while tally.acknowledged.load(Ordering::SeqCst) < before + BETWEEN {
        if let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
        assert!(begun.elapsed() < GOES_ON_LIMIT, "nothing is committed any more: {:?}", tally.of());
        tokio::task::yield_now().await;
    }
}

fn say(what: &str, tally: &Tally, begun: Instant) {
    let [acknowledged, conflicts, unknown, failed] = tally.of();
    println!(
        "{what}: {:.1} s for {BETWEEN} more commits; {acknowledged} acknowledged, {conflicts} \
         conflicts, {unknown} unknown, {failed} failed",
        begun.elapsed().as_secs_f32()
    );
}

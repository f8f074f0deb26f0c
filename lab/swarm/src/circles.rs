//! R11: a circle of calls ends within a second, with `Deadlock` for one of them, as soon as nothing
//! is broken.
//!
//! When all is quiet nothing else may end a circle. While silos, network or store fail, any of its
//! calls may end for another reason; but a circle that stands ends at most a second after
//! everything is well again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use emmer::test::Cluster;
use emmer::{Client, millis};
use emmer_core::SiloStatus;
use tokio::time::Instant;

use crate::ledger;
use crate::orders::{Order, Step, Subject};
use crate::plan::Plan;

/// Grains from this one on are called by nothing else.
const OURS: u64 = 1_000_000;

/// First grain of circles among faults.
const AMONG_FAULTS: u64 = 2_000_000;

/// The most grains of a circle among faults.
const LENGTH_MAX: u64 = 4;

/// Time for which a turn of a circle holds its grain before it calls the next one: all of them have
/// begun by then.
const HOLD_MS: u64 = 500;

/// Among faults some take so much longer.
const HOLD_MORE_MS: u64 = 2_500;

/// The time that each turn of a circle has.
const TURN_MS: u64 = 20_000;

/// The time that each call of a circle has.
const CALL_MS: u64 = 15_000;

/// The longest time for which a circle stands: docs/concurrency.md says a second.
const FOUND_WITHIN: Duration = Duration::from_millis(1_010);

/// Activation takes its time as well, in front of the wait.
const ACTIVATION: Duration = Duration::from_millis(200);

/// A circle among faults.
struct Circle {
    /// Number of its calls that are not made yet.
    missing: u64,
    /// Since when it stands.
    since: Option<Instant>,
}

#[derive(Default)]
struct Book {
    made: u64,
    circles: BTreeMap<u64, Circle>,
    /// The circle that each call is a part of.
    members: BTreeMap<u64, u64>,
    /// Since when nothing is broken.
    whole_since: Option<Instant>,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    BOOK.take();
}

/// A call of a circle, as long as its turn waits for it.
pub(crate) struct Stands(u64);

/// A turn begins to wait for a call; if that is a part of a circle, it stands now.
pub(crate) fn asks(call: u64) -> Option<Stands> {
    BOOK.with_borrow_mut(|book| {
        let number = book.members.remove(&call)?;
        let circle = book.circles.get_mut(&number)?;
        circle.missing = circle.missing.saturating_sub(1);
        circle.since = (circle.missing == 0).then(Instant::now);
        Some(Stands(number))
    })
}

impl Drop for Stands {
    fn drop(&mut self) {
        BOOK.with_borrow_mut(|book| book.circles.remove(&self.0));
    }
}

/// Something is about to break.
pub(crate) fn breaks() {
    BOOK.with_borrow_mut(|book| book.whole_since = None);
}

/// Looks at the circles that stand. Nothing is broken but what shows here.
pub(crate) fn look(cluster: &Cluster) {
    let is_whole = is_whole(cluster);
    let stands = BOOK.with_borrow_mut(|book| {
        book.whole_since =
            if is_whole { book.whole_since.or_else(|| Some(Instant::now())) } else { None };
        let whole_since = book.whole_since?;
        let since = book.circles.values().filter_map(|circle| circle.since).min()?;
        Some(since.max(whole_since).elapsed())
    });
    if let Some(stands) = stands.filter(|stands| *stands > FOUND_WITHIN) {
        ledger::violate(
            "R11",
            format!("a circle of calls stands for {stands:?} while nothing is broken"),
        );
    }
}

/// Returns true if every silo runs, and knows that all run.
fn is_whole(cluster: &Cluster) -> bool {
    let nodes = cluster.nodes();
    nodes.iter().all(|node| {
        let alive = |(silo, status)| (status != SiloStatus::Dead).then_some((silo, status));
        let alive: Vec<_> = node.view().into_iter().filter_map(alive).collect();
        let named = |(silo, status)| {
            status == SiloStatus::Active && nodes.iter().any(|other| other.address() == silo)
        };
        !node.has_ended() && alive.len() == nodes.len() && alive.into_iter().all(named)
    })
}

/// Makes a circle of up to four grains, which is judged while it stands.
pub(crate) fn make(client: &Client) {
    let number = BOOK.with_borrow_mut(|book| {
        book.made += 1;
        book.made
    });
    let length = 2 + ledger::below(LENGTH_MAX - 1);
    let first = AMONG_FAULTS + LENGTH_MAX * number;
    for n in 0..length {
        let order = Order::nothing();
        BOOK.with_borrow_mut(|book| book.members.insert(order.call, number));
        let hold = HOLD_MS + ledger::below(HOLD_MORE_MS);
        let turn = turn(client, first + n, first + (n + 1) % length, (hold, order));
        tokio::spawn(async move {
            let _ = turn.await;
        });
    }
    BOOK.with_borrow_mut(|book| {
        book.circles.insert(number, Circle { missing: length, since: None })
    });
}

/// A turn of `grain` that holds it for some milliseconds, and then makes a call to `next`.
fn turn(
    client: &Client,
    grain: u64,
    next: u64,
    (hold, order): (u64, Order),
) -> impl Future<Output = Result<u64, String>> + Send + use<> {
    let steps = vec![Step::Wait(hold), Step::Call { grain: next, timeout_ms: CALL_MS, order }];
    let grain = client.grain::<dyn Subject>(grain);
    // Its own call inherits the rest of this time.
    let until_ms = ledger::now_ms() + TURN_MS;
    let order = Order { steps, until_ms, ..Order::nothing() };
    let number = order.call;
    async move {
        let answer = grain.work(order).timeout(millis(TURN_MS)).await;
        crate::answers::judge(number, &answer);
        answer.map_err(|e| e.to_string())
    }
}

/// R11 when all is quiet: circles of one, two and three grains. Each turn calls the next grain
/// while that one's turn runs.
pub(crate) async fn when_quiet(client: &Client, plan: &Plan) {
    for length in 1..=3u64 {
        let first = OURS + plan.grains + 10 * length;
        let mut inner = Vec::new();
        let mut turns = tokio::task::JoinSet::new();
        let begun = Instant::now();
        for n in 0..length {
            let order = Order::nothing();
            inner.push(order.call);
            turns.spawn(turn(client, first + n, first + (n + 1) % length, (HOLD_MS, order)));
        }
        while let Some(ended) = turns.join_next().await {
            if let Ok(Err(e)) = ended {
                ledger::violate("R11", format!("a turn of a circle of {length} fails: {e}"));
            }
        }
        let took = begun.elapsed().saturating_sub(Duration::from_millis(HOLD_MS));
        if took > FOUND_WITHIN + ACTIVATION {
            ledger::violate("R11", format!("a circle of {length} stood for {took:?}"));
        }
        let told: Vec<_> = inner.into_iter().map(ledger::told_why).collect();
        let ended = |how: &str| told.iter().filter(|why| **why == how).count();
        // One call fails, and the others continue.
        let is_well = ended("deadlock") == 1 && ended("an answer") == told.len() - 1;
        if !is_well {
            ledger::violate("R11", format!("the calls of a circle of {length} ended as {told:?}"));
        }
    }
}

//! R13: no call runs out of time in front of a free grain. R14: an activation that has asked to go
//! lets no later call in. R15: a grain's queue has its limit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use emmer::CallError;
use emmer::test::Cluster;
use tokio::time::Instant;

use crate::ledger;
use crate::orders::Order;

/// A grain that was free for this time at the end of a call's time could have taken the call.
const FREE_FOR: Duration = Duration::from_millis(1_500);

/// Calls with less time than this are not asked.
const ASKED_FROM_MS: u64 = 2_000;

/// Number of calls that wait for one grain in plans with `tight=yes`; one more is refused.
pub(crate) const TIGHT_QUEUE: u32 = 3;

/// Callers that kept their call, lost their place and come back to it are not refused; nor is the
/// closer of the activation.
const COME_BACK_MAX: u32 = 8;

/// Turns inside a grain, and since when it is free.
struct Grain {
    inside: u32,
    free_since: Instant,
}

#[derive(Default)]
struct Book {
    grains: BTreeMap<u64, Grain>,
    /// When an activation has asked to go, in milliseconds since the world began.
    rests: BTreeMap<u64, u64>,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    BOOK.take();
}

/// A turn or a hook inside a grain.
pub(crate) struct Inside(u64);

/// A turn or a hook of a grain begins.
pub(crate) fn enters(grain: u64) -> Inside {
    BOOK.with_borrow_mut(|book| {
        let found = book
            .grains
            .entry(grain)
            .or_insert_with(|| Grain { inside: 0, free_since: Instant::now() });
        found.inside += 1;
    });
    Inside(grain)
}

impl Drop for Inside {
    fn drop(&mut self) {
        BOOK.with_borrow_mut(|book| {
            if let Some(grain) = book.grains.get_mut(&self.0) {
                grain.inside = grain.inside.saturating_sub(1);
                grain.free_since = Instant::now();
            }
        });
    }
}

/// Time for which a grain has been free; without end when it always was.
fn free_for(grain: u64) -> Duration {
    BOOK.with_borrow(|book| match book.grains.get(&grain) {
        Some(grain) if grain.inside > 0 => Duration::ZERO,
        Some(grain) => grain.free_since.elapsed(),
        None => Duration::MAX,
    })
}

/// A call to a grain has ended that was waited for all the time, `asked_ms` long at most. Judged
/// where silos only leave in good order, if anything happens at all.
pub(crate) fn judge<T, E>(call: u64, grain: u64, asked_ms: u64, answer: &Result<T, CallError<E>>) {
    let Err(
        CallError::Timeout { .. } | CallError::Unreachable { .. } | CallError::ShuttingDown { .. },
    ) = answer
    else {
        return;
    };
    if asked_ms < ASKED_FROM_MS || !ledger::is_calm() || ledger::has_begun(call) {
        return;
    }
    let free_for = free_for(grain);
    if free_for >= FREE_FOR {
        let what = format!(
            "call {call} had {asked_ms} ms, and nobody was inside grain {grain} in the last \
             {free_for:?}"
        );
        ledger::violate("R13", what);
    }
}

/// An activation asks to go.
pub(crate) fn rests(activation: u64) {
    let now = ledger::now_ms();
    BOOK.with_borrow_mut(|book| {
        book.rests.entry(activation).or_insert(now);
    });
}

/// A call begins on an activation.
pub(crate) fn begins(order: &Order, grain: u64, activation: u64) {
    let Order { call, made_ms, is_awaited, .. } = *order;
    let waited = Duration::from_millis(ledger::now_ms().saturating_sub(made_ms));
    let free_for = free_for(grain);
    if is_awaited
        && ledger::is_calm()
        && waited.min(free_for) >= FREE_FOR
        && free_for < Duration::MAX
    {
        let what = format!(
            "call {call} begins after {waited:?}, and nobody was inside grain {grain} for \
             {free_for:?}"
        );
        ledger::violate("R13", what);
    }
    let asked = BOOK.with_borrow(|book| book.rests.get(&activation).copied());
    if let Some(asked) = asked.filter(|asked| made_ms > asked + 1) {
        let later = made_ms - asked;
        ledger::violate(
            "R14",
            format!("call {call} was made {later} ms after the activation asked to go"),
        );
    }
}

/// Looks at the queues of a world in which they are short.
pub(crate) fn look(cluster: &Cluster) {
    for node in cluster.nodes() {
        for queue in node.longest_queues(1) {
            if queue.waiting > TIGHT_QUEUE {
                ledger::reach("a queue beyond its limit");
            }
            if queue.waiting > TIGHT_QUEUE + COME_BACK_MAX {
                let what = format!(
                    "{} calls wait for grain {}, {TIGHT_QUEUE} may",
                    queue.waiting, queue.key
                );
                ledger::violate("R15", what);
            }
        }
    }
}

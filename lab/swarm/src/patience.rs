//! R9: a call that certainly did not run is not given up before its time.
//!
//! It is tried again until its deadline (docs/calls.md), so a caller gets `unreachable` or
//! `shutting_down` only when no time was left for another try. Where silos only leave in good
//! order, calls that they have not begun are tried again elsewhere, so a call that never ran is
//! reported as such. (A silo whose turns take longer than it waits for them leaves all the same,
//! and its calls are lost. That is allowed.)

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use emmer::CallError;
use tokio::time::Instant;

use crate::ledger;

/// The longest pause between two tries, the tick of the runtime's clock, and a try.
const LAST_PAUSE_MS: u64 = 300;

/// A silo that has left within this time has answered or handed back every call that it had: it
/// waits 55 s for them.
const IN_TIME: Duration = Duration::from_secs(50);

/// A caller that keeps its call may hear that long after a silo has left what became of it.
const HEARD_WITHIN: Duration = Duration::from_secs(40);

/// Calls of unknown outcome, each with the reason.
#[derive(Default)]
struct Book {
    doubtful: BTreeMap<u64, String>,
    /// Calls of them that must have run.
    judged: BTreeMap<u64, String>,
    /// Until then a caller may hear of a silo that has left and did not answer in time.
    let_pass_until: Option<Instant>,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    BOOK.take();
}

/// A call with a deadline has ended.
pub(crate) fn judge<T, E: std::fmt::Debug>(
    call: u64,
    until_ms: u64,
    answer: &Result<T, CallError<E>>,
) {
    let Err(e) = answer else { return };
    let is_passing = matches!(e, CallError::Unreachable { .. } | CallError::ShuttingDown { .. });
    if !is_passing {
        return;
    }
    let left = until_ms.saturating_sub(ledger::now_ms());
    if e.maybe_executed() {
        BOOK.with_borrow_mut(|book| {
            if book.let_pass_until.is_none_or(|until| until < Instant::now()) {
                book.doubtful.insert(call, format!("{e:?}"));
            }
        });
    } else if left > LAST_PAUSE_MS {
        ledger::violate(
            "R9",
            format!("call {call} was given up {left} ms before its deadline: {e:?}"),
        );
    }
}

/// A silo has left in good order and took this long; meanwhile the others have learned it.
pub(crate) fn left(took: Duration) {
    BOOK.with_borrow_mut(|book| {
        let doubtful = std::mem::take(&mut book.doubtful);
        if took <= IN_TIME {
            ledger::reach("a silo that left in time");
            book.judged.extend(doubtful);
        } else {
            book.let_pass_until = Some(Instant::now() + HEARD_WITHIN);
        }
    });
}

/// At the end: no caller was left in doubt over a call that has never run.
pub(crate) fn judge_doubts() {
    for (call, why) in BOOK.take().judged {
        if !ledger::has_begun(call) {
            ledger::violate(
                "R9",
                format!("call {call} has never run, and was not tried again: {why}"),
            );
        }
    }
}

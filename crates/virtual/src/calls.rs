//! The acts of a test on calls under way: they are counted, delayed, and made to fail.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

/// Failure of a call that a test lets fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The grain's silo cannot be reached. The call does not run.
    Unreachable,
    /// A limit was reached. The call does not run.
    Overloaded,
    /// The grain's silo refuses it. The call does not run.
    Rejected,
    /// The call runs, and its answer is lost: the caller hears that it may have run.
    LostAnswer,
}

/// Fate of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFate {
    /// So much later it sets off.
    pub delay: Duration,
    /// Failure, if it fails.
    pub fault: Option<CallFault>,
}

/// The calls of a world: how many were made, and what happens to those that are made.
#[derive(Debug, Default)]
pub struct Calls {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// By grain type and method.
    counts: BTreeMap<(&'static str, &'static str), u64>,
    /// By a name: see [`Calls::count`].
    rules: BTreeMap<String, Rule>,
}

#[derive(Debug, Default)]
struct Rule {
    delay: Duration,
    always: Option<CallFault>,
    next: VecDeque<CallFault>,
}

/// Returns true if a name means this method: `account` means all of the grain type,
/// `account.deposit` one.
fn means(name: &str, grain: &str, method: &str) -> bool {
    let rest = name.strip_prefix(grain);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.') == Some(method))
}

impl Calls {
    /// Counts a call, and returns the fault that it meets.
    pub fn meets(&self, grain: &'static str, method: &'static str) -> CallFate {
        let mut book = self.book.lock();
        *book.counts.entry((grain, method)).or_default() += 1;
        let mut fate = CallFate::default();
        for (_, rule) in book.rules.iter_mut().filter(|(name, _)| means(name, grain, method)) {
            fate.delay = fate.delay.max(rule.delay);
            if fate.fault.is_none() {
                fate.fault = rule.next.pop_front().or(rule.always);
            }
        }
        fate
    }

    /// Number of calls of this name since the world began: `account.deposit`, or `account` for all
    /// methods of the grain type.
    pub fn count(&self, name: &str) -> u64 {
        let book = self.book.lock();
        book.counts
            .iter()
            .filter(|((grain, method), _)| means(name, grain, method))
            .map(|(_, n)| n)
            .sum()
    }

    /// Every call of this name sets off so much later.
    pub fn delay(&self, name: &str, by: Duration) {
        self.rule(name, |rule| rule.delay = by);
    }

    /// The next call of this name fails; the next request decides about the call after it.
    pub fn fail_next(&self, name: &str, how: CallFault) {
        self.rule(name, |rule| rule.next.push_back(how));
    }

    /// Every call of this name fails.
    pub fn fail(&self, name: &str, how: CallFault) {
        self.rule(name, |rule| rule.always = Some(how));
    }

    /// Lets calls of this name go their way again.
    pub fn recover(&self, name: &str) {
        self.book.lock().rules.remove(name);
    }

    fn rule(&self, name: &str, change: impl FnOnce(&mut Rule)) {
        change(self.book.lock().rules.entry(name.to_owned()).or_default());
    }
}

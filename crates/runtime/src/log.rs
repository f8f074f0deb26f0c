//! What an operator reads: what one view changed, and warnings. A warning of one kind is written at
//! most once in ten seconds, and then says how many like it were left out.

use std::collections::BTreeSet;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloEntry};
use emmer_membership::View;
use emmer_membership::changes::{Change, What, changes};
use parking_lot::Mutex;

use crate::clock;

const EVERY: Duration = Duration::from_secs(10);

/// When the last line of a kind was written, and how many were left out since.
#[derive(Debug)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// As [`may_say`](Self::may_say), of the lines of this process: 0 left out is none.
    pub(crate) fn may_say_now(&self) -> Option<Option<u64>> {
        self.may_say(clock::of_the_log()).map(|left_out| Some(left_out).filter(|n| *n > 0))
    }

    /// Returns how many lines were left out before this one; none if this one is left out too.
    pub(crate) fn may_say(&self, now: Instant) -> Option<u64> {
        let (last, left_out) = &mut *self.0.lock();
        if last.is_some_and(|last| now.saturating_since(last) < EVERY) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

/// Writes a warning, as `tracing::warn!` does, unless one from the same place was written in the
/// last ten seconds.
macro_rules! warn_seldom {
    ($($told:tt)*) => {{
        static SELDOM: $crate::log::Seldom = $crate::log::Seldom::new();
        if let Some(left_out) = SELDOM.may_say_now() {
            tracing::warn!(left_out, $($told)*);
        }
    }};
}
pub(crate) use warn_seldom;

/// If a view changes more silos than this in one way, it has one line for all of them.
const EACH_MAX: usize = 8;

/// A silo as an operator knows it: its name and its address.
pub(crate) fn named(silo: &SiloEntry) -> String {
    format!("{} ({})", silo.instance_name, silo.address)
}

/// Tells what a view that is in force now has changed.
pub(crate) fn tell_view(me: SiloAddress, before: &View, after: &View) {
    let (version, active) = (after.version(), after.active_count());
    let all = changes(before, after);
    let like = |one: &Change| all.iter().filter(|c| c.what.word() == one.what.word()).count();
    let mut summed_up = BTreeSet::new();
    for change in &all {
        let (what, count) = (&change.what, like(change));
        if count > EACH_MAX {
            if summed_up.insert(what.word()) {
                tracing::info!(%me, version, active, silos = count, "{what} (of many)");
            }
            continue;
        }
        let silo = named(&change.silo);
        let evidence = Some(what.evidence().join("; ")).filter(|text| !text.is_empty());
        match what {
            What::Suspected { .. } | What::Died { .. } | What::GivenUp | What::Replaced { .. } => {
                tracing::warn!(%me, version, active, silo, evidence, "{what}");
            }
            _ => tracing::info!(%me, version, active, silo, "{what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_says_how_many_were_left_out() {
        let seldom = Seldom::new();
        let at = |millis| seldom.may_say(Instant::from_millis(millis));
        assert_eq!([at(0), at(1), at(9_999), at(10_000)], [Some(0), None, None, Some(2)]);
    }
}

//! The lines for an operator: the changes of a view, and warnings. A warning of one kind is written
//! at most once in ten seconds, and then says how many like it were left out.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use emmer_core::{Instant, SiloAddress};
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

/// Tells what a view that is in force now has changed.
pub(crate) fn tell_view(me: SiloAddress, before: &View, after: &View) {
    let (version, active) = (after.version(), after.active_count());
    for Line { what, is_warning, silo, silos, evidence } in lines(&changes(before, after)) {
        if is_warning {
            tracing::warn!(%me, version, active, silo, silos, evidence, "{what}");
        } else {
            tracing::info!(%me, version, active, silo, silos, evidence, "{what}");
        }
    }
}

/// A line about one silo, or about as many as `silos` says.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    what: String,
    is_warning: bool,
    /// Its name and its address.
    silo: Option<String>,
    silos: Option<usize>,
    evidence: Option<String>,
}

fn lines(all: &[Change]) -> Vec<Line> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|change| *counts.entry(change.what.word()).or_default() += 1);
    let mut lines = Vec::new();
    for Change { silo, what } in all {
        let mut line = Line {
            what: what.to_string(),
            is_warning: matches!(
                what,
                What::Suspected { .. } | What::Died { .. } | What::GivenUp | What::Replaced { .. }
            ),
            silo: None,
            silos: None,
            evidence: None,
        };
        match counts.get(what.word()).copied() {
            // The line for all of them was written.
            None => continue,
            Some(many) if many > EACH_MAX => {
                counts.remove(what.word());
                line.silos = Some(many);
            }
            Some(_) => {
                line.silo = Some(format!("{} ({})", silo.instance_name, silo.address));
                line.evidence = Some(what.evidence().join("; ")).filter(|text| !text.is_empty());
            }
        }
        lines.push(line);
    }
    lines
}

/// Words of another process or of a grain, for a terminal or a log. It shows control characters as
/// text.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| {
            if char.is_control() {
                write!(f, "{}", char.escape_default())
            } else {
                f.write_char(char)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use emmer_core::{SiloEntry, SiloStatus, Timestamp};

    use super::*;

    #[test]
    fn words_of_others_say_nothing_to_a_terminal() {
        let shown = Plain("no\u{1b}[2J\nnever\u{9b}").to_string();
        assert_eq!(shown, "no\\u{1b}[2J\\nnever\\u{9b}");
    }

    #[test]
    fn one_line_in_ten_seconds_says_how_many_were_left_out() {
        let seldom = Seldom::new();
        let at = |millis| seldom.may_say(Instant::from_millis(millis));
        assert_eq!([at(0), at(1), at(9_999), at(10_000)], [Some(0), None, None, Some(2)]);
    }

    #[test]
    fn many_silos_that_change_alike_have_one_line_of_the_same_level() {
        let change = |n: usize, what: What| {
            let address = format!("10.0.0.1:{}:7", 1_000 + n).parse().unwrap();
            let mut silo = SiloEntry::new(address, SiloStatus::Dead, Timestamp::from_millis(0));
            silo.instance_name = format!("s{n}").into();
            Change { silo: Arc::new(silo), what }
        };
        let died = |n| change(n, What::Died { votes: Vec::new() });
        let few: Vec<_> = (0..EACH_MAX).map(died).collect();
        let told = lines(&few);
        assert!(told.len() == EACH_MAX && told.iter().all(|line| line.is_warning));
        assert_eq!(told[3].silo.as_deref(), Some("s3 (10.0.0.1:1003:7)"));
        let mut many: Vec<_> = (0..=EACH_MAX).map(died).collect();
        many.push(change(99, What::Joined));
        let told = lines(&many);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].is_warning && told[0].silos == Some(EACH_MAX + 1), "{told:?}");
        assert!(!told[1].is_warning && told[1].silo.is_some(), "{told:?}");
    }
}

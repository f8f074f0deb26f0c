//! The silos that became Active lately, with the times.
//!
//! Thousands of silos become Active within seconds when a large cluster starts. So this keeps the
//! step that made them Active, which the silo holds anyway, instead of each silo.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use crate::bits::Bits;
use crate::delta::Delta;
use crate::view::View;

/// The most steps kept: far more than a table takes commits in the few seconds that count.
const STEPS_MAX: usize = 4_096;

/// The silos that became Active by one change of the view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// These rows of one step, by position.
    Step(Arc<Delta>, Bits),
    /// Silos that are Active in the second view and were not in the first; views may lie between
    /// the two.
    Jump(Arc<View>, Arc<View>),
}

impl Who {
    fn has(&self, silo: &SiloAddress) -> bool {
        match self {
            Self::Step(delta, which) => which.iter().any(|at| delta.rows()[at].address == *silo),
            Self::Jump(before, after) => {
                let is_active = |view: &View| view.status_of(silo) == Some(SiloStatus::Active);
                is_active(after) && !is_active(before)
            }
        }
    }
}

/// Silos that became Active lately, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Risen {
    steps: VecDeque<(Instant, Who)>,
    /// The last time at which a silo became Active for which there was no room.
    crowded_out: Option<Instant>,
}

impl Risen {
    /// Forgets what happened `span` ago or earlier.
    pub(crate) fn forget(&mut self, now: Instant, span: Duration) {
        let is_old = |since: &Instant| now.saturating_since(*since) >= span;
        while self.steps.front().is_some_and(|(since, _)| is_old(since)) {
            self.steps.pop_front();
        }
        self.crowded_out = self.crowded_out.filter(|since| !is_old(since));
    }

    /// They became Active now.
    pub(crate) fn note(&mut self, now: Instant, who: Who) {
        if self.steps.len() >= STEPS_MAX {
            self.crowded_out = self.steps.pop_front().map(|(since, _)| since);
        }
        self.steps.push_back((now, who));
    }

    /// Time since when `silo` is Active, if it became so lately. A silo that may have been crowded
    /// out counts as one of them: too young is safe.
    pub(crate) fn since(&self, silo: &SiloAddress) -> Option<Instant> {
        let step = self.steps.iter().rev().find(|(_, who)| who.has(silo));
        step.map(|(since, _)| *since).or(self.crowded_out)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{SiloEntry, TableVersion, Timestamp};

    use super::*;

    fn silo(port: u16) -> SiloAddress {
        format!("10.0.0.1:{port}:1").parse().unwrap()
    }

    fn view(number: u64, rows: &[(u16, SiloStatus)]) -> Arc<View> {
        let row = |(port, status): &(u16, SiloStatus)| {
            Arc::new(SiloEntry::new(silo(*port), *status, Timestamp::default()))
        };
        Arc::new(View::new(
            TableVersion { number, etag: "e".into(), ..TableVersion::default() },
            rows.iter().map(row).collect(),
        ))
    }

    fn at(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    #[test]
    fn a_jump_names_who_was_not_active_before() {
        use SiloStatus::{Active, Joining};
        let before = view(1, &[(1, Active), (2, Joining)]);
        let after = view(4, &[(1, Active), (2, Active), (3, Active), (4, Joining)]);
        let mut risen = Risen::default();
        risen.note(at(7), Who::Jump(before, after));
        let since: Vec<_> = (1..=4).map(|port| risen.since(&silo(port))).collect();
        assert_eq!(since, [None, Some(at(7)), Some(at(7)), None]);
    }

    #[test]
    fn a_step_names_only_the_rows_that_are_marked_and_the_latest_step_counts() {
        let after = view(2, &[(1, SiloStatus::Active), (2, SiloStatus::Active)]);
        let rows = after.members().to_vec();
        let (delta, _) = Delta::of_commit(
            &View::empty(),
            TableVersion { number: 1, etag: "e".into(), ..TableVersion::default() },
            rows,
            vec![],
            vec![],
        );
        let delta = Arc::new(delta);
        let marked = |which: &[usize]| {
            let mut bits = Bits::new(2);
            which.iter().for_each(|at| assert!(bits.insert(*at)));
            Who::Step(delta.clone(), bits)
        };
        let mut risen = Risen::default();
        risen.note(at(1), marked(&[0, 1]));
        risen.note(at(3), marked(&[1]));
        assert_eq!((risen.since(&silo(1)), risen.since(&silo(2))), (Some(at(1)), Some(at(3))));
        risen.forget(at(5), Duration::from_secs(4));
        assert_eq!((risen.since(&silo(1)), risen.since(&silo(2))), (None, Some(at(3))));
    }

    #[test]
    fn who_may_have_been_crowded_out_counts_as_young() {
        let before = view(1, &[]);
        let after = view(2, &[(1, SiloStatus::Active)]);
        let mut risen = Risen::default();
        for _ in 0..STEPS_MAX {
            risen.note(at(1), Who::Jump(before.clone(), after.clone()));
        }
        assert_eq!(risen.since(&silo(2)), None);
        risen.note(at(2), Who::Jump(before, after));
        assert_eq!((risen.since(&silo(1)), risen.since(&silo(2))), (Some(at(2)), Some(at(1))));
        risen.forget(at(3), Duration::from_secs(2));
        assert_eq!(risen.since(&silo(2)), None);
    }
}

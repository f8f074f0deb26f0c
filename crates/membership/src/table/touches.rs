//! The touches of the own row (membership description, step 14).

use std::time::Duration;

use emmer_core::{Instant, SiloAddress};

use crate::api::{Effect, OpId, TableOutcome, TableRequest};
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::out::Out;
use crate::rules::touch_lasts;
use crate::staleness::EVIDENCE_MAX;
use crate::timers::Timer;

/// Freshness of the own row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Touches {
    under_way: Option<(OpId, Instant)>,
    /// Time at which the last touch that succeeded had been sent.
    touched: Option<Instant>,
    /// Time until which another silo may still count with this silo's row as stale, after a pause
    /// between two touches.
    stale_until: Option<Instant>,
}

impl Touches {
    /// The request under way.
    pub(super) const fn op(&self) -> Option<OpId> {
        match self.under_way {
            Some((op, _)) => Some(op),
            None => None,
        }
    }

    /// Time at which the last touch that succeeded had been sent.
    pub(super) const fn touched(&self) -> Option<Instant> {
        self.touched
    }

    /// The row was as good as touched at `at`: this silo has become Active.
    pub(super) const fn start(&mut self, at: Instant) {
        self.touched = Some(at);
    }

    /// Returns true if no silo counts with this silo's row as stale: it was touched less than
    /// `lasts` ago, and not after too long a pause.
    pub(super) fn is_row_fresh(&self, facts: &Facts, lasts: Duration) -> bool {
        let now = facts.now().mono;
        self.touched.is_some_and(|at| now.saturating_since(at) < lasts)
            && self.stale_until.is_none_or(|until| now >= until)
    }

    /// Touches the own row, as request `op`.
    pub(super) fn touch(&mut self, facts: &Facts, out: &mut Out, op: OpId) {
        let (now, period) = (facts.now(), facts.publish_period());
        self.under_way = Some((op, now.mono));
        // One that is not answered must not keep the next one waiting: the row would stand still
        // for too long.
        let timeout = facts.config().table_timeout.min(period);
        out.timers().set(Timer::TouchTimeout, now.mono + timeout);
        let silo: SiloAddress = facts.me();
        out.effect(Effect::Table { op, request: TableRequest::Touch { silo, at: now.wall } });
    }

    /// Takes the touch of request `op`, if it is a touch, and returns the time at which it was
    /// sent.
    pub(super) fn take(&mut self, out: &mut Out, op: OpId) -> Option<Instant> {
        let (_, sent) = self.under_way.take_if(|(expected, _)| *expected == op)?;
        out.timers().clear(Timer::TouchTimeout);
        Some(sent)
    }

    /// The touch sent at `sent` ended. `rests`: this silo is alone, and rests on its touches.
    pub(super) fn ended(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        outcome: &TableOutcome,
        sent: Instant,
        rests: bool,
    ) {
        let (now, config) = (facts.now().mono, facts.config());
        match outcome {
            TableOutcome::Touched => {
                let lasts = touch_lasts(config, facts.view().active_count());
                if self.touched.is_none_or(|at| sent.saturating_since(at) >= lasts) {
                    // A commit that counts this row as stale may be on its way.
                    self.stale_until = Some(now + EVIDENCE_MAX + config.table_timeout * 2);
                }
                self.touched = Some(sent);
                if rests {
                    // A touch of a Dead row succeeds too.
                    out.tell(Inner::Want(Read::Version));
                }
            }
            // The row is gone: the next full read says why, and ends this silo if it was cleaned
            // up.
            TableOutcome::RowMissing => out.tell(Inner::Want(Read::All)),
            _ => {
                if *outcome == TableOutcome::TableMissing {
                    // The next read says for how long.
                    out.tell(Inner::Want(Read::All));
                }
                // If this silo could not touch its row, perhaps others could not either: their rows
                // are not stale.
                out.tell(Inner::ForgiveRows);
                let again = facts.publish_period().min(config.table_retry_max * 2);
                out.timers().set_no_later(Timer::Touch, now + again);
            }
        }
    }
}

//! The duty of the silo: an operator's word in the membership table, and the silo's obedience.
//!
//! The word comes from a command, over HTTP or from the application. All three write it into the
//! table first. The silo obeys the view, so it never has a duty that the other silos do not see.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::Duty;
use emmer_membership::View;
use emmer_net::clock::wall;
use emmer_net::warn_seldom;
use emmer_net::world;
use emmer_store::operator::{DutyChange, DutyError, Written};

use super::core::SiloCore;
use super::{emptying, lifecycle};

/// Pause after the table could not be told that the silo is drained.
const AGAIN: Duration = Duration::from_secs(5);

/// Time that the silo's own view has to show what the silo has written.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

impl SiloCore {
    /// Writes the silo's duty into the table, and waits until its own view shows that.
    pub(super) async fn change_duty(
        &self,
        duty: Duty,
        from: Option<Duty>,
        because: &str,
    ) -> Result<Written, DutyError> {
        let writer = self.address.to_string();
        let change =
            DutyChange { silo: self.address, duty, from, writer: &writer, because, at: wall() };
        let (written, _) = self.table.change_duty(&change).await?;
        if let Some(error) = &written.unrecorded {
            warn_seldom!(%error, "the history of the membership lacks a change of a duty");
        }
        let shown = async {
            self.cluster.membership.news();
            self.cluster
                .views
                .until(|view| (view.version() >= written.version.number).then_some(()))
                .await;
        };
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => {}
            _ = tokio::time::timeout(SHOWN_WITHIN, shown) => {}
        }
        Ok(written)
    }

    /// Drains the silo. Returns the number of grains that moved, when it is drained, has another
    /// duty or has ended.
    pub(super) async fn drain(&self, because: &str) -> Result<u64, DutyError> {
        let before = self.drained.load(Ordering::Relaxed);
        self.change_duty(Duty::Draining, None, because).await?;
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => {}
            _ = self.until_duty(|duty| duty != Duty::Draining) => {}
        }
        Ok(self.drained.load(Ordering::Relaxed) - before)
    }

    /// Has the silo do what its duty asks for, in tasks of their own; never ends.
    pub(super) async fn follow_duty(self: &Arc<Self>) {
        let leaves = || self.until_duty(|duty| duty == Duty::Leaving);
        loop {
            let duty = self
                .until_duty(|duty| !matches!(duty, Duty::Full | Duty::Cordoned | Duty::Drained));
            let (duty, silo) = (duty.await, self.clone());
            let work = world::spawn(async move {
                match duty {
                    Duty::Draining => silo.be_drained().await,
                    Duty::Giving => silo.give_once().await,
                    _ => lifecycle::stop(&silo).await,
                }
            });
            if duty == Duty::Leaving {
                return std::future::pending().await;
            }
            // A silo that leaves does not wait for the grains that it drains one by one.
            tokio::select! {
                biased;
                _ = work => {}
                _ = leaves() => {}
            }
        }
    }

    /// Waits for a duty that `is_it`, in the view in force.
    async fn until_duty(&self, is_it: impl Fn(Duty) -> bool) -> Duty {
        let found = |view: &Arc<View>| Some(self.duty_in(view)).filter(|duty| is_it(*duty));
        self.cluster.views.until(found).await
    }

    /// Gives grains to silos that have fewer, and says in the table that this is over.
    async fn give_once(&self) {
        self.even_out(|| self.duty() == Duty::Giving).await;
        self.tell_done(Duty::Giving, Duty::Full, "it has about the mean").await;
    }

    /// Empties the silo, and says so in the table.
    async fn be_drained(self: &Arc<Self>) {
        emptying::drain(self, &self.drained).await;
        self.tell_done(Duty::Draining, Duty::Drained, "it is empty").await;
    }

    /// Writes `after` into the table as long as the duty is `done`, until the table has it.
    async fn tell_done(&self, done: Duty, after: Duty, because: &str) {
        while self.duty() == done && !self.stopped.is_cancelled() {
            let Err(error) = self.change_duty(after, Some(done), because).await else { return };
            warn_seldom!(%error, "the table does not show yet that this silo has done its duty");
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}

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
use emmer_store::duties::{DutyChange, DutyChanged, DutyError};

use tokio::task::JoinHandle;

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
    ) -> Result<DutyChanged, DutyError> {
        let writer = self.address.to_string();
        let change =
            DutyChange { silo: self.address, duty, from, writer: &writer, because, at: wall() };
        let changed = self.table.change_duty(&change).await?;
        if let Some(error) = &changed.unrecorded {
            warn_seldom!(%error, "the history of the membership lacks a change of a duty");
        }
        let shown = async {
            self.cluster.membership.news();
            self.cluster
                .views
                .until(|view| (view.version() >= changed.version.number).then_some(()))
                .await;
        };
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => {}
            _ = tokio::time::timeout(SHOWN_WITHIN, shown) => {}
        }
        Ok(changed)
    }

    /// Drains the silo. Returns the number of grains that moved, when it is drained, has another
    /// duty or has ended.
    pub(super) async fn drain(&self, because: &str) -> Result<u64, DutyError> {
        let before = self.drained.load(Ordering::Relaxed);
        self.change_duty(Duty::Draining, None, because).await?;
        let over =
            self.cluster.views.until(|view| (self.duty_in(view) != Duty::Draining).then_some(()));
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => {}
            () = over => {}
        }
        Ok(self.drained.load(Ordering::Relaxed) - before)
    }

    /// Has the silo do what its duty asks for, in tasks of their own; never ends.
    pub(super) async fn follow_duty(self: &Arc<Self>) {
        let (mut seen, mut drain) = (Duty::Full, None::<JoinHandle<()>>);
        loop {
            let next = |view: &Arc<View>| Some(self.duty_in(view)).filter(|duty| *duty != seen);
            seen = self.cluster.views.until(next).await;
            let silo = self.clone();
            match seen {
                Duty::Draining => {
                    let before = drain.take();
                    drain = Some(world::spawn(async move {
                        if let Some(before) = before {
                            let _ = before.await;
                        }
                        silo.be_drained().await;
                    }));
                }
                Duty::Giving => drop(world::spawn(async move { silo.give_once().await })),
                Duty::Leaving => drop(world::spawn(async move { lifecycle::stop(&silo).await })),
                Duty::Full | Duty::Cordoned | Duty::Drained => {}
            }
        }
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

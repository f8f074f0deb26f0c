//! The duty of the silo: an operator's word in the membership table, and the silo's obedience.
//!
//! The word comes from a command, over HTTP or from the application. All three write it into the
//! table first. The silo obeys the view, so it never has a duty that the other silos do not see.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::Duty;
use emmer_net::clock::wall;
use emmer_net::warn_seldom;
use emmer_store::duties::{DutyChange, DutyChanged, DutyError};

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

    /// Does what the duty asks for, until the silo ends.
    pub(super) async fn follow_duty(self: Arc<Self>) {
        let mut done = Duty::Full;
        loop {
            let next = self.cluster.views.until(|view| {
                let duty = self.duty_in(view);
                (duty != done).then_some(duty)
            });
            done = tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                duty = next => duty,
            };
            match done {
                Duty::Draining => self.be_drained().await,
                Duty::Leaving => return lifecycle::stop(&self).await,
                Duty::Full | Duty::Cordoned | Duty::Drained => {}
            }
        }
    }

    /// Empties the silo, and says so in the table.
    async fn be_drained(self: &Arc<Self>) {
        while self.duty() == Duty::Draining && !self.stopped.is_cancelled() {
            emptying::drain(self, &self.drained).await;
            let told = self.change_duty(Duty::Drained, Some(Duty::Draining), "it is empty");
            let Err(error) = told.await else { return };
            warn_seldom!(%error, "the table does not show yet that this silo is drained");
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}

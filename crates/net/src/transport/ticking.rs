//! The connections that the clock matters to: those with calls whose deadlines pass, or with memory
//! to give back. A silo has thousands of connections, and most of them are idle: those are skipped.

use std::sync::Arc;

use emmer_core::CoarseInstant;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Connection;

/// A connection over which nothing comes while calls wait.
pub enum Quiet {
    /// Its peer is asked for a word.
    Asked(Arc<Connection>),
    /// Its peer said nothing. Told of about once a second.
    Silent(Arc<Connection>),
}

/// The result of a look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// There is nothing more to look at.
    Over,
    /// There is.
    Waits,
    /// There is, and its peer is asked for a word: calls wait, and nothing comes.
    Asked,
    /// Its peer is silent although it was asked.
    Silent,
}

/// The connections of one silo or client that each tick of its clock checks: at most one entry for
/// each.
#[derive(Default)]
pub struct Ticking {
    list: Mutex<Vec<Arc<Connection>>>,
    /// There is something to look at again.
    begun: Notify,
}

impl Ticking {
    /// Looks at this one, too, until there is nothing to look at.
    pub(super) fn add(&self, connection: Arc<Connection>) {
        let mut list = self.list.lock();
        list.push(connection);
        if list.len() == 1 {
            self.begun.notify_one();
        }
    }

    /// Returns true if there is nothing to look at.
    pub fn is_calm(&self) -> bool {
        self.list.lock().is_empty()
    }

    /// One more connection has to be checked.
    pub fn begin(&self) {
        self.begun.notify_one();
    }

    /// Waits until there is something to look at again.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }

    /// A tick of the clock. Returns the silent connections to be reported (`silence.rs`).
    #[must_use]
    pub fn tick(&self, now: CoarseInstant) -> Vec<Quiet> {
        let mut looked_at = std::mem::take(&mut *self.list.lock());
        let mut quiet = Vec::new();
        looked_at.retain(|connection| match connection.tick(now) {
            Tick::Over => false,
            Tick::Waits => true,
            Tick::Asked => {
                quiet.push(Quiet::Asked(connection.clone()));
                true
            }
            Tick::Silent => {
                quiet.push(Quiet::Silent(connection.clone()));
                true
            }
        });
        let mut list = self.list.lock();
        if list.is_empty() {
            *list = looked_at;
        } else {
            list.append(&mut looked_at);
        }
        quiet
    }

    /// Number of connections that are checked.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.list.lock().len()
    }
}

impl std::fmt::Debug for Ticking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticking").finish_non_exhaustive()
    }
}

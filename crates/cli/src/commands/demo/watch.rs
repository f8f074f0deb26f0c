//! The membership table, read again and again: every change is shown and kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use emmer::store::{SiloTable, SystemStore};
use emmer::tables::{ClusterId, SiloAddress, SiloEntry};
use tokio::task::JoinHandle;

use super::screen::Screen;
use crate::exit::{Failure, Result};

/// Time between two reads of the table. It is read as a whole; that is cheap for a handful of rows.
const PERIOD: Duration = Duration::from_millis(25);

/// The most changes kept for the report.
const HISTORY_MAX: usize = 1_000;

/// Reads the table until dropped.
pub(super) struct Watcher {
    table: SiloTable,
    screen: Screen,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    version: u64,
    silos: BTreeMap<SiloAddress, SiloEntry>,
    history: Vec<String>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// Makes the table and begins to read it.
    pub(super) async fn start(
        store: Arc<dyn SystemStore>,
        cluster: ClusterId,
        screen: Screen,
    ) -> Result<Self> {
        let table = SiloTable::new(store, cluster);
        table.ensure().await.map_err(Failure::store)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let kept = seen.clone();
        let (reader, shown) = (table.clone(), screen.clone());
        let task = tokio::spawn(async move {
            loop {
                look(&reader, &kept, &shown).await;
                tokio::time::sleep(PERIOD).await;
            }
        });
        Ok(Self { table, screen, seen, task })
    }

    /// Reads the table now, so that nothing written before this call is missed.
    pub(super) async fn refresh(&self) {
        look(&self.table, &self.seen, &self.screen).await;
    }

    /// The membership table.
    pub(super) const fn table(&self) -> &SiloTable {
        &self.table
    }

    /// The first silo that `like` holds for.
    pub(super) fn find(&self, like: impl Fn(&SiloEntry) -> bool) -> Option<SiloEntry> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.silos.values().find(|silo| like(silo)).cloned()
    }

    /// All silos that `like` holds for.
    pub(super) fn all(&self, like: impl Fn(&SiloEntry) -> bool) -> Vec<SiloEntry> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.silos.values().filter(|silo| like(silo)).cloned().collect()
    }

    /// Number of silos that `like` holds for.
    pub(super) fn count(&self, like: impl Fn(&SiloEntry) -> bool) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.silos.values().filter(|silo| like(silo)).count()
    }

    /// Every change since the start, oldest first.
    pub(super) fn history(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).history.clone()
    }
}

/// An unreadable table is read again; a caller that waits for something has a deadline of its own.
async fn look(table: &SiloTable, seen: &Mutex<Seen>, screen: &Screen) {
    if let Ok((version, silos)) = table.read_all().await {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for change in seen.take_in(version.number, silos) {
            screen.event(&change);
        }
    }
}

impl Seen {
    /// Keeps the new content and tells what changed.
    fn take_in(&mut self, version: u64, silos: Vec<SiloEntry>) -> Vec<String> {
        if version <= self.version {
            return Vec::new();
        }
        let mut changes = Vec::new();
        for silo in silos {
            let old = self.silos.get(&silo.address);
            let name = format!("silo {} {}", silo.instance_name, silo.address);
            let votes = old.map_or(&[][..], |old| &old.votes);
            // A silo that leaves signs its own death; that is no suspicion.
            let news = silo
                .votes
                .iter()
                .filter(|vote| !votes.contains(vote) && vote.voter != silo.address);
            for vote in news {
                changes.push(format!("{name} is suspected by {}", self.name_of(&vote.voter)));
            }
            if old.is_none_or(|old| old.status != silo.status) {
                changes.push(format!("{name} is {}", silo.status));
            }
            self.silos.insert(silo.address, silo);
        }
        self.version = version;
        let changes: Vec<_> =
            changes.into_iter().map(|change| format!("v{version:<3} {change}")).collect();
        let room = HISTORY_MAX.saturating_sub(self.history.len());
        self.history.extend(changes.iter().take(room).cloned());
        changes
    }

    fn name_of(&self, silo: &SiloAddress) -> String {
        let known = self.silos.get(silo);
        known.map_or_else(|| silo.to_string(), |known| format!("silo {}", known.instance_name))
    }
}

#[cfg(test)]
mod tests {
    use emmer::tables::{SiloStatus, Timestamp, Vote};

    use super::*;

    #[test]
    fn tells_each_change_once() {
        let address = |port: u16| SiloAddress::new(([127, 0, 0, 1], port).into(), 9);
        let silo = |port: u16, name: &str, status| SiloEntry {
            instance_name: name.into(),
            ..SiloEntry::new(address(port), status, Timestamp::from_millis(0))
        };
        let mut seen = Seen::default();
        let (a, b) = (silo(1, "a", SiloStatus::Active), silo(2, "b", SiloStatus::Joining));
        let first = seen.take_in(2, vec![a.clone(), b.clone()]);
        assert_eq!(
            first,
            ["v2   silo a 127.0.0.1:1:9 is Active", "v2   silo b 127.0.0.1:2:9 is Joining"]
        );
        assert!(seen.take_in(2, vec![a.clone(), b]).is_empty());
        let mut dead = silo(2, "b", SiloStatus::Dead);
        dead.votes = vec![Vote { voter: address(1), at: Timestamp::from_millis(5), gone: false }];
        let last = seen.take_in(3, vec![a, dead]);
        assert_eq!(
            last,
            [
                "v3   silo b 127.0.0.1:2:9 is suspected by silo a",
                "v3   silo b 127.0.0.1:2:9 is Dead"
            ]
        );
        assert_eq!(seen.history.len(), 4);
    }
}

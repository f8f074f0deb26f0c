//! An operator's word in the membership table: the duty of a silo.
//!
//! Like every change of the membership it is one conditional commit on the version row, so it may
//! come from any process that reaches the store. The row of the silo keeps all else.

use emmer_core::{Duty, SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};

use crate::contract::{StoreError, StoreErrorKind};
use crate::history::{HistoryTable, Recorded};
use crate::silos::{SiloCommit, SiloTable};

/// Number of commits that are tried while silos write.
const TRIES: u32 = 20;

/// A change of a silo's duty.
#[derive(Clone, Copy, Debug)]
pub struct DutyChange<'a> {
    /// The silo.
    pub silo: SiloAddress,
    /// The duty that it gets.
    pub duty: Duty,
    /// The duty that it must have now; any if none.
    pub from: Option<Duty>,
    /// The writer for the history: a silo, or a command.
    pub writer: &'a str,
    /// The person or the process that asked, for the history.
    pub because: &'a str,
    /// The time of the writing.
    pub at: Timestamp,
}

/// Outcome of a change of a silo's duty.
#[derive(Clone, Debug, PartialEq)]
pub struct DutyChanged {
    /// The version of the table that shows it.
    pub version: TableVersion,
    /// True if this call wrote it.
    pub is_new: bool,
    /// The duty of the silo now. It differs from the wanted one only if `from` did not hold.
    pub duty: Duty,
    /// A failure of the history, which has no part in the change itself.
    pub unrecorded: Option<StoreError>,
}

/// Reason that a duty was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DutyError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The silo has no row.
    #[error("the table has no silo {0}")]
    NoSilo(SiloAddress),
    /// The silo is not, or no longer, a member that serves.
    #[error("{0} is {1}: only a silo that is Active has a duty")]
    NotActive(SiloAddress, SiloStatus),
    /// The silo was asked to leave.
    #[error("{0} was asked to leave the cluster: that cannot be taken back")]
    Leaves(SiloAddress),
    /// Other commits came first, again and again.
    #[error("silos write all the time: the duty of {0} is not changed after {TRIES} tries")]
    Busy(SiloAddress),
}

impl SiloTable {
    /// Changes the duty of a silo that is Active, and adds that to the history.
    ///
    /// # Errors
    /// [`DutyError`]: nothing was written, except that the end of a commit that the store did not
    /// answer is unknown.
    pub async fn change_duty(&self, change: &DutyChange<'_>) -> Result<DutyChanged, DutyError> {
        // A commit of this call may have happened without an answer.
        let mut is_in_doubt = false;
        for _ in 0..TRIES {
            let (base, silos) = self.read_all().await?;
            let mut row = find(silos, change.silo)?;
            if row.duty == change.duty {
                return Ok(self.changed(change, &row, base, is_in_doubt).await);
            }
            if row.duty == Duty::Leaving {
                return Err(DutyError::Leaves(change.silo));
            }
            if change.from.is_some_and(|from| from != row.duty) {
                return Ok(self.changed(change, &row, base, false).await);
            }
            row.duty = change.duty;
            match self.commit(&base, vec![row.clone()], vec![]).await? {
                SiloCommit::Committed(version) => {
                    return Ok(self.changed(change, &row, version, true).await);
                }
                SiloCommit::Conflict => {}
                SiloCommit::Unknown(_) => is_in_doubt = true,
            }
        }
        Err(DutyError::Busy(change.silo))
    }

    /// The outcome; a new one goes into the history.
    async fn changed(
        &self,
        change: &DutyChange<'_>,
        row: &SiloEntry,
        version: TableVersion,
        is_new: bool,
    ) -> DutyChanged {
        let unrecorded =
            if is_new { self.record(change, row, version.number).await } else { Ok(()) };
        DutyChanged { version, is_new, duty: row.duty, unrecorded: unrecorded.err() }
    }

    /// Adds the change to the history, if the cluster keeps one.
    async fn record(
        &self,
        change: &DutyChange<'_>,
        row: &SiloEntry,
        version: u64,
    ) -> Result<(), StoreError> {
        let history = HistoryTable::new(self.store().clone(), self.cluster().clone());
        let recorded = Recorded {
            version,
            number: 0,
            at: change.at,
            writer: change.writer.into(),
            silo: row.address.to_string().into(),
            name: row.instance_name.clone(),
            host: row.host_name.clone(),
            change: row.duty.word().into(),
            evidence: vec![change.because.into()],
        };
        match history.append(&[recorded]).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            appended => appended,
        }
    }
}

fn find(silos: Vec<SiloEntry>, silo: SiloAddress) -> Result<SiloEntry, DutyError> {
    let row = silos.into_iter().find(|row| row.address == silo);
    let row = row.ok_or(DutyError::NoSilo(silo))?;
    if row.status == SiloStatus::Active {
        Ok(row)
    } else {
        Err(DutyError::NotActive(silo, row.status))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::MemoryStore;

    async fn table(silos: &[(&str, SiloStatus)]) -> SiloTable {
        let store = Arc::new(MemoryStore::new());
        let table = SiloTable::new(store, "c".parse().unwrap());
        table.ensure().await.unwrap();
        let rows = silos.iter().map(|(silo, status)| {
            SiloEntry::new(silo.parse().unwrap(), *status, Timestamp::from_millis(7))
        });
        let base = TableVersion::default();
        table.commit(&base, rows.collect(), vec![]).await.unwrap();
        table
    }

    fn change(silo: &str, duty: Duty, from: Option<Duty>) -> DutyChange<'static> {
        DutyChange {
            silo: silo.parse().unwrap(),
            duty,
            from,
            writer: "a test",
            because: "an operator",
            at: Timestamp::from_millis(8),
        }
    }

    const ACTIVE: &str = "10.0.0.1:1:1";
    const DEAD: &str = "10.0.0.2:1:1";

    #[tokio::test]
    async fn a_duty_is_changed_once_and_all_else_stays() {
        let table = table(&[(ACTIVE, SiloStatus::Active), (DEAD, SiloStatus::Dead)]).await;
        let history = HistoryTable::new(table.store().clone(), table.cluster().clone());
        history.ensure().await.unwrap();
        let cordon = change(ACTIVE, Duty::Cordoned, None);
        let first = table.change_duty(&cordon).await.unwrap();
        let second = table.change_duty(&cordon).await.unwrap();
        assert_eq!((first.is_new, second.is_new), (true, false));
        assert_eq!((first.version.number, &first.version), (2, &second.version));
        let (_, silos) = table.read_all().await.unwrap();
        assert_eq!(silos[0].duty, Duty::Cordoned);
        assert_eq!(silos[0].status, SiloStatus::Active);
        assert_eq!(silos[1].duty, Duty::Full);
        let told = history.read().await.unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((&*told[0].change, &*told[0].writer), ("cordoned", "a test"));
    }

    #[tokio::test]
    async fn a_duty_changes_only_from_the_one_that_was_expected() {
        let table = table(&[(ACTIVE, SiloStatus::Active)]).await;
        let drained = change(ACTIVE, Duty::Drained, Some(Duty::Draining));
        let kept = table.change_duty(&drained).await.unwrap();
        assert_eq!((kept.is_new, kept.duty), (false, Duty::Full));
        assert_eq!(kept.version.number, 1);
    }

    #[tokio::test]
    async fn a_silo_that_is_gone_or_leaves_has_no_other_duty() {
        let table = table(&[(ACTIVE, SiloStatus::Active), (DEAD, SiloStatus::Dead)]).await;
        let error = |change| {
            let table = &table;
            async move { table.change_duty(&change).await.unwrap_err().to_string() }
        };
        let dead = error(change(DEAD, Duty::Cordoned, None)).await;
        assert!(dead.contains("10.0.0.2:1:1 is Dead"), "{dead}");
        let unknown = error(change("10.0.0.3:1:1", Duty::Cordoned, None)).await;
        assert!(unknown.contains("no silo 10.0.0.3:1:1"), "{unknown}");
        table.change_duty(&change(ACTIVE, Duty::Leaving, None)).await.unwrap();
        let leaves = error(change(ACTIVE, Duty::Full, None)).await;
        assert!(leaves.contains("cannot be taken back"), "{leaves}");
    }
}

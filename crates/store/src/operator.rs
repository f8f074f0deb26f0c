//! An operator's word in the membership table: the duty of a silo, or its death.
//!
//! Like every change of the membership it is one conditional commit on the version row, so it may
//! come from any process that reaches the store. The row of the silo keeps all else.

use std::sync::Arc;

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

/// An operator's declaration that a silo is dead.
#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    /// The silo.
    pub silo: SiloAddress,
    /// The writer for the history: a command.
    pub writer: &'a str,
    /// The evidence for the history, one line for each piece.
    pub evidence: &'a [String],
    /// The time of the writing.
    pub at: Timestamp,
}

/// Outcome of an operator's change of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The version of the table that shows it.
    pub version: TableVersion,
    /// True if this call wrote it.
    pub is_new: bool,
    /// A failure of the history, which has no part in the change itself.
    pub unrecorded: Option<StoreError>,
}

/// Judgement of a row.
enum Judged {
    /// The row is to become this.
    Write(SiloEntry),
    /// The row is as this change would leave it.
    Stands(SiloEntry),
    /// The row stays as it is.
    Stays,
}

/// A change, as the history has it.
struct Note<'a> {
    writer: &'a str,
    evidence: Vec<Arc<str>>,
    at: Timestamp,
    /// One word: `cordoned`, `died`.
    word: &'static str,
}

impl SiloTable {
    /// Changes the duty of a silo that is Active, and adds that to the history. Returns the duty of
    /// the silo now: another than the wanted one only if `from` did not hold.
    ///
    /// # Errors
    /// [`DutyError`]: nothing was written, except that the end of a commit that the store did not
    /// answer is unknown.
    pub async fn change_duty(&self, change: &DutyChange<'_>) -> Result<(Written, Duty), DutyError> {
        let DutyChange { silo, duty, from, writer, because, at } = *change;
        let note = Note { writer, evidence: vec![because.into()], at, word: duty.word() };
        let mut now = duty;
        let judge = |row: Option<SiloEntry>| {
            let mut row = row.ok_or(DutyError::NoSilo(silo))?;
            now = row.duty;
            match row.duty {
                _ if row.status != SiloStatus::Active => {
                    Err(DutyError::NotActive(silo, row.status))
                }
                has if has == duty => Ok(Judged::Stands(row)),
                Duty::Leaving => Err(DutyError::Leaves(silo)),
                has if from.is_some_and(|from| from != has) => Ok(Judged::Stays),
                _ => {
                    (row.duty, now) = (duty, duty);
                    Ok(Judged::Write(row))
                }
            }
        };
        let written = self.change_row(silo, &note, judge).await?;
        Ok((written.ok_or(DutyError::Busy(silo))?, now))
    }

    /// Declares a silo dead, without a vote, and adds that to the history. None if other commits
    /// came first, again and again.
    ///
    /// # Errors
    /// As the store.
    pub async fn declare_dead(&self, death: &Death<'_>) -> Result<Option<Written>, StoreError> {
        let Death { silo, writer, evidence, at } = *death;
        let evidence = evidence.iter().map(|line| line.as_str().into()).collect();
        let note = Note { writer, evidence, at, word: "died" };
        let judge = |row: Option<SiloEntry>| {
            Ok(match row {
                // Silos do not write a death without votes.
                Some(row) if row.status == SiloStatus::Dead && row.votes.is_empty() => {
                    Judged::Stands(row)
                }
                Some(mut row) if row.status != SiloStatus::Dead => {
                    row.status = SiloStatus::Dead;
                    // Without a vote the row says that no silo has seen it end.
                    row.votes.clear();
                    Judged::Write(row)
                }
                _ => Judged::Stays,
            })
        };
        self.change_row(silo, &note, judge).await
    }

    /// Writes what `judge` says of the row of a silo, as long as other commits come first. None if
    /// they do so again and again.
    async fn change_row<E: From<StoreError>>(
        &self,
        silo: SiloAddress,
        note: &Note<'_>,
        mut judge: impl FnMut(Option<SiloEntry>) -> Result<Judged, E>,
    ) -> Result<Option<Written>, E> {
        // A commit of this call may have happened without an answer.
        let mut is_in_doubt = false;
        for _ in 0..TRIES {
            let (base, silos) = self.read_all().await?;
            let row = silos.into_iter().find(|row| row.address == silo);
            let (version, row) = match judge(row)? {
                Judged::Stands(row) if is_in_doubt => (base, row),
                Judged::Stands(_) | Judged::Stays => {
                    return Ok(Some(Written { version: base, is_new: false, unrecorded: None }));
                }
                Judged::Write(row) => match self.commit(&base, vec![row.clone()], vec![]).await? {
                    SiloCommit::Committed(version) => (version, row),
                    SiloCommit::Conflict => continue,
                    SiloCommit::Unknown(_) => {
                        is_in_doubt = true;
                        continue;
                    }
                },
            };
            let unrecorded = self.record(note, &row, version.number).await.err();
            return Ok(Some(Written { version, is_new: true, unrecorded }));
        }
        Ok(None)
    }

    /// Adds a change to the history, if the cluster keeps one.
    async fn record(
        &self,
        note: &Note<'_>,
        row: &SiloEntry,
        version: u64,
    ) -> Result<(), StoreError> {
        let history = HistoryTable::new(self.store().clone(), self.cluster().clone());
        let recorded = Recorded {
            version,
            number: 0,
            at: note.at,
            writer: note.writer.into(),
            silo: row.address.to_string().into(),
            name: row.instance_name.clone(),
            host: row.host_name.clone(),
            change: note.word.into(),
            evidence: note.evidence.clone(),
        };
        match history.append(&[recorded]).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            appended => appended,
        }
    }
}

#[cfg(test)]
mod tests {
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
        let (first, _) = table.change_duty(&cordon).await.unwrap();
        let (second, _) = table.change_duty(&cordon).await.unwrap();
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
        let (kept, duty) = table.change_duty(&drained).await.unwrap();
        assert_eq!((kept.is_new, duty), (false, Duty::Full));
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

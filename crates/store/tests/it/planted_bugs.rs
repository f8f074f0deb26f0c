//! The conformance suite bites: a store with one planted bug fails the case that is about it.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use emmer_core::Timestamp;
use emmer_store::checkup::{self, SCRATCH, Trouble};
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::validate::SAMPLE_ROWS_MAX;
use emmer_store::{
    BoxFuture, CommitOutcome, Etag, MemoryTables, Mutation, Result, Row, StoreError,
    StoreErrorKind, StoredRow, SystemStore, TableDecl, Value,
};
use emmer_test_servers::suite::conformance;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    TouchMovesTheEtag,
    TouchCreates,
    TouchOfNothingSucceeds,
    ReplaceCreates,
    UpsertTurnsHeartbeatsBack,
    FailedCommitsStayHalf,
    ConflictSaysTheFirst,
    ConflictSaysTheLast,
    EtagsIgnored,
    OthersComeBetween,
    DeleteOfNothingSucceeds,
    EtagsComeBack,
    ReadsTear,
    PartitionsSharePrefixes,
    ScanDoesNotWrap,
    AppendOverwrites,
    CleanUpTakesTheCutoff,
    NullBecomesEmpty,
    OrderIsByLength,
    SamplesReadAll,
    ErrorsNameNoStore,
}

/// The bug and a case that must find it.
const PLANTED: [(Bug, &str); 21] = [
    (Bug::SamplesReadAll, "rows::a_sample_is_a_few_of_the_rows"),
    (Bug::TouchMovesTheEtag, "races::heartbeats_never_cost_a_vote"),
    (Bug::TouchCreates, "rows::touch_of_a_missing_row_creates_nothing"),
    (Bug::TouchOfNothingSucceeds, "silos::a_heartbeat_leaves_everything_else_alone"),
    (Bug::ReplaceCreates, "commits::replace_needs_the_row_and_its_etag"),
    (Bug::UpsertTurnsHeartbeatsBack, "silos::a_heartbeat_leaves_everything_else_alone"),
    (Bug::FailedCommitsStayHalf, "commits::a_failed_commit_changes_nothing"),
    (Bug::ConflictSaysTheFirst, "commits::a_failed_commit_changes_nothing"),
    (Bug::ConflictSaysTheLast, "commits::a_failed_commit_changes_nothing"),
    (Bug::EtagsIgnored, "races::no_increment_is_lost"),
    (Bug::OthersComeBetween, "races::no_increment_is_lost"),
    (Bug::DeleteOfNothingSucceeds, "silos::deleting_a_row_that_is_gone_is_a_conflict"),
    (Bug::EtagsComeBack, "commits::etags_never_come_back"),
    (Bug::ReadsTear, "races::no_read_is_torn"),
    (Bug::PartitionsSharePrefixes, "silos::clusters_a_and_ab_are_apart"),
    (Bug::ScanDoesNotWrap, "rows::scan_takes_ranges_and_wraps_around"),
    (Bug::AppendOverwrites, "rows::append_keeps_what_is_there"),
    (Bug::CleanUpTakesTheCutoff, "rows::clean_up_deletes_what_is_older"),
    (Bug::NullBecomesEmpty, "rows::every_value_comes_back"),
    (Bug::OrderIsByLength, "rows::odd_keys_come_back_in_order"),
    (Bug::ErrorsNameNoStore, "commits::requests_against_the_rules_are_invalid"),
];

#[derive(Clone)]
struct Planted {
    tables: Arc<Mutex<MemoryTables>>,
    bug: Bug,
}

impl Planted {
    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn with<T>(&self, f: impl FnOnce(&mut MemoryTables) -> T) -> T {
        f(&mut self.tables.lock().unwrap())
    }

    fn upsert(&self, table: &'static TableDecl, partition: &str, row: Row) {
        // Fails where the operation it spoils fails too.
        let _ = self.with(|t| t.commit(table, partition, vec![Mutation::Upsert { row }]));
    }

    fn delete(&self, table: &'static TableDecl, partition: &str, row_key: &str) {
        let delete = Mutation::Delete { row_key: row_key.into(), etag: None };
        self.with(|t| t.commit(table, partition, vec![delete])).unwrap();
    }

    /// Effect of the bug on the mutations before the commit.
    fn spoil(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutation: Mutation,
    ) -> Option<Mutation> {
        let now = self.with(|t| t.read_row(table, partition, mutation.row_key())).ok().flatten();
        Some(match (mutation, now) {
            (Mutation::Replace { row, .. }, None) if self.has(Bug::ReplaceCreates) => {
                Mutation::Insert { row }
            }
            (Mutation::Replace { row, .. }, Some(now)) if self.has(Bug::EtagsIgnored) => {
                Mutation::Replace { row, etag: now.etag }
            }
            (Mutation::Delete { .. }, None) if self.has(Bug::DeleteOfNothingSucceeds) => {
                return None;
            }
            (Mutation::Upsert { row }, Some(_)) if self.has(Bug::UpsertTurnsHeartbeatsBack) => {
                self.delete(table, partition, row.key());
                Mutation::Insert { row }
            }
            (mutation, _) => mutation,
        })
    }

    /// Effect of the bug on a row on its way out.
    fn seen(&self, table: &'static TableDecl, mut found: StoredRow) -> StoredRow {
        if self.has(Bug::NullBecomesEmpty)
            && table.column("Name").is_some()
            && found.row.get("Name").is_none()
        {
            found.row.set("Name", Value::Text("".into()));
        }
        if self.has(Bug::EtagsComeBack) {
            // As if an etag were a hash of the content.
            found.etag = Self::content_etag(&found.row);
        }
        found
    }

    fn content_etag(row: &Row) -> Etag {
        format!("{row:?}").into()
    }

    fn commit_now(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Result<CommitOutcome> {
        let count = mutations.len();
        let spoilt: Vec<Mutation> =
            mutations.into_iter().filter_map(|m| self.spoil(table, partition, m)).collect();
        if self.has(Bug::FailedCommitsStayHalf) && spoilt.len() <= 100 {
            let mut etags = Vec::new();
            for (at, mutation) in spoilt.into_iter().enumerate() {
                match self.with(|t| t.commit(table, partition, vec![mutation]))? {
                    CommitOutcome::Committed(one) => etags.extend(one),
                    _ => return Ok(CommitOutcome::Conflict(at)),
                }
            }
            return Ok(CommitOutcome::Committed(etags));
        }
        Ok(match self.with(|t| t.commit(table, partition, spoilt))? {
            CommitOutcome::Conflict(_) if self.has(Bug::ConflictSaysTheFirst) => {
                CommitOutcome::Conflict(0)
            }
            CommitOutcome::Conflict(_) if self.has(Bug::ConflictSaysTheLast) => {
                CommitOutcome::Conflict(count - 1)
            }
            other => other,
        })
    }

    /// Checks the conditions, lets others continue, and writes without them: right for one
    /// connection, wrong for two.
    async fn commit_carelessly(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Result<CommitOutcome> {
        let mut aside = self.with(|t| t.clone());
        let looked = aside.commit(table, partition, mutations.clone())?;
        if !matches!(looked, CommitOutcome::Committed(_)) {
            return Ok(looked);
        }
        tokio::task::yield_now().await;
        let unconditionally = mutations.into_iter().map(|mutation| match mutation {
            Mutation::Insert { row } | Mutation::Replace { row, .. } => Mutation::Upsert { row },
            other => other,
        });
        self.with(|t| t.commit(table, partition, unconditionally.collect()))
    }

    fn named(&self, error: StoreError) -> StoreError {
        let store = if self.has(Bug::ErrorsNameNoStore) { String::new() } else { error.store };
        StoreError { store, ..error }
    }
}

impl SystemStore for Planted {
    fn describe(&self) -> String {
        "memory://".into()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.with(|t| t.ensure_tables(tables)) })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let mut rows =
                self.with(|t| t.read_partition(table, partition)).map_err(|e| self.named(e))?;
            if self.has(Bug::ReadsTear) {
                // Two pages, and time for a writer between them.
                tokio::task::yield_now().await;
                let later = self.with(|t| t.read_partition(table, partition))?;
                rows.truncate(later.len() / 2);
                rows.extend(later.into_iter().skip(rows.len()));
            }
            if self.has(Bug::PartitionsSharePrefixes) && partition == "ab" {
                rows.extend(self.with(|t| t.read_partition(table, "a"))?);
            }
            if self.has(Bug::OrderIsByLength) {
                rows.sort_by_key(|r| r.row.key().len());
            }
            Ok(rows.into_iter().map(|r| self.seen(table, r)).collect())
        })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async move {
            let found = self.with(|t| t.read_row(table, partition, row_key))?;
            Ok(found.map(|r| self.seen(table, r)))
        })
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let limit = if self.has(Bug::SamplesReadAll) { SAMPLE_ROWS_MAX } else { limit };
            let found = self.with(|t| t.read_some(table, partition, from, limit))?;
            Ok(found.into_iter().map(|r| self.seen(table, r)).collect())
        })
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            if self.has(Bug::ScanDoesNotWrap) && range.start() > range.end() {
                return Ok(vec![]);
            }
            self.with(|t| t.scan(table, column, &range, limit))
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move {
            if self.has(Bug::OthersComeBetween) {
                return self.commit_carelessly(table, partition, mutations).await;
            }
            self.commit_now(table, partition, mutations).map_err(|e| self.named(e))
        })
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.with(|t| t.touch(table, partition, row_key, column, value.clone())) {
                Ok(()) if self.has(Bug::TouchMovesTheEtag) => {
                    let row = self.with(|t| t.read_row(table, partition, row_key))?.unwrap().row;
                    self.upsert(table, partition, row);
                    Ok(())
                }
                Err(error)
                    if error.kind == StoreErrorKind::NotFound && self.has(Bug::TouchCreates) =>
                {
                    let row = Row::new(row_key).with(column, value);
                    self.with(|t| t.commit(table, partition, vec![Mutation::Insert { row }]))?;
                    Err(error)
                }
                Err(error)
                    if error.kind == StoreErrorKind::NotFound
                        && self.has(Bug::TouchOfNothingSucceeds) =>
                {
                    Ok(())
                }
                other => other,
            }
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.has(Bug::AppendOverwrites) {
                rows.iter().for_each(|row| self.upsert(table, partition, row.clone()));
            }
            self.with(|t| t.append(table, partition, rows))
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        let more = i64::from(self.has(Bug::CleanUpTakesTheCutoff));
        let cutoff = Timestamp::from_millis(cutoff.as_millis() + more);
        Box::pin(
            async move { self.with(|t| t.delete_older_than(table, partition, column, cutoff)) },
        )
    }
}

async fn failures(bug: Bug) -> Vec<&'static str> {
    let shared = Planted { tables: Arc::default(), bug };
    let open = || -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> {
        let connection: Arc<dyn SystemStore> = Arc::new(shared.clone());
        Box::pin(async move { Ok(connection) })
    };
    let report = conformance::run(&open, &mut |_| ()).await;
    report.failed.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn every_planted_bug_is_found() {
    assert_eq!(failures(Bug::None).await, Vec::<&str>::new(), "without a bug");
    for (bug, case) in PLANTED {
        let failed = failures(bug).await;
        assert!(failed.contains(&case), "{bug:?} did not fail {case}, only {failed:?}");
    }
}

#[tokio::test]
async fn the_self_check_finds_out_a_store_that_is_right_for_one_and_wrong_for_two() {
    let shared = Planted { tables: Arc::default(), bug: Bug::OthersComeBetween };
    let [one, other]: [Arc<dyn SystemStore>; 2] = [Arc::new(shared.clone()), Arc::new(shared)];
    let found = checkup::run(&one, &other, 7).await;
    let Some(Trouble::Wrong(what)) = found.trouble() else { panic!("{found:?}") };
    assert!(what.contains("commits are lost"), "{what}");
    assert!(
        one.read_partition(&SILO_INSTANCES, SCRATCH).await.unwrap().is_empty(),
        "it cleans up all the same"
    );
}

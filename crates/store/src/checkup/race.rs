//! A short race of two connections for one row: a server that keeps every promise to one of them alone may lose commits of two.

use std::sync::Arc;

use super::{SCRATCH, Trouble, row, wrong};
use crate::contract::{CommitOutcome, Mutation, SystemStore};
use crate::silos::SILO_INSTANCES;
use crate::table::Value;

/// How many commits each of the two makes.
const COMMITS: i64 = 25;
/// How often each tries at most: a loser is told later and later, so that many more attempts than commits mean something is wrong.
const ATTEMPTS_MAX: u32 = 2_000;

/// Both count `version` up, together with a row that both write too, by what they read before; in the end it must have been
/// counted once for each commit that was acknowledged.
pub(super) async fn run(
    stores: [&Arc<dyn SystemStore>; 2],
    version: &str,
    silo: &str,
) -> Result<(), Trouble> {
    let [one, other] = stores;
    let (before, _) = read(one, version).await?;
    let (first, second) =
        futures_util::future::join(count_up(one, version, silo), count_up(other, version, silo)).await;
    let acknowledged = first? + second?;
    for key in [version, silo] {
        let (found, _) = read(one, key).await?;
        if found != before + acknowledged {
            return wrong(format!(
                "row {key} was counted from {before} to {found} by {acknowledged} acknowledged commits of two connections: \
                 commits are lost"
            ));
        }
    }
    Ok(())
}

async fn read(store: &Arc<dyn SystemStore>, key: &str) -> Result<(i64, crate::Etag), Trouble> {
    let Some(found) = store.read_row(&SILO_INSTANCES, SCRATCH, key).await? else {
        return wrong(format!("row {key} is not there"));
    };
    match found.row.get("MembershipVersion") {
        Some(Value::Int(number)) => Ok((*number, found.etag)),
        other => wrong(format!("row {key} reads {other:?} instead of a number")),
    }
}

async fn count_up(store: &Arc<dyn SystemStore>, version: &str, silo: &str) -> Result<i64, Trouble> {
    let mut acknowledged = 0;
    for _ in 0..ATTEMPTS_MAX {
        if acknowledged == COMMITS {
            return Ok(acknowledged);
        }
        let (number, etag) = read(store, version).await?;
        let both = vec![
            Mutation::Replace { row: row(version, number + 1), etag },
            Mutation::Upsert { row: row(silo, number + 1) },
        ];
        match store.commit(&SILO_INSTANCES, SCRATCH, both).await? {
            CommitOutcome::Committed(_) => acknowledged += 1,
            CommitOutcome::Conflict(_) => {}
            CommitOutcome::Unknown(error) => return Err(error.into()),
        }
    }
    wrong(format!(
        "{acknowledged} of {COMMITS} commits in {ATTEMPTS_MAX} attempts: nearly all lose a race of two"
    ))
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use emmer_core::Timestamp;

    use super::*;
    use crate::contract::{BoxFuture, Result, StoredRow};
    use crate::table::{Row, TableDecl};
    use crate::{MemoryStore, checkup};

    /// Looks at the conditions, lets others go on, and writes without them: right for one, wrong for two.
    struct Careless(MemoryStore);

    impl SystemStore for Careless {
        fn describe(&self) -> String {
            self.0.describe()
        }

        fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
            self.0.ensure_tables(tables)
        }

        fn read_partition<'a>(
            &'a self,
            table: &'static TableDecl,
            partition: &'a str,
        ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
            self.0.read_partition(table, partition)
        }

        fn read_row<'a>(
            &'a self,
            table: &'static TableDecl,
            partition: &'a str,
            row_key: &'a str,
        ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
            self.0.read_row(table, partition, row_key)
        }

        fn read_some<'a>(
            &'a self,
            table: &'static TableDecl,
            partition: &'a str,
            from: &'a str,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
            self.0.read_some(table, partition, from, limit)
        }

        fn scan<'a>(
            &'a self,
            table: &'static TableDecl,
            column: &'static str,
            range: RangeInclusive<i64>,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
            self.0.scan(table, column, range, limit)
        }

        fn commit<'a>(
            &'a self,
            table: &'static TableDecl,
            partition: &'a str,
            mutations: Vec<Mutation>,
        ) -> BoxFuture<'a, Result<CommitOutcome>> {
            Box::pin(async move {
                for (at, mutation) in mutations.iter().enumerate() {
                    let found = self.0.read_row(table, partition, mutation.row_key()).await?;
                    let now = found.map(|found| found.etag);
                    let holds = match mutation {
                        Mutation::Insert { .. } => now.is_none(),
                        Mutation::Upsert { .. } => true,
                        Mutation::Replace { etag, .. } | Mutation::Check { etag, .. } => {
                            now.as_ref() == Some(etag)
                        }
                        Mutation::Delete { etag, .. } => now.is_some() && (etag.is_none() || *etag == now),
                    };
                    if !holds {
                        return Ok(CommitOutcome::Conflict(at));
                    }
                }
                tokio::task::yield_now().await;
                let unconditionally = mutations.into_iter().map(|mutation| match mutation {
                    Mutation::Insert { row } | Mutation::Replace { row, .. } => Mutation::Upsert { row },
                    other => other,
                });
                self.0.commit(table, partition, unconditionally.collect()).await
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
            self.0.touch(table, partition, row_key, column, value)
        }

        fn append<'a>(
            &'a self,
            table: &'static TableDecl,
            partition: &'a str,
            rows: Vec<Row>,
        ) -> BoxFuture<'a, Result<()>> {
            self.0.append(table, partition, rows)
        }

        fn delete_older_than<'a>(
            &'a self,
            table: &'static TableDecl,
            partition: &'a str,
            column: &'static str,
            cutoff: Timestamp,
        ) -> BoxFuture<'a, Result<u64>> {
            self.0.delete_older_than(table, partition, column, cutoff)
        }
    }

    #[tokio::test]
    async fn a_store_that_is_right_for_one_and_wrong_for_two_is_found_out() {
        let memory = MemoryStore::new();
        let [one, other]: [Arc<dyn SystemStore>; 2] =
            [Arc::new(Careless(memory.clone())), Arc::new(Careless(memory.clone()))];
        let found = checkup::run(&one, &other, 7).await;
        let Some(Trouble::Wrong(what)) = found.trouble() else { panic!("{found:?}") };
        assert!(what.contains("commits are lost"), "{what}");
        assert!(
            one.read_partition(&SILO_INSTANCES, SCRATCH).await.unwrap().is_empty(),
            "it cleans up all the same"
        );
    }
}

//! A store that takes less at once than a table needs is refused when the table is made ready,
//! before anything is asked of it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::{
    BoxFuture, CommitOutcome, Mutation, Result, Row, SiloTable, StateTable, StoreErrorKind,
    StoreLimits, StoredRow, SystemStore, TableDecl, Value,
};

/// Its limits, and nothing else.
struct Limited(StoreLimits);

fn nobody_asks<T>() -> BoxFuture<'static, Result<T>> {
    panic!("asked")
}

impl SystemStore for Limited {
    fn describe(&self) -> String {
        "limited://".to_owned()
    }

    fn limits(&self) -> StoreLimits {
        self.0
    }

    fn ensure_tables<'a>(&'a self, _: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn read_partition<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        nobody_asks()
    }

    fn read_row<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        nobody_asks()
    }

    fn read_some<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: &'a str,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        nobody_asks()
    }

    fn scan<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'static str,
        _: RangeInclusive<i64>,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        nobody_asks()
    }

    fn commit<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        nobody_asks()
    }

    fn touch<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: &'a str,
        _: &'static str,
        _: Value,
    ) -> BoxFuture<'a, Result<()>> {
        nobody_asks()
    }

    fn append<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        nobody_asks()
    }

    fn delete_older_than<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: &'static str,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        nobody_asks()
    }
}

/// Errors of the tables of silos and of states on a store with these limits; none when it will do.
async fn refusals(limits: StoreLimits) -> [Option<String>; 2] {
    let store: Arc<dyn SystemStore> = Arc::new(Limited(limits));
    let silos = SiloTable::new(store.clone(), "prod".parse().unwrap()).ensure().await;
    let states = StateTable::new(store, "service".parse().unwrap()).ensure().await;
    [silos, states].map(|ended| {
        let error = ended.err()?;
        assert_eq!(
            (error.kind, error.store.as_str()),
            (StoreErrorKind::Invalid, "limited://"),
            "{error}"
        );
        Some(error.detail)
    })
}

#[tokio::test]
async fn a_store_that_takes_too_little_at_once_is_refused() {
    let all = StoreLimits::default();
    assert_eq!(refusals(all).await, [None, None]);
    // The smallest among the stores there are: Consul's.
    assert_eq!(refusals(StoreLimits::of_commits(390_000)).await, [None, None]);
    let [silos, states] = refusals(StoreLimits { mutations: 99, ..all }).await;
    assert!(silos.unwrap().contains("99 mutations"));
    assert_eq!(states, None, "a state is one row");
    let [silos, states] = refusals(StoreLimits::of_commits(60_000)).await;
    assert!(silos.unwrap().contains("60000 bytes in a commit"));
    assert!(states.unwrap().contains("60000 bytes in a commit"));
    for refusal in refusals(StoreLimits { row_key_bytes: 511, ..all }).await {
        assert!(refusal.unwrap().contains("511 bytes in a row key"));
    }
}

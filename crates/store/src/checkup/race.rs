//! A short race of two connections for one row: a server that keeps every promise to one of them
//! alone may lose commits of two.

use std::sync::Arc;

use super::{SCRATCH, Trouble, row, wrong};
use crate::contract::{CommitOutcome, Mutation, SystemStore};
use crate::silos::SILO_INSTANCES;
use crate::table::Value;

/// Number of commits that each of the two makes.
const COMMITS: i64 = 25;
/// Most attempts of each. A loser comes back later and later, so many more attempts than commits
/// mean a fault.
const ATTEMPTS_MAX: u32 = 2_000;

/// Both count `version` up from their last read, together with a row that both write too. In the
/// end it must equal the number of acknowledged commits.
pub(super) async fn run(
    stores: [&Arc<dyn SystemStore>; 2],
    version: &str,
    silo: &str,
) -> Result<(), Trouble> {
    let [one, other] = stores;
    let (before, _) = read(one, version).await?;
    let (first, second) =
        futures_util::future::join(count_up(one, version, silo), count_up(other, version, silo))
            .await;
    let acknowledged = first? + second?;
    for key in [version, silo] {
        let (found, _) = read(one, key).await?;
        if found != before + acknowledged {
            return wrong(format!(
                "row {key} was counted from {before} to {found} by {acknowledged} acknowledged \
                 commits of two connections: commits are lost"
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
        "{acknowledged} of {COMMITS} commits in {ATTEMPTS_MAX} attempts: nearly all lose a race of \
         two"
    ))
}

//! What works on many rows: appends, clean-ups, scans.

use std::collections::BTreeSet;

use emmer_core::limits::COMMIT_MUTATIONS_MAX;
use emmer_store::{Mutation, Row, StoreErrorKind, StoredRow, TableDecl};
use emmer_store_keyvalue::{Old, Scan, first_of_each_key};
use futures_util::future::join;
use tokio::time::Instant;
use zookeeper_client::{Acls, Client, Error, MultiWriteError};

use crate::commit::{Committer, Ended, Memory};
use crate::fault::Fault;
use crate::paths::{self, PartitionPaths, TablePaths};
use crate::plan::{Known, Plan, REQUEST_BYTES_MAX, Request};
use crate::rows::{Written, volatile_columns};
use crate::snapshot::{self, Lists};
use crate::tables;

/// Number of times an append or a clean-up begins again because others changed the same rows.
const ATTEMPTS_MAX: u32 = 64;

/// A session and its parts.
pub(crate) struct Bulk<'s> {
    pub(crate) client: &'s Client,
    pub(crate) memory: &'s Memory,
    pub(crate) lists: &'s Lists,
    pub(crate) acls: Acls<'s>,
    pub(crate) deadline: Instant,
}

impl Bulk<'_> {
    /// Adds the rows that are not there. May be repeated at will.
    pub(crate) async fn append(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        nodes: &PartitionPaths,
        rows: &[Row],
    ) -> Result<(), Fault> {
        let mut left = first_of_each_key(rows);
        for _ in 0..ATTEMPTS_MAX {
            let Some(there) = self.names(nodes).await? else {
                tables::make_partition(self.client, nodes, self.acls).await?;
                continue;
            };
            left.retain(|row| !there.contains(&paths::escape(row.key())));
            match self.add(decl, partition, nodes, &left).await? {
                0 => return Ok(()),
                // Another process added one of them meanwhile.
                more => drop(left.drain(..left.len().saturating_sub(more))),
            }
        }
        Err(Fault::unavailable("others add the same rows faster than this append can"))
    }

    /// Adds rows in as few requests as they fit into. Returns the number of rows, the last ones,
    /// that are left because one of theirs exists already.
    async fn add(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        nodes: &PartitionPaths,
        rows: &[&Row],
    ) -> Result<usize, Fault> {
        let mut left = rows;
        while !left.is_empty() {
            let (plan, taken) = largest_plan(decl, partition, nodes, left)?;
            match plan.writer(self.client, self.acls)?.commit().await {
                Ok(_) => left = left.get(taken..).unwrap_or_default(),
                Err(MultiWriteError::OperationFailed { source: Error::NodeExists, .. }) => {
                    return Ok(left.len());
                }
                Err(error) => return Err(Error::from(error).into()),
            }
        }
        Ok(0)
    }

    /// The names of a partition's rows; none when it was never written.
    async fn names(&self, nodes: &PartitionPaths) -> Result<Option<BTreeSet<String>>, Fault> {
        let synced = self.client.sync(&nodes.table);
        let (synced, names) = join(synced, self.client.list_children(&nodes.partition)).await;
        synced?;
        match names {
            Ok(names) => Ok(Some(names.into_iter().collect())),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the wanted old rows, each only if it is unchanged since the read.
    pub(crate) async fn delete_older_than(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        nodes: &PartitionPaths,
        asked: &Old,
    ) -> Result<u64, Fault> {
        let committer = Committer {
            client: self.client,
            memory: self.memory,
            acls: self.acls,
            deadline: self.deadline,
        };
        let volatile_at = volatile_columns(decl).position(|volatile| volatile.name == asked.column);
        let mut deleted = 0;
        for _ in 0..ATTEMPTS_MAX {
            let found =
                snapshot::partition(self.client, decl, nodes, self.lists, self.deadline).await;
            // A repetition from the beginning would not count rows that are deleted already.
            let found =
                found.map_err(|fault| Fault { lost: fault.lost && deleted == 0, ..fault })?;
            let mut old = Vec::new();
            for row in found {
                let key = row.row_key.clone();
                // A touch between this read and the deletion keeps the row.
                let guard = volatile_at.and_then(|at| row.volatile.get(at)).map(|(_, stat)| {
                    (format!("{}/{}", nodes.row(&key), asked.column), stat.version)
                });
                let etag = Written::of(&row.stat).etag(nodes, &key);
                let stored = row.into_stored(decl, nodes)?;
                if asked.wants(&stored.row) {
                    old.push((Mutation::Delete { row_key: key, etag: Some(etag) }, guard));
                }
            }
            let mut lost = false;
            for some in old.chunks(COMMIT_MUTATIONS_MAX) {
                let (mutations, guards): (Vec<_>, Vec<_>) = some.iter().cloned().unzip();
                let guards: Vec<_> = guards.into_iter().flatten().collect();
                let request =
                    Request { decl, partition, nodes, mutations: &mutations, guards: &guards };
                match committer.commit(&request).await {
                    Ended::Committed(_) => deleted += mutations.len() as u64,
                    Ended::Conflict(_) => lost = true,
                    // The outcome of these deletions is unknown, so their number is too: the next
                    // request deletes the rest.
                    Ended::Failed(fault) | Ended::Unknown(fault) => {
                        return Err(Fault { lost: false, ..fault });
                    }
                }
            }
            if !lost {
                return Ok(deleted);
            }
        }
        Err(Fault::unavailable("the rows change faster than they can be deleted"))
    }

    /// Reads every partition of the table, one after the other, until all rows asked for are found:
    /// ZooKeeper has no index.
    pub(crate) async fn scan(
        &self,
        decl: &'static TableDecl,
        nodes: &TablePaths,
        asked: &Scan,
    ) -> Result<Vec<StoredRow>, Fault> {
        let (synced, names) =
            join(self.client.sync(&nodes.table), self.client.list_children(&nodes.table)).await;
        synced?;
        let names = names.map_err(|error| match error {
            Error::NoNode => Fault::no_table(),
            error => error.into(),
        })?;
        let foreign = || {
            Fault::corrupt(
                "the table has a partition whose name is not one of \
                                         Emmer's",
            )
        };
        let mut partitions: Vec<String> = names
            .iter()
            .map(|name| paths::unescape(name).ok_or_else(foreign))
            .collect::<Result<_, _>>()?;
        partitions.retain(|partition| asked.may_be_in(decl, partition));
        partitions.sort_unstable();
        let mut rows = Vec::new();
        for partition in partitions {
            if rows.len() >= asked.limit {
                break;
            }
            let nodes = nodes.partition(&partition);
            for row in
                snapshot::partition(self.client, decl, &nodes, self.lists, self.deadline).await?
            {
                let stored = row.into_stored(decl, &nodes)?;
                if asked.wants(&stored.row) {
                    rows.push(stored);
                }
            }
        }
        rows.truncate(asked.limit);
        Ok(rows)
    }
}

/// The insertion of as many of the first rows as fit into one request, and how many these are.
fn largest_plan(
    decl: &'static TableDecl,
    partition: &str,
    nodes: &PartitionPaths,
    rows: &[&Row],
) -> Result<(Plan, usize), Fault> {
    let mut count = rows.len().min(COMMIT_MUTATIONS_MAX);
    loop {
        let some = rows.get(..count).unwrap_or_default();
        let mutations: Vec<_> =
            some.iter().map(|row| Mutation::Insert { row: (*row).clone() }).collect();
        let request = Request { decl, partition, nodes, mutations: &mutations, guards: &[] };
        let plan = request.plan(&Known::default(), |_| false);
        if plan.bytes() <= REQUEST_BYTES_MAX {
            return Ok((plan, count));
        }
        if count <= 1 {
            let detail = format!(
                "a row of {} bytes, at most {REQUEST_BYTES_MAX} fit into one request (ZooKeeper's \
                 jute.maxbuffer)",
                plan.bytes()
            );
            return Err(Fault::new(StoreErrorKind::Invalid, detail));
        }
        count /= 2;
    }
}

//! Reads, and what must be done before them: no request reads or writes past a commit that has
//! happened and is not written out.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::layout::unescape;
use emmer_store_keyvalue::{Answered, At, Failure, Fault, Reads, Scan};
use tokio::time::{Instant, sleep};

use crate::fence::{FENCE, Fence, Record, Seen};
use crate::rows::{self, ROW};
use crate::store::Consul;
use crate::wire::{KeyValue, Operation};

/// Number of commits that a reader writes out before it gives up.
const SETTLE_MAX: u32 = 64;
/// Number of looks of a writer at a closing fence before it opens it.
const CLOSING_LOOKS: u32 = 10;
/// Time between two looks.
const CLOSING_WAIT: Duration = Duration::from_millis(20);

/// Keys of one partition at one moment, at which no commit was half written.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) fence: Seen,
    pub(crate) kvs: Vec<KeyValue>,
}

impl Snapshot {
    /// Indexes at which each row was written, by row key.
    pub(crate) fn indexes(&self, prefix: &str) -> BTreeMap<String, i64> {
        let row = |kv: &KeyValue| {
            let (row, name) = kv.key.strip_prefix(prefix)?.split_once('/')?;
            (name == ROW).then(|| unescape(row)).flatten()
        };
        self.kvs.iter().filter_map(|kv| row(kv).map(|key| (key, kv.modify_index))).collect()
    }
}

impl Consul {
    /// The keys under `trees` (behind the partition's prefix; all for an empty list), once no
    /// commit is half written.
    pub(crate) async fn snapshot(
        &self,
        prefix: &str,
        trees: &[String],
        deadline: Instant,
    ) -> Result<Snapshot, Fault> {
        let mut prefixes: Vec<String> =
            trees.iter().map(|tree| format!("{prefix}{tree}")).collect();
        prefixes.push(if trees.is_empty() {
            prefix.to_owned()
        } else {
            format!("{prefix}{FENCE}")
        });
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        for _ in 0..SETTLE_MAX {
            let kvs = self.client().read(&prefixes, deadline).await?;
            let fence = rows::fence(prefix, &kvs).map_or_else(|| Ok(Seen::default()), Seen::of)?;
            self.guesses().learn_fence(prefix, fence.index);
            match &fence.fence {
                Fence::Committing(record) => {
                    self.write_out(prefix, record, fence.index, deadline).await?;
                }
                Fence::Idle | Fence::Closing { .. } => return Ok(Snapshot { fence, kvs }),
            }
        }
        Err(Fault::unavailable("others commit all the time"))
    }

    /// Writes out a commit that has happened, and opens the fence. Another store may have done so:
    /// as good.
    pub(crate) async fn write_out(
        &self,
        prefix: &str,
        record: &Record,
        index: i64,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let idle = Fence::Idle.encode(&self.mark())?;
        for part in record.transactions(prefix, index, &idle) {
            // Repeated, it writes the same, or finds the fence changed.
            match self.client().txn(&part, deadline, true).await.map_err(Failure::fault)? {
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits until the fence is idle, and opens one whose owner takes too long.
    pub(crate) async fn idle_snapshot(
        &self,
        prefix: &str,
        trees: &[String],
        deadline: Instant,
    ) -> Result<Snapshot, Fault> {
        let (mut looks, mut closing) = (0, 0);
        loop {
            let found = self.snapshot(prefix, trees, deadline).await?;
            if found.fence.fence == Fence::Idle {
                return Ok(found);
            }
            if found.fence.index != closing {
                (looks, closing) = (0, found.fence.index);
            }
            looks += 1;
            if looks > CLOSING_LOOKS {
                self.open_fence(prefix, closing, deadline).await?;
            } else if Instant::now() >= deadline {
                return Err(Fault::unavailable("others commit all the time"));
            } else {
                sleep(CLOSING_WAIT).await;
            }
        }
    }

    /// Turns the fence of `index` back to idle; when it is another by now, nothing.
    pub(crate) async fn open_fence(
        &self,
        prefix: &str,
        index: i64,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let idle = Fence::Idle.encode(&self.mark())?;
        let open = Operation::cas(&format!("{prefix}{FENCE}"), &idle, index);
        self.client()
            .txn(&[open], deadline, true)
            .await
            .map_err(Failure::fault)?
            .map_or(Ok(()), |_| Ok(()))
    }
}

impl Reads for Consul {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let prefix = self.partition(decl, partition);
        let found = self.snapshot(&prefix, &[], deadline).await?;
        let rows = rows::partition(decl, &prefix, &found.kvs).map_err(Fault::corrupt)?;
        let indexes = found.indexes(&prefix);
        self.guesses().learn(&prefix, indexes.iter().map(|(key, index)| (key.as_str(), *index)));
        Ok(rows)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let prefix = self.partition(decl, partition);
        let found = self.snapshot(&prefix, &[rows::column_key(row_key, "")], deadline).await?;
        let rows = rows::partition(decl, &prefix, &found.kvs).map_err(Fault::corrupt)?;
        Ok(rows.into_iter().next())
    }

    /// Some rows: the names of all, then those from `from` on, and around. The server has no way to
    /// tell fewer names.
    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let prefix = self.partition(decl, partition);
        let names = self.client().names(&prefix, deadline).await?;
        // Each row is a folder; the fence is not.
        let mut trees: Vec<String> = names
            .iter()
            .filter_map(|name| name.strip_prefix(&prefix))
            .filter(|name| name.ends_with('/'))
            .map(str::to_owned)
            .collect();
        let first = trees.partition_point(|tree| *tree < rows::column_key(from, ""));
        trees.rotate_left(first);
        trees.truncate(limit);
        if trees.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.snapshot(&prefix, &trees, deadline).await?;
        rows::partition(decl, &prefix, &found.kvs).map_err(Fault::corrupt)
    }

    async fn scan(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let table = self.client().layout.table(decl);
        let all = self.client().read(&[&table], deadline).await?;
        // By partition: each is read again by itself when a commit is half written in it.
        let mut partitions: BTreeMap<String, (String, Vec<KeyValue>)> = BTreeMap::new();
        for kv in all {
            let escaped = kv
                .key
                .strip_prefix(&table)
                .and_then(|rest| rest.split_once('/'))
                .map(|(p, _)| p.to_owned());
            let Some(escaped) = escaped else { continue };
            let Some(partition) = unescape(&escaped) else { continue };
            let prefix = format!("{table}{escaped}/");
            partitions.entry(partition).or_insert_with(|| (prefix, Vec::new())).1.push(kv);
        }
        let mut found = Vec::new();
        for (prefix, mut kvs) in partitions.into_values() {
            let fence = rows::fence(&prefix, &kvs).map_or_else(|| Ok(Seen::default()), Seen::of)?;
            if let Fence::Committing(_) = fence.fence {
                kvs = self.snapshot(&prefix, &[], deadline).await?.kvs;
            }
            let rows = rows::partition(decl, &prefix, &kvs).map_err(Fault::corrupt)?;
            let left = scan.limit - found.len();
            found.extend(rows.into_iter().filter(|row| scan.wants(&row.row)).take(left));
            if found.len() >= scan.limit {
                break;
            }
        }
        Ok(found)
    }
}

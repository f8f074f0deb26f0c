//! Reads of many keys, page by page at one revision; scans and clean-ups on them.

use std::collections::BTreeMap;

use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::layout::{Parts, parts, unescape};
use emmer_store_keyvalue::{Answered, At, Failure, Fault, Old, Scan, document};
use serde_json::json;
use tokio::time::Instant;

use crate::fault::Refused;
use crate::requests::remove_unchanged;
use crate::rows::{rest, stored_row};
use crate::store::Etcd;
use crate::wire::{KeyValue, Range, encode, range_end, txn};

/// The keys of one page.
const PAGE_KEYS: u32 = 1_000;
/// Number of times a read begins again because its revision was compacted.
const COMPACTED_MAX: u32 = 5;
/// The rows a clean-up deletes in one transaction.
const CLEAN_UP_ROWS: usize = 100;

impl Etcd {
    /// Gives all keys that begin with `prefix` to `each`, in order, as of one revision. Before a
    /// page that begins the read again, `each` gets None.
    pub(crate) async fn walk(
        &self,
        prefix: &str,
        deadline: Instant,
        each: &mut (dyn FnMut(Option<Vec<KeyValue>>) -> Result<(), String> + Send),
    ) -> Result<(), Fault> {
        let end = encode(range_end(prefix));
        let mut compacted = 0;
        'again: loop {
            let (mut from, mut revision) = (prefix.as_bytes().to_vec(), 0);
            loop {
                let body = json!({
                    "key": encode(&from), "range_end": end, "limit": PAGE_KEYS, "revision": revision.to_string()
                });
                let page: Range =
                    match self.client().ask("/v3/kv/range", &body, deadline, true).await {
                        Ok(page) => page,
                        Err(Refused::Compacted(fault)) => {
                            compacted += 1;
                            if compacted > COMPACTED_MAX {
                                return Err(fault);
                            }
                            each(None).map_err(Fault::corrupt)?;
                            continue 'again;
                        }
                        Err(refused) => return Err(refused.failure().fault()),
                    };
                let (more, last) = (page.more, page.kvs.last().map(|kv| kv.key.clone()));
                if revision == 0 {
                    revision = page.header.revision;
                }
                each(Some(page.kvs)).map_err(Fault::corrupt)?;
                match last {
                    Some(last) if more => {
                        from = last;
                        // The smallest key behind it.
                        from.push(0);
                    }
                    _ => return Ok(()),
                }
            }
        }
    }

    /// All keys of a partition.
    pub(crate) async fn read_keys(
        &self,
        prefix: &str,
        deadline: Instant,
    ) -> Result<Vec<KeyValue>, Fault> {
        let mut all: Vec<KeyValue> = Vec::new();
        self.walk(prefix, deadline, &mut |page| {
            match page {
                Some(page) if all.is_empty() => all = page,
                Some(page) => all.extend(page),
                None => all.clear(),
            }
            Ok(())
        })
        .await?;
        Ok(all)
    }
}

/// The rows a scan has found so far, the first ones only.
struct Found<'s> {
    decl: &'static TableDecl,
    scan: &'s Scan,
    rows: BTreeMap<(String, String), StoredRow>,
}

impl Found<'_> {
    fn is_volatile(&self) -> bool {
        self.decl.column(self.scan.column).is_some_and(|(_, c)| c.volatile)
    }

    fn add(&mut self, prefix: &str, kv: &KeyValue) -> Result<(), String> {
        let (partition, rest) = rest(kv, prefix)?.split_once('/').ok_or("a key without a row")?;
        let Parts { row, column } = parts(rest);
        let unescaped =
            |text: &str| unescape(text).ok_or_else(|| format!("key {text:?} is escaped wrongly"));
        let key = (unescaped(partition)?, unescaped(row)?);
        match column {
            // Its key is the beginning of its columns' keys, so a wanted row came before them.
            Some(column) => {
                if let Some(found) = self.rows.get_mut(&key) {
                    document::set_volatile(self.decl, &mut found.row, column, &kv.value)?;
                }
            }
            None => {
                let found = stored_row(self.decl, row, kv)?;
                if self.is_volatile() {
                    // Its column decides whether it is wanted.
                    self.rows.insert(key, found);
                } else if self.scan.wants(&found.row) {
                    self.rows.insert(key, found);
                    if self.rows.len() > self.scan.limit {
                        self.rows.pop_last();
                    }
                }
            }
        }
        Ok(())
    }

    fn end(self) -> Vec<StoredRow> {
        let is_volatile = self.is_volatile();
        let rows = self.rows.into_values().filter(|row| !is_volatile || self.scan.wants(&row.row));
        rows.take(self.scan.limit).collect()
    }
}

impl Etcd {
    pub(crate) async fn find(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let prefix = self.client().layout.table(decl);
        let mut found = Found { decl, scan, rows: BTreeMap::new() };
        self.walk(&prefix, deadline, &mut |page| match page {
            Some(page) => page.iter().try_for_each(|kv| found.add(&prefix, kv)),
            None => {
                found.rows.clear();
                Ok(())
            }
        })
        .await?;
        Ok(found.end())
    }
}

impl Etcd {
    pub(crate) async fn delete_old(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table: decl, partition, .. } = at;
        let prefix = self.client().layout.partition(decl, partition);
        let mut removals = Vec::new();
        for kv in self.read_keys(&prefix, self.client().deadline()).await? {
            let escaped = rest(&kv, &prefix).map_err(Fault::corrupt)?;
            let Parts { row, column } = parts(escaped);
            let read = || Ok(stored_row(decl, row, &kv)?.row);
            if old.wants_by(decl, column, &kv.value, read).map_err(Fault::corrupt)? {
                let (key, unchanged) = (format!("{prefix}{row}"), format!("{prefix}{escaped}"));
                removals.push(remove_unchanged(decl, &key, &unchanged, kv.mod_revision));
            }
        }
        let mut deleted = 0;
        for part in removals.chunks(CLEAN_UP_ROWS) {
            // A repeated request finds nothing left to delete, and the count is too small, which
            // does no harm.
            let body = txn(&[], part, &[]);
            let answer = self.client().txn(&body, self.client().deadline(), true).await;
            let answer = answer.map_err(Failure::fault)?;
            let done = answer.responses.iter().filter_map(|r| r.response_txn.as_ref());
            deleted += done.filter(|inner| inner.succeeded).count() as u64;
        }
        Ok(deleted)
    }
}

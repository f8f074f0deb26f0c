//! Reading a partition as it was at one moment.
//!
//! One `multi` of reads asks for the partition's node, the list of its rows, every row that was
//! listed before, and the partition's node again. Every commit writes the partition's node. So two
//! answers for it with the same last change (zxid) mean that no commit came between the first read
//! of the request and its last. The list in the same answer says whether the rows asked for are the
//! present rows. If one of the two does not hold, the answer is thrown away and asked for again
//! with the newer list. Present servers do not let a write between the reads of one such request;
//! the check makes it certain. A partition whose request would be too large is read by several,
//! sent in one go, which must all show the same last change.
//!
//! Touches change no node but their own: a snapshot may show two rows' volatile columns as of two
//! moments during the read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use emmer_store::TableDecl;
use futures_util::future::{join, join_all, try_join_all};
use tokio::time::Instant;
use zookeeper_client::{Client, Error, MultiReadResult, Stat};

use crate::fault::Fault;
use crate::paths::{self, PartitionPaths};
use crate::plan::REQUEST_BYTES_MAX;
use crate::rows::{FoundRow, volatile_columns};

/// Number of times a partition that changes under the read is read again, time permitting.
const ROUNDS_MAX: usize = 1_000;
/// Maximum rounds for one row.
const ROW_ROUNDS_MAX: usize = 20;
/// The most partitions whose lists of rows are kept for the next read; all are forgotten when there
/// would be more.
const LISTS_MAX: usize = 64;
/// The most names in a list that is kept.
const LIST_NAMES_MAX: usize = 20_000;
/// Bytes that one read adds to a request in addition to its path.
const READ_BYTES: usize = 16;

/// The names of rows as last seen, so that the next read needs one request only.
#[derive(Default)]
pub(crate) struct Lists(Mutex<BTreeMap<String, Arc<[String]>>>);

impl Lists {
    fn get(&self, partition: &str) -> Arc<[String]> {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.get(partition).cloned().unwrap_or_default()
    }

    fn keep(&self, partition: &str, names: &Arc<[String]>) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() > LIST_NAMES_MAX {
            lists.remove(partition);
            return;
        }
        if lists.len() >= LISTS_MAX && !lists.contains_key(partition) {
            lists.clear();
        }
        lists.insert(partition.to_owned(), names.clone());
    }
}

/// Result of one round.
enum Round {
    /// The rows at one moment.
    Whole(Vec<FoundRow>),
    /// The partition changed meanwhile; the names of its rows now.
    Changed(Arc<[String]>),
}

/// All rows of a partition, in the order of their keys; none when the partition was never written.
pub(crate) async fn partition(
    client: &Client,
    decl: &'static TableDecl,
    nodes: &PartitionPaths,
    lists: &Lists,
    deadline: Instant,
) -> Result<Vec<FoundRow>, Fault> {
    let mut names = lists.get(&nodes.partition);
    for _ in 0..ROUNDS_MAX {
        match round(client, decl, nodes, &names).await? {
            Round::Whole(mut rows) => {
                lists.keep(&nodes.partition, &names);
                rows.sort_unstable_by(|a, b| a.row_key.cmp(&b.row_key));
                return Ok(rows);
            }
            Round::Changed(newer) => names = newer,
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    Err(Fault::unavailable("the partition changes faster than it can be read: no two reads agree"))
}

async fn round(
    client: &Client,
    decl: &'static TableDecl,
    nodes: &PartitionPaths,
    names: &Arc<[String]>,
) -> Result<Round, Fault> {
    // The driver sends requests in the order in which it gets them, so the answers come from after
    // the `sync`.
    let synced = client.sync(&nodes.table);
    let mut requests = Vec::new();
    for chunk in chunks(decl, nodes, names) {
        let mut reader = client.new_multi_reader();
        reader.add_get_data(&nodes.table)?;
        reader.add_get_data(&nodes.partition)?;
        reader.add_get_children(&nodes.partition)?;
        for name in chunk {
            add_row(&mut reader, decl, &nodes.named(name))?;
        }
        reader.add_get_data(&nodes.partition)?;
        // Sent now, not when it is waited for.
        requests.push(reader.commit());
    }
    let (synced, answers) = join(synced, try_join_all(requests)).await;
    synced?;
    let mut rows = Vec::with_capacity(names.len());
    let mut moment: Option<i64> = None;
    let mut names_now = names.clone();
    let mut whole = true;
    let mut broken = None;
    for (answer, chunk) in answers?.into_iter().zip(chunks(decl, nodes, names)) {
        let mut answer = Answers(answer.into_iter());
        if answer.data()?.is_none() {
            return Err(Fault::no_table());
        }
        let first = answer.data()?;
        let listed = answer.children()?;
        for name in chunk {
            let row_key = row_key(name)?;
            match found_row(&mut answer, decl, row_key)? {
                Found::Row(row) => {
                    whole &= row.is_one_row();
                    rows.push(row);
                }
                Found::Nothing => whole = false,
                Found::Broken(why) => broken = Some(why),
            }
        }
        let last = answer.data()?;
        let (Some((_, first)), Some(listed), Some((_, last))) = (first, listed, last) else {
            // Never written: the partition was empty, unless it was made during the read.
            return Ok(if names.is_empty() {
                Round::Whole(Vec::new())
            } else {
                Round::Changed([].into())
            });
        };
        whole &= first.mzxid == last.mzxid && *moment.get_or_insert(first.mzxid) == first.mzxid;
        let mut sorted = listed;
        sorted.sort_unstable();
        if sorted != names_now.as_ref() {
            whole = false;
            names_now = sorted.into();
        }
    }
    match broken {
        // Nothing was committed meanwhile: it is stored like that.
        Some(why) if whole => Err(why),
        None if whole => Ok(Round::Whole(rows)),
        _ => Ok(Round::Changed(names_now)),
    }
}

/// The names in as many pieces as requests are needed; at least one.
fn chunks<'n>(decl: &TableDecl, nodes: &PartitionPaths, names: &'n [String]) -> Vec<&'n [String]> {
    let own: usize = volatile_columns(decl).map(|c| c.name.len() + 1).sum();
    let reads = 1 + volatile_columns(decl).count();
    let size = |name: &String| reads * (nodes.partition.len() + 1 + name.len() + READ_BYTES) + own;
    let mut pieces = Vec::new();
    let (mut rest, mut bytes, mut taken) = (names, 0, 0);
    for name in names {
        bytes += size(name);
        if bytes > REQUEST_BYTES_MAX && taken > 0 {
            let (piece, more) = rest.split_at(taken);
            pieces.push(piece);
            (rest, bytes, taken) = (more, size(name), 0);
        }
        taken += 1;
    }
    pieces.push(rest);
    pieces
}

/// The row key of a node's name.
fn row_key(name: &str) -> Result<String, Fault> {
    let shown = || name.chars().take(80).collect::<String>();
    paths::unescape(name)
        .ok_or_else(|| Fault::corrupt(format!("the node {:?} is not one of Emmer's rows", shown())))
}

fn add_row(
    reader: &mut zookeeper_client::MultiReader<'_>,
    decl: &'static TableDecl,
    row: &str,
) -> Result<(), Error> {
    reader.add_get_data(row)?;
    for column in volatile_columns(decl) {
        reader.add_get_data(&paths::volatile(row, column))?;
    }
    Ok(())
}

/// Some rows: the names of all, then those from `from` on, and around. The server has no way to
/// tell fewer names. A row that changes between the two reads is left out.
pub(crate) async fn some(
    client: &Client,
    decl: &'static TableDecl,
    nodes: &PartitionPaths,
    from: &str,
    limit: usize,
) -> Result<Vec<FoundRow>, Fault> {
    let synced = client.sync(&nodes.table);
    let mut reader = client.new_multi_reader();
    reader.add_get_data(&nodes.table)?;
    reader.add_get_children(&nodes.partition)?;
    let (synced, answer) = join(synced, reader.commit()).await;
    synced?;
    let mut answer = Answers(answer?.into_iter());
    if answer.data()?.is_none() {
        return Err(Fault::no_table());
    }
    let names = answer.children()?.unwrap_or_default();
    let mut keys = names.iter().map(|name| row_key(name)).collect::<Result<Vec<_>, _>>()?;
    keys.sort_unstable();
    let first = keys.partition_point(|key| key.as_str() < from);
    keys.rotate_left(first);
    keys.truncate(limit);
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = client.new_multi_reader();
    for key in &keys {
        add_row(&mut reader, decl, &nodes.row(key))?;
    }
    let mut answer = Answers(reader.commit().await?.into_iter());
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        if let Found::Row(row) = found_row(&mut answer, decl, key)?
            && row.is_one_row()
        {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// One row; None when it does not exist.
pub(crate) async fn row(
    client: &Client,
    decl: &'static TableDecl,
    nodes: &PartitionPaths,
    row_key: &str,
    deadline: Instant,
) -> Result<Option<FoundRow>, Fault> {
    let path = nodes.row(row_key);
    let mut fault =
        Fault::unavailable("the row is deleted and made again faster than it can be read");
    for _ in 0..ROW_ROUNDS_MAX {
        let synced = client.sync(&nodes.table);
        let mut reader = client.new_multi_reader();
        reader.add_get_data(&nodes.table)?;
        add_row(&mut reader, decl, &path)?;
        let (synced, answer) = join(synced, reader.commit()).await;
        synced?;
        let mut answer = Answers(answer?.into_iter());
        if answer.data()?.is_none() {
            return Err(Fault::no_table());
        }
        match found_row(&mut answer, decl, row_key.to_owned())? {
            Found::Nothing => return Ok(None),
            Found::Row(row) if row.is_one_row() => return Ok(Some(row)),
            Found::Row(_) => {}
            Found::Broken(why) => fault = why,
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    Err(fault)
}

/// Where the nodes at `paths` stand, each if it is there. The server's answers are those after a
/// `sync`.
pub(crate) async fn stats(
    client: &Client,
    nodes: &PartitionPaths,
    paths: &[&str],
) -> Result<Vec<Option<Stat>>, Fault> {
    let synced = client.sync(&nodes.table);
    let asked: Vec<_> = paths.iter().map(|path| client.check_stat(path)).collect();
    let (synced, answers) = join(synced, join_all(asked)).await;
    synced?;
    answers.into_iter().map(|answer| answer.map_err(Fault::from)).collect()
}

/// State of the nodes of one row.
enum Found {
    Nothing,
    Row(FoundRow),
    /// A volatile column's node is missing: the row was deleted between two reads, or by hand.
    Broken(Fault),
}

fn found_row(
    answer: &mut Answers,
    decl: &'static TableDecl,
    row_key: String,
) -> Result<Found, Fault> {
    let row = answer.data()?;
    let columns: Vec<_> =
        volatile_columns(decl).map(|_| answer.data()).collect::<Result<_, _>>()?;
    let Some((data, stat)) = row else { return Ok(Found::Nothing) };
    let mut volatile = Vec::with_capacity(columns.len());
    for (column, found) in volatile_columns(decl).zip(columns) {
        match found {
            Some(found) => volatile.push(found),
            None => {
                let why = format!("row {row_key:?} has no node {}", column.name);
                return Ok(Found::Broken(Fault::corrupt(why)));
            }
        }
    }
    Ok(Found::Row(FoundRow { row_key, data, stat, volatile }))
}

/// The answers to one request, one after the other.
struct Answers(std::vec::IntoIter<MultiReadResult>);

impl Answers {
    /// The next answer: a node's content, None when the node does not exist.
    fn data(&mut self) -> Result<Option<(Vec<u8>, Stat)>, Fault> {
        match self.0.next() {
            Some(MultiReadResult::Data { data, stat }) => Ok(Some((data, stat))),
            Some(MultiReadResult::Error { err: Error::NoNode }) => Ok(None),
            Some(MultiReadResult::Error { err }) => Err(err.into()),
            _ => Err(Fault::corrupt("the server answered a read with something else")),
        }
    }

    /// The next answer: a node's children, None when the node does not exist.
    fn children(&mut self) -> Result<Option<Vec<String>>, Fault> {
        match self.0.next() {
            Some(MultiReadResult::Children { children }) => Ok(Some(children)),
            Some(MultiReadResult::Error { err: Error::NoNode }) => Ok(None),
            Some(MultiReadResult::Error { err }) => Err(err.into()),
            _ => Err(Fault::corrupt("the server answered a list with something else")),
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;

    #[test]
    fn requests_stay_below_the_servers_limit_and_nothing_is_left_out() {
        let nodes = PartitionPaths::new("/emmer", &SILO_INSTANCES, "prod");
        for count in [0, 1, 5_000, 12_000] {
            let names: Vec<String> =
                (0..count).map(|n| format!("10.0.0.1-11111-{n:016}")).collect();
            let pieces = chunks(&SILO_INSTANCES, &nodes, &names);
            assert_eq!(pieces.concat(), names);
            assert_eq!(pieces.len(), count / 6_001 + 1, "{count}");
        }
    }
}

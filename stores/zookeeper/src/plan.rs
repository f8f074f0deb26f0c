//! A commit as the operations of one `multi`.

use std::collections::BTreeMap;

use emmer_store::{Mutation, Row, TableDecl};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriter};

use crate::paths::{self, PartitionPaths};
use crate::rows::{Written, encode, encode_volatile, volatile_columns};

/// Maximum bytes of one request, somewhat below the server's own limit (`jute.maxbuffer`, 1,048,575
/// bytes by default). A server closes the connection of a client that sends more, which would look
/// like an unknown outcome.
pub(crate) const REQUEST_BYTES_MAX: usize = 1_000_000;
/// Bytes that one operation adds to a request in addition to its path and data: header, lengths,
/// version, access list.
const OPERATION_BYTES: usize = 80;
/// A version that no node has: the condition on it never holds.
const NEVER: i32 = i32::MAX;

/// One operation of a `multi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Check { path: String, version: i32 },
    Create { path: String, data: Vec<u8> },
    Set { path: String, data: Vec<u8>, version: Option<i32> },
    Delete { path: String, version: Option<i32> },
}

impl Operation {
    fn bytes(&self) -> usize {
        let (path, data) = match self {
            Self::Check { path, .. } | Self::Delete { path, .. } => (path, 0),
            Self::Create { path, data } | Self::Set { path, data, .. } => (path, data.len()),
        };
        OPERATION_BYTES + path.len() + data
    }

    fn add(&self, writer: &mut MultiWriter<'_>, acls: Acls<'_>) -> Result<(), Error> {
        match self {
            Self::Check { path, version } => writer.add_check_version(path, *version),
            Self::Create { path, data } => {
                writer.add_create(path, data, &CreateMode::Persistent.with_acls(acls))
            }
            Self::Set { path, data, version } => writer.add_set_data(path, data, *version),
            Self::Delete { path, version } => writer.add_delete(path, *version),
        }
    }
}

/// State of the deletions of a partition: the version of their node, and the commit (zxid) of the
/// last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deletions {
    pub(crate) version: i32,
    pub(crate) zxid: i64,
}

/// Facts about a partition when a commit is planned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Needed where a mutation has a condition on an etag.
    pub(crate) deletions: Option<Deletions>,
    /// By row key: what rows written before the last deletion are now. A row that is not here is
    /// what its etag says, if its etag is younger than the last deletion.
    pub(crate) verified: BTreeMap<String, Option<Written>>,
}

/// The operations, and which mutation each belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) operations: Vec<Operation>,
    /// By operation: the position of its mutation; None for operations that guard the partition.
    pub(crate) owners: Vec<Option<usize>>,
    /// The position of the operation that writes a mutation's row, by mutation.
    pub(crate) writes: Vec<Option<usize>>,
    /// The position of the check of the deletions, if there is one with a condition.
    pub(crate) deletions_at: Option<usize>,
}

/// The etag a mutation is bound to.
pub(crate) fn condition(mutation: &Mutation) -> Option<&str> {
    match mutation {
        Mutation::Replace { etag, .. }
        | Mutation::Check { etag, .. }
        | Mutation::Delete { etag: Some(etag), .. } => Some(etag),
        Mutation::Insert { .. } | Mutation::Upsert { .. } | Mutation::Delete { etag: None, .. } => {
            None
        }
    }
}

/// Commit to one partition.
pub(crate) struct Request<'r> {
    pub(crate) decl: &'static TableDecl,
    pub(crate) partition: &'r str,
    pub(crate) nodes: &'r PartitionPaths,
    pub(crate) mutations: &'r [Mutation],
    /// By mutation: one more condition of a `Delete`, on a volatile column's node and its version.
    pub(crate) guards: &'r [(String, i32)],
}

impl Request<'_> {
    /// The operations in the order of the mutations, so that the first that fails is the first
    /// mutation whose condition does not hold. `exists` guesses whether the row of an `Upsert` is
    /// there; a wrong guess fails and is planned again.
    pub(crate) fn plan(&self, known: &Known, exists: impl Fn(&str) -> bool) -> Plan {
        let mut plan = Plan { writes: vec![None; self.mutations.len()], ..Plan::default() };
        plan.push(
            None,
            Operation::Set { path: self.nodes.partition.clone(), data: Vec::new(), version: None },
        );
        let conditional = self.mutations.iter().any(|m| condition(m).is_some());
        let deletes = self.mutations.iter().any(|m| matches!(m, Mutation::Delete { .. }));
        let path = self.nodes.deletions.clone();
        let version = known.deletions.filter(|_| conditional).map(|found| found.version);
        match version {
            _ if deletes => plan.push(None, Operation::Set { path, data: Vec::new(), version }),
            Some(version) => plan.push(None, Operation::Check { path, version }),
            None => {}
        }
        if version.is_some() {
            plan.deletions_at = Some(plan.operations.len() - 1);
        }
        for (at, mutation) in self.mutations.iter().enumerate() {
            self.add(&mut plan, at, mutation, known, &exists);
        }
        plan
    }

    fn add(
        &self,
        plan: &mut Plan,
        at: usize,
        mutation: &Mutation,
        known: &Known,
        exists: impl Fn(&str) -> bool,
    ) {
        let path = self.nodes.row(mutation.row_key());
        match mutation {
            Mutation::Insert { row } => self.create(plan, at, path, row),
            Mutation::Upsert { row } if !exists(&path) => self.create(plan, at, path, row),
            Mutation::Upsert { row } => self.set(plan, at, path, row, None),
            Mutation::Replace { row, etag } => {
                let version = version(self.nodes, row.key(), etag, known);
                self.set(plan, at, path, row, Some(version));
            }
            Mutation::Check { row_key, etag } => {
                let version = version(self.nodes, row_key, etag, known);
                plan.push(Some(at), Operation::Check { path, version });
            }
            Mutation::Delete { row_key, etag } => {
                let version = etag.as_ref().map(|etag| version(self.nodes, row_key, etag, known));
                if let Some((path, version)) = self.guards.get(at) {
                    plan.push(Some(at), Operation::Check { path: path.clone(), version: *version });
                }
                if let Some(version) = version {
                    plan.push(Some(at), Operation::Check { path: path.clone(), version });
                }
                for column in volatile_columns(self.decl) {
                    let path = paths::volatile(&path, column);
                    plan.push(Some(at), Operation::Delete { path, version: None });
                }
                plan.push(Some(at), Operation::Delete { path, version });
            }
        }
    }

    fn create(&self, plan: &mut Plan, at: usize, path: String, row: &Row) {
        plan.mark_write(at);
        let data = encode(self.decl, self.partition, row);
        let columns: Vec<_> = volatile_columns(self.decl)
            .map(|column| {
                (
                    paths::volatile(&path, column),
                    encode_volatile(self.decl, self.partition, row, column),
                )
            })
            .collect();
        plan.push(Some(at), Operation::Create { path, data });
        for (path, data) in columns {
            plan.push(Some(at), Operation::Create { path, data });
        }
    }

    fn set(&self, plan: &mut Plan, at: usize, path: String, row: &Row, version: Option<i32>) {
        plan.mark_write(at);
        let data = encode(self.decl, self.partition, row);
        plan.push(Some(at), Operation::Set { path, data, version });
    }
}

/// The version the row's node must have; one that no node has where the row is known not to be what
/// the etag says.
fn version(nodes: &PartitionPaths, row_key: &str, etag: &str, known: &Known) -> i32 {
    let Some(wanted) = Written::parse(etag, nodes, row_key) else { return NEVER };
    let never_deleted_since =
        known.deletions.is_some_and(|deletions| wanted.zxid >= deletions.zxid);
    let verified = known.verified.get(row_key).is_some_and(|found| *found == Some(wanted));
    if never_deleted_since || verified { wanted.version } else { NEVER }
}

/// The rows whose etag is older than the last deletion: they may have been deleted and made again
/// since.
pub(crate) fn doubtful(
    nodes: &PartitionPaths,
    mutations: &[Mutation],
    deletions: Deletions,
) -> Vec<String> {
    let doubtful = mutations.iter().filter(|mutation| {
        let written =
            condition(mutation).and_then(|etag| Written::parse(etag, nodes, mutation.row_key()));
        written.is_some_and(|written| written.zxid < deletions.zxid)
    });
    doubtful.map(|mutation| mutation.row_key().to_owned()).collect()
}

impl Plan {
    fn push(&mut self, owner: Option<usize>, operation: Operation) {
        self.operations.push(operation);
        self.owners.push(owner);
    }

    /// The next operation writes the row of mutation `at`.
    fn mark_write(&mut self, at: usize) {
        let next = self.operations.len();
        if let Some(slot) = self.writes.get_mut(at) {
            *slot = Some(next);
        }
    }

    /// About how large the request is.
    pub(crate) fn bytes(&self) -> usize {
        self.operations.iter().map(Operation::bytes).sum()
    }

    /// The request, ready to be sent.
    pub(crate) fn writer<'c>(
        &self,
        client: &'c Client,
        acls: Acls<'_>,
    ) -> Result<MultiWriter<'c>, Error> {
        let mut writer = client.new_multi_writer();
        self.operations.iter().try_for_each(|operation| operation.add(&mut writer, acls))?;
        Ok(writer)
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::Value;
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;

    fn nodes() -> PartitionPaths {
        PartitionPaths::new("/emmer", &SILO_INSTANCES, "prod")
    }

    fn etag() -> emmer_store::Etag {
        Written { zxid: 5, version: 3 }.etag(&nodes(), "r")
    }

    fn plan(mutations: &[Mutation], known: &Known, exists: bool) -> Plan {
        let nodes = nodes();
        let (partition, guards) = ("prod", &[][..]);
        let request =
            Request { decl: &SILO_INSTANCES, partition, nodes: &nodes, mutations, guards };
        request.plan(known, |_| exists)
    }

    fn row() -> Row {
        Row::new("r").with("Port", Value::Int(1))
    }

    fn deletions(zxid: i64) -> Known {
        Known { deletions: Some(Deletions { version: 7, zxid }), ..Known::default() }
    }

    #[test]
    fn an_etag_older_than_the_last_deletion_holds_only_when_verified() {
        let replace = [Mutation::Replace { row: row(), etag: etag() }];
        let version = |known: &Known| match plan(&replace, known, true).operations.last() {
            Some(Operation::Set { version, .. }) => *version,
            other => panic!("{other:?}"),
        };
        assert_eq!(version(&deletions(5)), Some(3), "the deletion came with the same commit");
        assert_eq!(version(&deletions(6)), Some(NEVER));
        assert_eq!(version(&Known::default()), Some(NEVER));
        let mut known = deletions(6);
        known.verified.insert("r".to_owned(), Some(Written { zxid: 5, version: 3 }));
        assert_eq!(version(&known), Some(3));
        // Made again: the same version, another commit.
        known.verified.insert("r".to_owned(), Some(Written { zxid: 8, version: 3 }));
        assert_eq!(version(&known), Some(NEVER));
        assert_eq!(doubtful(&nodes(), &replace, Deletions { version: 7, zxid: 6 }), ["r"]);
        assert!(doubtful(&nodes(), &replace, Deletions { version: 7, zxid: 5 }).is_empty());
    }

    #[test]
    fn conditions_check_the_deletions_and_deletes_count_them() {
        let insert = [Mutation::Insert { row: row() }];
        let plain = plan(&insert, &deletions(1), false);
        assert_eq!(
            (plain.deletions_at, plain.owners.as_slice()),
            (None, [None, Some(0), Some(0)].as_slice())
        );
        assert_eq!(plain.writes, [Some(1)]);
        let check = [Mutation::Check { row_key: "r".into(), etag: etag() }];
        let checked = plan(&check, &deletions(1), false);
        assert!(matches!(
            checked.operations.as_slice(),
            [_, Operation::Check { version: 7, .. }, Operation::Check { version: 3, .. }]
        ));
        assert_eq!(checked.deletions_at, Some(1));
        let delete = [Mutation::Delete { row_key: "r".into(), etag: None }];
        let deleted = plan(&delete, &deletions(1), false);
        assert!(matches!(deleted.operations.get(1), Some(Operation::Set { version: None, .. })));
        assert_eq!((deleted.deletions_at, deleted.owners.len()), (None, 4));
        let both = [delete[0].clone(), check[0].clone()];
        assert!(matches!(
            plan(&both, &deletions(1), false).operations.get(1),
            Some(Operation::Set { version: Some(7), .. })
        ));
    }
}

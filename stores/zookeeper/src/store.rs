//! The contract's operations over the session.

use std::time::Duration;

use emmer_store::document::declaration;
use emmer_store::examine::Examination;
use emmer_store::validate::APPEND_ROWS_MAX;
use emmer_store::{
    Address, CommitOutcome, Mutation, Result, Row, StoreErrorKind, StoreLimits, StoredRow,
    TableDecl,
};
use emmer_store_keyvalue::{
    Answered, At, Backend, Commits, Failure, Fault, KeyValue, Old, Reads, Scan, Tables, Touch,
    Writes,
};
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acls, Client, Error};

use crate::bulk::Bulk;
use crate::commit::{Committer, Memory};
use crate::fault;
use crate::paths::{self, PartitionPaths, TablePaths};
use crate::place::Place;
use crate::plan::{REQUEST_BYTES_MAX, Request};
use crate::rows::encode_volatile;
use crate::session::Sessions;
use crate::snapshot::{self, Lists};
use crate::{examine, tables};

/// Time that making a table takes at most: others may be making it.
const ENSURE_TIMEOUT: Duration = Duration::from_secs(30);

/// A system store in a ZooKeeper ensemble:
/// `ZooKeeperStore::open("zookeeper://user:password@host:port,host:port/node")`.
///
/// Everything is kept under the node, `/emmer` where the URL names none; it is made when the first
/// table is. With a user the nodes belong to that user (scheme `digest`); where the URL gives no
/// password the environment's `ZOOKEEPER_PASSWORD` is used. A node that belongs to another user is
/// `Refused`.
///
/// `?timeout_ms=4800` is the most time of an operation, connecting included (1000 to 60000).
/// `?tls=true` encrypts, trusting what the system trusts or the authorities in `?ca_file=` (PEM).
///
/// Dropping it ends its session.
pub type ZooKeeperStore = KeyValue<ZooKeeper>;

/// A client of one ensemble.
pub struct ZooKeeper {
    sessions: Sessions,
    memory: Memory,
    lists: Lists,
}

impl ZooKeeper {
    const fn place(&self) -> &Place {
        self.sessions.place()
    }

    fn root(&self) -> &str {
        &self.place().root
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.place().address.timeout
    }

    /// Access list of the nodes this store makes.
    fn acls(&self) -> Acls<'static> {
        if self.place().credentials.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    fn nodes(&self, decl: &TableDecl, partition: &str) -> PartitionPaths {
        PartitionPaths::new(self.root(), decl, partition)
    }

    fn bulk<'s>(&'s self, client: &'s Client, deadline: Instant) -> Bulk<'s> {
        let (memory, lists, acls) = (&self.memory, &self.lists, self.acls());
        Bulk { client, memory, lists, acls, deadline }
    }
}

impl Backend for ZooKeeper {
    /// All of them: only their sizes say how many fit into one request.
    const APPEND_ROWS: usize = APPEND_ROWS_MAX;
    const IN_MEMORY: bool = true;

    fn new(url: &str) -> Result<Self> {
        let place = Place::parse(url, std::env::var("ZOOKEEPER_PASSWORD").ok().as_deref())?;
        let (memory, lists) = (Memory::default(), Lists::default());
        Ok(Self { sessions: Sessions::new(place), memory, lists })
    }

    /// A wrong password shows only at nodes that have an owner.
    async fn probe(&self, deadline: Instant) -> Answered<()> {
        let looked = self.sessions.ask(deadline, |client| async move {
            match client.get_data(self.root()).await {
                Ok(_) | Err(Error::NoNode) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        Ok(looked.await?)
    }

    fn address(&self) -> &Address {
        &self.place().address
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::of_commits(REQUEST_BYTES_MAX)
    }

    async fn examine(&self) -> Answered<Examination> {
        // Checks that a session can be opened.
        let deadline = self.deadline();
        drop(self.sessions.lease(deadline).await?);
        let found = timeout_at(deadline, examine::examine(self.place())).await;
        Ok(found.map_err(|_| fault::Fault::too_late())?)
    }
}

impl Tables for ZooKeeper {
    async fn make(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let deadline = deadline.max(Instant::now() + ENSURE_TIMEOUT);
        let made = self.sessions.ask(deadline, |client| async move {
            tables::ensure(&client, self.root(), table, self.acls()).await
        });
        Ok(made.await?)
    }

    async fn shape(
        &self,
        table: &'static TableDecl,
        _deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        // Nothing to look at: every request here includes the table's node, and is refused where
        // that is not there.
        Ok(Some(declaration(table).into_bytes()))
    }
}

impl Reads for ZooKeeper {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let nodes = &self.nodes(table, partition);
        let read = self.sessions.ask(deadline, |client| async move {
            let rows = snapshot::partition(&client, table, nodes, &self.lists, deadline).await?;
            rows.into_iter().map(|row| row.into_stored(table, nodes)).collect()
        });
        Ok(read.await?)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table, partition, deadline } = at;
        let nodes = &self.nodes(table, partition);
        let read = self.sessions.ask(deadline, |client| async move {
            let found = snapshot::row(&client, table, nodes, row_key, deadline).await?;
            self.memory.row(nodes.row(row_key), found.is_some());
            found.map(|row| row.into_stored(table, nodes)).transpose()
        });
        Ok(read.await?)
    }

    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let nodes = &self.nodes(table, partition);
        let read = self.sessions.ask(deadline, |client| async move {
            let rows = snapshot::some(&client, table, nodes, from, limit).await?;
            rows.into_iter().map(|row| row.into_stored(table, nodes)).collect()
        });
        Ok(read.await?)
    }

    async fn scan(
        &self,
        table: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let nodes = &TablePaths::new(self.root(), table);
        let scanned = self.sessions.ask(deadline, |client| async move {
            self.bulk(&client, deadline).scan(table, nodes, scan).await
        });
        Ok(scanned.await?)
    }
}

impl Commits for ZooKeeper {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table, partition, deadline } = at;
        let nodes = self.nodes(table, partition);
        let lease = self.sessions.lease(deadline).await.map_err(Fault::from)?;
        let committer =
            Committer { client: &lease.client, memory: &self.memory, acls: self.acls(), deadline };
        let request = Request { decl: table, partition, nodes: &nodes, mutations, guards: &[] };
        committer.commit(&request).await.outcome()
    }
}

impl Writes for ZooKeeper {
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table, partition, deadline } = at;
        let node = self.nodes(table, partition).row(row_key);
        let row = Row::new(row_key).with(column, value.clone());
        let Some((_, column)) = table.column(column) else {
            return Err(Fault::new(StoreErrorKind::Invalid, "there is no such column"));
        };
        let path = paths::volatile(&node, column);
        let data = encode_volatile(table, partition, &row, column);
        let (path, data) = (&path, &data);
        let touched = self.sessions.ask(deadline, |client| async move {
            match client.set_data(path, data, None).await {
                Ok(_) => Ok(true),
                Err(Error::NoNode) => Ok(false),
                Err(error) => Err(error.into()),
            }
        });
        Ok(touched.await?)
    }

    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table, partition, deadline } = at;
        let nodes = &self.nodes(table, partition);
        let added = self.sessions.ask(deadline, |client| async move {
            self.bulk(&client, deadline).append(table, partition, nodes, rows).await
        });
        Ok(added.await?)
    }

    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table, partition, .. } = at;
        let (deadline, nodes) = (self.deadline(), &self.nodes(table, partition));
        let deleted = self.sessions.ask(deadline, |client| async move {
            self.bulk(&client, deadline).delete_older_than(table, partition, nodes, old).await
        });
        Ok(deleted.await?)
    }
}

//! The contract, operation by operation.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Examination, Mutation, Result, Row, StoreError, StoreErrorKind, StoredRow,
    SystemStore, TableDecl, Value,
};
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acls, Client, Error};

use crate::bulk::Bulk;
use crate::commit::{Committer, Memory};
use crate::fault::Fault;
use crate::paths::{self, PartitionPaths, TablePaths};
use crate::place::Place;
use crate::plan::Request;
use crate::rows::encode_volatile;
use crate::session::Sessions;
use crate::snapshot::{self, Lists};
use crate::{examine, tables};

/// How long making tables takes at most: others may be making them.
const ENSURE_TIMEOUT: Duration = Duration::from_secs(30);

/// A system store in a ZooKeeper ensemble.
///
/// Dropping it ends its session.
pub struct ZooKeeperStore {
    name: String,
    sessions: Sessions,
    memory: Memory,
    lists: Lists,
}

impl fmt::Debug for ZooKeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZooKeeperStore").field(&self.name).finish()
    }
}

impl ZooKeeperStore {
    /// Connects to `zookeeper://user:password@host:port,host:port/node`. Everything is kept under the node, `/emmer` where
    /// the URL names none; it is made when the first table is. With a user the nodes belong to that user (scheme
    /// `digest`); where the URL gives no password the environment's `ZOOKEEPER_PASSWORD` is used.
    ///
    /// `?timeout_ms=4800` is how long an operation takes at most, connecting included (1000 to 60000);
    /// `?tls=true&tls_ca=FILE` encrypts connections to servers whose certificates FILE's (PEM) signed.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot be understood,
    /// `Unavailable` when no host lets a session be opened, `Refused` when the node belongs to another user.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let place = Place::parse(url, std::env::var("ZOOKEEPER_PASSWORD").ok().as_deref())?;
        let name = place.name.clone();
        let deadline = begun + place.timeout;
        let store =
            Self { name, sessions: Sessions::new(place), memory: Memory::default(), lists: Lists::default() };
        let root = match store.root() {
            "" => "/",
            root => root,
        };
        // A wrong password shows only at nodes that belong to somebody.
        let looked = store.sessions.ask(deadline, |client| async move {
            match client.get_data(root).await {
                Ok(_) | Err(Error::NoNode) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        looked.await.map_err(|fault: Fault| fault.at(&store.name, "open".to_owned()))?;
        Ok(store)
    }

    fn place(&self) -> &Place {
        self.sessions.place()
    }

    fn root(&self) -> &str {
        &self.place().root
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.place().timeout
    }

    /// Who may do what with the nodes this store makes.
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

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.name.as_str(), operation()))
    }

    fn error(&self, kind: StoreErrorKind, operation: String, detail: impl fmt::Display) -> StoreError {
        StoreError::new(kind, self.name.as_str(), operation, detail)
    }
}

impl SystemStore for ZooKeeperStore {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let names: Vec<&str> = tables.iter().map(|decl| decl.name).collect();
            let operation = || format!("ensure {}", names.join(", "));
            for decl in tables {
                self.checked(validate::table(decl), operation)?;
            }
            let deadline = Instant::now() + ENSURE_TIMEOUT.max(self.place().timeout);
            let made = self.sessions.ask(deadline, |client| async move {
                tables::ensure(&client, self.root(), tables, self.acls()).await
            });
            made.await.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            let (deadline, nodes) = (self.deadline(), self.nodes(table, partition));
            let nodes = &nodes;
            let read = self.sessions.ask(deadline, |client| async move {
                let rows = snapshot::partition(&client, table, nodes, &self.lists, deadline).await?;
                rows.into_iter().map(|row| row.into_stored(table)).collect()
            });
            read.await.map_err(|fault: Fault| fault.at(&self.name, operation()))
        })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}/{row_key}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            self.checked(validate::row_key(row_key), operation)?;
            let (deadline, nodes) = (self.deadline(), self.nodes(table, partition));
            let nodes = &nodes;
            let read = self.sessions.ask(deadline, |client| async move {
                let found = snapshot::row(&client, table, nodes, row_key, deadline).await?;
                self.memory.row(nodes.row(row_key), found.is_some());
                found.map(|row| row.into_stored(table)).transpose()
            });
            read.await.map_err(|fault: Fault| fault.at(&self.name, operation()))
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
            let operation = || format!("scan {} by {column}", table.name);
            self.checked(validate::scan(table, column), operation)?;
            let (deadline, nodes) = (self.deadline(), TablePaths::new(self.root(), table));
            let (nodes, range) = (&nodes, &range);
            let scanned = self.sessions.ask(deadline, |client| async move {
                self.bulk(&client, deadline).scan(table, nodes, column, range, limit).await
            });
            scanned.await.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move {
            let operation = || format!("commit {}/{partition}", table.name);
            self.checked(validate::commit(table, partition, &mutations), operation)?;
            if mutations.is_empty() {
                return Ok(CommitOutcome::Committed(Vec::new()));
            }
            let at = |fault: Fault| fault.at(&self.name, operation());
            let (deadline, nodes) = (self.deadline(), self.nodes(table, partition));
            let lease = self.sessions.lease(deadline).await.map_err(at)?;
            let committer =
                Committer { client: &lease.client, memory: &self.memory, acls: self.acls(), deadline };
            let request =
                Request { decl: table, partition, nodes: &nodes, mutations: &mutations, guards: &[] };
            committer.commit(&request).await.outcome(at)
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
            let operation = || format!("touch {column} of {}/{partition}/{row_key}", table.name);
            self.checked(validate::touch(table, partition, row_key, column, &value), operation)?;
            let node = self.nodes(table, partition).row(row_key);
            let row = Row::new(row_key).with(column, value);
            let Some((_, column)) = table.column(column) else {
                return Err(self.error(StoreErrorKind::Invalid, operation(), "there is no such column"));
            };
            let path = paths::volatile(&node, column);
            let data = encode_volatile(table, partition, &row, column);
            let (path, data) = (&path, &data);
            let touched = self.sessions.ask(self.deadline(), |client| async move {
                match client.set_data(path, data, None).await {
                    Ok(_) => Ok(()),
                    Err(Error::NoNode) => Err(Fault::new(StoreErrorKind::NotFound, "the row is not there")),
                    Err(error) => Err(error.into()),
                }
            });
            touched.await.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operation = || format!("append {}/{partition}", table.name);
            self.checked(validate::append(table, partition, &rows), operation)?;
            let (deadline, nodes) = (self.deadline(), self.nodes(table, partition));
            let (nodes, rows) = (&nodes, &rows);
            let added = self.sessions.ask(deadline, |client| async move {
                self.bulk(&client, deadline).append(table, partition, nodes, rows).await
            });
            added.await.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let operation = || format!("clean up {}/{partition}", table.name);
            self.checked(validate::delete_older_than(table, partition, column), operation)?;
            let (deadline, nodes) = (self.deadline(), self.nodes(table, partition));
            let nodes = &nodes;
            let deleted = self.sessions.ask(deadline, |client| async move {
                let bulk = self.bulk(&client, deadline);
                bulk.delete_older_than(table, partition, nodes, column, cutoff).await
            });
            deleted.await.map_err(|fault| fault.at(&self.name, operation()))
        })
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(async move {
            // That a session can be had at all.
            let deadline = self.deadline();
            let at = |fault: Fault| fault.at(&self.name, "examine".to_owned());
            drop(self.sessions.lease(deadline).await.map_err(at)?);
            let found = timeout_at(deadline, examine::examine(self.place())).await;
            found.map_err(|_| at(Fault::too_late()))
        })
    }
}

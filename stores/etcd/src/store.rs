//! The contract's operations as transactions.

use emmer_store::document::declaration;
use emmer_store::examine::Examination;
use emmer_store::{
    Address, CommitOutcome, Mutation, Result, Row, StoreLimits, StoredRow, TableDecl,
};
use emmer_store_keyvalue::layout::parts;
use emmer_store_keyvalue::{
    Answered, At, Backend, Commits, Failure, Fault, KeyValue, Old, Reads, Scan, Tables, Touch,
    Writes, document, layout,
};
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::client::Client;
use crate::examine;
use crate::requests::{Commit, add};
use crate::rows;
use crate::wire::{self, Txn, get, get_all, get_keys, is_missing, is_there, put, range_end, txn};

/// Maximum bytes of one request, as servers have it by default (`--max-request-bytes`).
const REQUEST_BYTES_MAX: usize = 1_572_864;

/// A system store in an etcd cluster:
/// `EtcdStore::open("etcd://user:password@host:port,host:port")`, any members of one cluster.
///
/// Where the URL gives a user no password the environment's `ETCDCTL_PASSWORD` is used. `?tls=true`
/// encrypts, trusting what the system trusts; `?ca_file=` encrypts, trusting the authorities in
/// that PEM file. `?prefix=emmer` begins all keys. `?timeout_ms=4800` is the most time of an
/// operation, connecting included (1000 to 60000).
pub type EtcdStore = KeyValue<Etcd>;

/// A client of one etcd cluster.
pub struct Etcd {
    client: Client,
}

impl Etcd {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// A transaction whose repetition does no harm.
    async fn transact(&self, body: &Json, deadline: Instant) -> std::result::Result<Txn, Fault> {
        self.client.txn(body, deadline, true).await.map_err(Failure::fault)
    }

    /// Results of some reads, in their order.
    async fn ranges(
        &self,
        reads: &[Json],
        deadline: Instant,
    ) -> std::result::Result<Vec<wire::KeyValue>, Fault> {
        let answer = self.transact(&txn(&[], reads, &[]), deadline).await?;
        let ranges = answer.responses.into_iter().filter_map(|response| response.response_range);
        Ok(ranges.flat_map(|range| range.kvs).collect())
    }

    fn partition(&self, decl: &TableDecl, partition: &str) -> String {
        self.client.layout.partition(decl, partition)
    }
}

impl Backend for Etcd {
    const APPEND_ROWS: usize = 100;

    fn new(url: &str) -> Result<Self> {
        Ok(Self { client: Client::new(url, std::env::var("ETCDCTL_PASSWORD").ok().as_deref())? })
    }

    /// A leader must answer it, so it checks the credentials and the cluster.
    async fn probe(&self, deadline: Instant) -> Answered<()> {
        self.client.authenticate(deadline).await?;
        let probe = format!("{}/.tables/", self.client.layout.prefix());
        self.transact(&txn(&[], &[get(&probe)], &[]), deadline).await.map(drop)
    }

    fn address(&self) -> &Address {
        &self.client.address
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::of_commits(REQUEST_BYTES_MAX)
    }

    async fn examine(&self) -> std::result::Result<Examination, Fault> {
        examine::examine(&self.client).await
    }
}

impl Tables for Etcd {
    async fn make(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let key = self.client.layout.shape(table);
        let make = txn(&[is_missing(&key)], &[put(&key, &declaration(table))], &[]);
        self.transact(&make, deadline).await.map(drop)
    }

    async fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let key = self.client.layout.shape(table);
        let answer = self.transact(&txn(&[], &[get(&key)], &[]), deadline).await?;
        let range =
            answer.responses.into_iter().next().and_then(|response| response.response_range);
        Ok(range.and_then(|range| range.kvs.into_iter().next()).map(|kv| kv.value))
    }
}

impl Reads for Etcd {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let prefix = self.partition(table, partition);
        let kvs = self.read_keys(&prefix, deadline).await?;
        rows::partition(table, &prefix, &kvs).map_err(Fault::corrupt)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table, partition, deadline } = at;
        let prefix = self.partition(table, partition);
        let key = layout::row(&prefix, row_key);
        let mut reads = vec![get(&key)];
        if document::volatile_names(table).next().is_some() {
            reads.push(get_all(&format!("{key}/")));
        }
        let kvs = self.ranges(&reads, deadline).await?;
        Ok(rows::partition(table, &prefix, &kvs).map_err(Fault::corrupt)?.into_iter().next())
    }

    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let prefix = self.partition(table, partition);
        // Their names first: the order does not say which keys belong to one row.
        let keys = limit * (1 + document::volatile_names(table).count());
        let (start, end) = (layout::row(&prefix, from), range_end(&prefix));
        let names = [
            get_keys(start.as_bytes(), &end, keys),
            get_keys(prefix.as_bytes(), start.as_bytes(), keys),
        ];
        let found = self.ranges(&names, deadline).await?;
        let mut chosen: Vec<&str> = Vec::new();
        for kv in &found {
            let row = parts(rows::rest(kv, &prefix).map_err(Fault::corrupt)?).row;
            if chosen.len() < limit && !chosen.contains(&row) {
                chosen.push(row);
            }
        }
        let row =
            |row: &&str| [get(&format!("{prefix}{row}")), get_all(&format!("{prefix}{row}/"))];
        let reads: Vec<Json> = chosen.iter().flat_map(row).collect();
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        rows::partition(table, &prefix, &self.ranges(&reads, deadline).await?)
            .map_err(Fault::corrupt)
    }

    async fn scan(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        self.find(decl, scan, deadline).await
    }
}

impl Commits for Etcd {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table, partition, deadline } = at;
        let prefix = self.partition(table, partition);
        let commit = Commit::new(table, partition, &prefix, mutations);
        let answer = self.client.txn(&commit.body, deadline, false).await?;
        commit.outcome(mutations, &answer).map_err(|e| Failure::Broken(Fault::corrupt(e)))
    }
}

impl Writes for Etcd {
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table, partition, deadline } = at;
        let key = layout::row(&self.partition(table, partition), row_key);
        let set = put(&layout::column(&key, column), &document::encode_value(value));
        Ok(self.transact(&txn(&[is_there(&key)], &[set], &[]), deadline).await?.succeeded)
    }

    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table, partition, deadline } = at;
        let prefix = self.partition(table, partition);
        let adds: Vec<Json> = rows.iter().map(|row| add(table, partition, &prefix, row)).collect();
        self.transact(&txn(&[], &adds, &[]), deadline).await.map(drop)
    }

    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        self.delete_old(at, old).await
    }
}

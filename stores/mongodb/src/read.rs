//! Reads: all of one partition are linearizable.

use std::future::IntoFuture as _;

use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::{Answered, At, Fault, Reads, Scan};
use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use tokio::time::Instant;

use crate::client::Client;
use crate::documents::{self, ID, ROWS, row_path, volatile_path};
use crate::store::MongoDb;

impl MongoDb {
    /// A partition's document, or some of its rows; None when it was never written.
    async fn document(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        keys: Option<&[String]>,
        deadline: Instant,
    ) -> Result<Option<RawDocumentBuf>, Fault> {
        let collection = self.client().collection(decl).clone_with_type::<RawDocumentBuf>();
        let paths = |key: &String| [row_path(key), volatile_path(key)];
        let wanted: Option<Document> = keys
            .map(|keys| keys.iter().flat_map(paths).map(|path| (path, Bson::Int32(1))).collect());
        let request = || {
            let mut found =
                collection.find_one(doc! { ID: partition }).max_time(Client::left(deadline));
            if let Some(wanted) = &wanted {
                found = found.projection(wanted.clone());
            }
            found.into_future()
        };
        self.client().send(deadline, request).await
    }

    pub(crate) async fn read_keys(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        keys: &[String],
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        let found = self.document(decl, partition, Some(keys), deadline).await?;
        found.map_or_else(|| Ok(Vec::new()), |document| documents::rows(decl, &document))
    }

    /// The keys of a partition's rows, in no order.
    async fn keys(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, Fault> {
        let collection = self.client().collection(decl);
        let key = format!("$$this.v.{}", decl.row_key);
        let rows = doc! { "$objectToArray": { "$ifNull": [format!("${ROWS}"), {}] } };
        let pipeline = [
            doc! { "$match": { ID: partition } },
            doc! { "$project": { "keys": { "$map": { "input": rows, "in": key } } } },
        ];
        let request = || async {
            let asked = collection.aggregate(pipeline.clone()).max_time(Client::left(deadline));
            asked.await?.try_collect::<Vec<Document>>().await
        };
        let found =
            self.client().send(deadline, request).await?.into_iter().next().unwrap_or_default();
        let keys = found.get_array("keys").cloned().unwrap_or_default();
        let text = |key| if let Bson::String(text) = key { Some(text) } else { None };
        Ok(keys.into_iter().filter_map(text).collect())
    }
}

impl Reads for MongoDb {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let found = self.document(decl, partition, None, deadline).await?;
        let rows =
            found.map_or_else(|| Ok(Vec::new()), |document| documents::rows(decl, &document))?;
        for row in &rows {
            self.guesses().learn(decl, partition, row.row.key(), Some(()));
        }
        Ok(rows)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table, partition, deadline } = at;
        let keys = [row_key.to_owned()];
        Ok(self.read_keys(table, partition, &keys, deadline).await?.into_iter().next())
    }

    /// At most `limit` rows from the key `from` on, and around. The server has no way to tell fewer
    /// names.
    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let mut keys = self.keys(decl, partition, deadline).await?;
        keys.sort_unstable();
        let first = keys.partition_point(|key| key.as_str() < from);
        keys.rotate_left(first);
        keys.truncate(limit);
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.read_keys(decl, partition, &keys, deadline).await
    }

    /// The rows a scan asks for. Every document of the table is read.
    async fn scan(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let collection = self.client().collection(decl).clone_with_type::<RawDocumentBuf>();
        let request = || async {
            // One moment for each document. A majority has every acknowledged commit.
            let asked = collection.find(doc! {}).read_concern(ReadConcern::majority());
            asked.max_time(Client::left(deadline)).await?.try_collect::<Vec<RawDocumentBuf>>().await
        };
        let mut found = Vec::new();
        for document in self.client().send(deadline, request).await? {
            let partition = document.get_str(ID);
            let partition =
                partition.map_err(|_| Fault::corrupt("a document's _id is not a partition"))?;
            let rows =
                documents::rows(decl, &document)?.into_iter().filter(|row| scan.wants(&row.row));
            found.extend(rows.map(|row| (partition.to_owned(), row)));
        }
        found.sort_by(|(one, a), (other, b)| (one, a.row.key()).cmp(&(other, b.row.key())));
        found.truncate(scan.limit);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }
}

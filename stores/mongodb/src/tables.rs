//! A collection for each declaration, and one that keeps the declarations.

use std::future::IntoFuture as _;

use emmer_store::TableDecl;
use emmer_store::document::declaration;
use emmer_store_keyvalue::{Answered, Tables};
use mongodb::bson::{Document, doc};
use mongodb::{Collection, error};
use tokio::time::Instant;

use crate::client::Client;
use crate::documents::ID;
use crate::failure::{Ended, understood};
use crate::store::MongoDb;

/// The collection of the declarations.
pub(crate) const META: &str = "emmer_meta";
/// The field of a declaration.
const DECLARATION: &str = "declaration";

impl MongoDb {
    fn meta(&self) -> Collection<Document> {
        self.client().database().collection(META)
    }
}

/// That another process was first is as good.
fn if_it_is_not_there(error: error::Error) -> error::Result<()> {
    match understood(&error) {
        Ended::Duplicate(_) => Ok(()),
        _ => Err(error),
    }
}

impl Tables for MongoDb {
    /// Makes the collection, then notes the declaration, unless there is one. The second one finds
    /// the first one's.
    async fn make(&self, decl: &'static TableDecl, deadline: Instant) -> Answered<()> {
        if self.shape(decl, deadline).await?.is_some() {
            return Ok(());
        }
        let (client, meta) = (self.client(), self.meta());
        let database = client.database();
        client
            .send(deadline, || async {
                database.create_collection(decl.name).await.or_else(if_it_is_not_there)
            })
            .await?;
        let request = || async {
            let declared = doc! { "$setOnInsert": { DECLARATION: declaration(decl) } };
            let noted = meta.update_one(doc! { ID: decl.name }, declared).upsert(true).await;
            noted.map(drop).or_else(if_it_is_not_there)
        };
        client.send(deadline, request).await
    }

    /// The declaration of an existing table. A table whose collection was dropped does not exist.
    async fn shape(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let meta = self.meta();
        let request = || async {
            let found =
                meta.find_one(doc! { ID: decl.name }).max_time(Client::left(deadline)).await?;
            Ok(found.and_then(|found| {
                found.get_str(DECLARATION).ok().map(|text| text.as_bytes().to_vec())
            }))
        };
        let Some(declared) = self.client().send(deadline, request).await? else { return Ok(None) };
        let database = self.client().database();
        let is_there =
            || database.list_collection_names().filter(doc! { "name": decl.name }).into_future();
        let found = self.client().send(deadline, is_there).await?;
        Ok((!found.is_empty()).then_some(declared))
    }
}

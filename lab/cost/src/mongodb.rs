//! What the store costs over the driver by hand, on this machine, in one run. It starts a server of
//! its own: SecantusDB, which is not mongod.
//!
//! By hand is what a careful user would do with `mongodb` on one document for each cluster: a
//! membership commit as one update whose filter has the version's number, acknowledged by a
//! majority; a read as one linearizable question. With the word `transactions` it is what one
//! would do with a document for each row: a transaction of two updates, and a read of all rows at
//! one moment.

use crate::measure::{ByHand, CLUSTER, Outcome, measure, silo};
use emmer_store_mongodb::MongoDbStore;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{MongoDbServer, store};
use futures_util::TryStreamExt as _;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, ReadConcern, ServerAddress, WriteConcern};
use mongodb::{Client, Collection};

const STORE: Store = store!(MongoDbStore);

/// The driver, by hand.
struct Raw {
    client: Client,
    silos: Collection<Document>,
    transactions: bool,
}

impl Raw {
    async fn open(port: u16, transactions: bool) -> Outcome<Self> {
        let options = ClientOptions::builder()
            .hosts(vec![ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(port) }])
            .direct_connection(true)
            .write_concern(
                WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build(),
            )
            .build();
        let client = Client::with_options(options)?;
        let silos = client.database("emmer").collection("by_hand");
        let first =
            doc! { "_id": if transactions { "VersionRow" } else { CLUSTER }, "version": 0_i64 };
        silos.insert_one(first).await?;
        Ok(Self { client, silos, transactions })
    }

    fn row(n: u64) -> Document {
        let silo = silo(n);
        let time = DateTime::from_millis(silo.start_time.as_millis());
        doc! {
            "etag": format!("9f3c2a17d00b4e55.{n}"), "PartitionKey": CLUSTER, "RowKey": format!("10.0.0.1-11111-{n}"),
            "DeploymentId": CLUSTER, "Address": silo.address.ip().to_string(),
            "Port": i64::from(silo.address.port()), "Generation": n.cast_signed(), "HostName": &*silo.host_name,
            "Status": "Active", "ProxyPort": 0_i64, "Primary": "false", "RoleName": "",
            "InstanceName": &*silo.instance_name, "UpdateZone": 0_i64, "FaultZone": 0_i64, "SuspectingSilos": [],
            "SuspectingTimes": [], "StartTime": time, "IAmAliveTime": time,
        }
    }

    async fn in_a_transaction(&self, number: i64, key: &str, row: Document) -> Outcome<bool> {
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        let version = doc! { "_id": "VersionRow", "version": number - 1 };
        let moved = doc! { "$set": { "version": number } };
        let done = self.silos.update_one(version, moved).session(&mut session).await?;
        self.silos.replace_one(doc! { "_id": key }, row).upsert(true).session(&mut session).await?;
        session.commit_transaction().await?;
        Ok(done.matched_count == 1)
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let key = format!("10-0-0-1-11111-{n}");
        let done = if self.transactions {
            self.in_a_transaction(number, &key, Self::row(n)).await?
        } else {
            let version = doc! { "_id": CLUSTER, "version": number - 1 };
            let moved = doc! { "$set": { "version": number, format!("rows.{key}"): Self::row(n) } };
            self.silos.update_one(version, moved).await?.matched_count == 1
        };
        if done { Ok(()) } else { Err("a conflict".into()) }
    }

    async fn read(&self) -> Outcome<usize> {
        if self.transactions {
            let found: Vec<Document> = self.silos.find(doc! {}).await?.try_collect().await?;
            return Ok(found.iter().filter(|row| !row.is_empty()).count());
        }
        let asked =
            self.silos.find_one(doc! { "_id": CLUSTER }).read_concern(ReadConcern::linearizable());
        let found = asked.await?.ok_or("no document")?;
        let rows = found.get_document("rows")?;
        let mut count = 1;
        for (_, row) in rows {
            count += usize::from(row.as_document().is_some_and(|row| !row.is_empty()));
        }
        Ok(count)
    }
}

/// Measures.
pub(crate) async fn run(words: &[String]) -> Outcome<()> {
    let transactions = words.iter().any(|word| word == "transactions");
    let server = MongoDbServer::start()?;
    measure(&server.url(), STORE, || Raw::open(server.port(), transactions)).await
}

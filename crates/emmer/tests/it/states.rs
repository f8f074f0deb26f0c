//! States for real use: in stores of their own, of several versions, of a bounded size.

use std::sync::Arc;

use emmer::errors::StartError;
use emmer::prelude::*;
use emmer::state::{Migrate, StoredState};
use emmer::store::{MemoryStore, SystemStore};
use emmer::test::World;
use serde::{Deserialize, Serialize};

#[grain_interface(key = String)]
trait Shelf {
    async fn put(&mut self, item: String) -> Result<usize, StateError>;
    async fn items(&self) -> Vec<String>;
    async fn archive(&mut self) -> Result<(), StateError>;
    async fn archived(&self) -> String;
}

/// The first version: items are one text.
#[derive(Grain)]
struct OldShelf {
    #[state("items")]
    items: Persistent<String>,
    #[state("items", store = "archive")]
    archive: Persistent<String>,
}

#[grain]
impl Shelf for OldShelf {
    async fn put(&mut self, item: String) -> Result<usize, StateError> {
        self.items.push_str(&item);
        self.items.push(' ');
        self.items.write().await?;
        Ok(self.items.split_whitespace().count())
    }

    async fn items(&self) -> Vec<String> {
        self.items.split_whitespace().map(str::to_owned).collect()
    }

    async fn archive(&mut self) -> Result<(), StateError> {
        *self.archive = std::mem::take(&mut *self.items);
        self.archive.write().await?;
        self.items.clear().await
    }

    async fn archived(&self) -> String {
        self.archive.clone()
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Items {
    all: Vec<String>,
    /// The version that it was read from.
    #[serde(skip)]
    from: u32,
}

impl Migrate for Items {
    fn migrate(from: u32, old: StoredState<'_>) -> emmer::Result<Self> {
        let text: String = old.decode()?;
        if text.contains("cursed") {
            return Err(emmer::Error::new("there is a curse on it"));
        }
        Ok(Self { all: text.split_whitespace().map(str::to_owned).collect(), from })
    }
}

#[derive(Grain)]
struct NewShelf {
    #[state("items", version = 2)]
    items: Persistent<Items>,
    #[state("items", store = "archive")]
    archive: Persistent<String>,
}

#[grain]
impl Shelf for NewShelf {
    async fn put(&mut self, item: String) -> Result<usize, StateError> {
        self.items.all.push(item);
        self.items.write().await?;
        Ok(self.items.all.len())
    }

    async fn items(&self) -> Vec<String> {
        let from = self.items.from.to_string();
        self.items.all.iter().cloned().chain([from]).collect()
    }

    async fn archive(&mut self) -> Result<(), StateError> {
        self.items.clear().await
    }

    async fn archived(&self) -> String {
        self.archive.clone()
    }
}

fn archive() -> Arc<dyn SystemStore> {
    Arc::new(MemoryStore::new())
}

#[emmer::test]
async fn states_lie_in_the_stores_that_they_name(world: World) {
    let store = archive();
    let other = store.clone();
    let mut cluster = world
        .cluster(2, move |silo| {
            silo.state_store("archive", other.clone()).host::<dyn Shelf, OldShelf>()
        })
        .await;
    let shelf = cluster.client().await.grain::<dyn Shelf>("a");
    shelf.put("bread".to_owned()).await.unwrap();
    shelf.archive().await.unwrap();
    shelf.put("milk".to_owned()).await.unwrap();
    for n in 0..2 {
        cluster.kill(n);
        cluster.restart(n).await;
    }
    let shelf = cluster.client().await.grain::<dyn Shelf>("a");
    let items = shelf.items().timeout(secs(60)).await.unwrap();
    assert_eq!((items, shelf.archived().await.unwrap()), (vec!["milk".into()], "bread ".into()));
    // Without its store the archive is empty, and the rest as it was.
    cluster.describe(|silo| silo.state_store("archive", archive()).host::<dyn Shelf, OldShelf>());
    for n in 0..2 {
        cluster.kill(n);
        cluster.restart(n).await;
    }
    let shelf = cluster.client().await.grain::<dyn Shelf>("a");
    let items = shelf.items().timeout(secs(60)).await.unwrap();
    assert_eq!((items, shelf.archived().await.unwrap()), (vec!["milk".into()], String::new()));
    drop(store);
}

#[tokio::test]
async fn a_store_that_is_missing_is_named_at_the_start() {
    let silo = Silo::builder().store("memory://").host::<dyn Shelf, OldShelf>();
    let error = silo.start().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StartError::NoStateStore { store: "archive", .. }), "{text}");
    assert!(text.contains("OldShelf") && text.contains(".state_store(\"archive\", ...)"), "{text}");
}

#[emmer::test]
async fn a_state_of_an_older_version_is_migrated_and_then_written_as_the_new_one(world: World) {
    let old = |silo: emmer::SiloBuilder| {
        silo.state_store("archive", archive()).host::<dyn Shelf, OldShelf>()
    };
    let new = |silo: emmer::SiloBuilder| {
        silo.state_store("archive", archive()).host::<dyn Shelf, NewShelf>()
    };
    let mut cluster = world.cluster(1, old).await;
    let client = cluster.client().await;
    for (key, item) in [("a", "bread"), ("a", "milk"), ("b", "cursed")] {
        client.grain::<dyn Shelf>(key).put(item.to_owned()).await.unwrap();
    }
    let start = async |cluster: &mut emmer::test::Cluster| {
        cluster.kill(0);
        cluster.restart(0).await;
        cluster.client().await
    };
    cluster.describe(new);
    let client = start(&mut cluster).await;
    let a = client.grain::<dyn Shelf>("a");
    assert_eq!(a.items().await.unwrap(), ["bread", "milk", "1"]);
    assert_eq!(a.put("eggs".to_owned()).await, Ok(3));
    let error = client.grain::<dyn Shelf>("b").items().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("by version 1") && text.contains("a curse"), "{text}");
    // Written by the new version, read by it without a migration.
    let client = start(&mut cluster).await;
    assert_eq!(
        client.grain::<dyn Shelf>("a").items().await.unwrap(),
        ["bread", "milk", "eggs", "0"]
    );
    // The old program does not misunderstand what the new one has stored.
    cluster.describe(old);
    let client = start(&mut cluster).await;
    let error = client.grain::<dyn Shelf>("a").items().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("by version 2, and this program knows version 1"), "{text}");
    assert_eq!(client.grain::<dyn Shelf>("b").items().await.unwrap(), ["cursed"]);
}

#[emmer::test]
async fn a_state_that_is_too_large_is_not_written_and_named(world: World) {
    let cluster = world
        .cluster(1, |silo| {
            silo.configure(|options| options.limits.state_bytes_max = 2_000)
                .state_store("archive", archive())
                .host::<dyn Shelf, OldShelf>()
        })
        .await;
    let shelf = cluster.client().await.grain::<dyn Shelf>("attic");
    shelf.put("bread".to_owned()).await.unwrap();
    let error = shelf.put("x".repeat(2_000)).await.unwrap_err();
    let text = error.to_string();
    for word in ["\"items\"", "shelf/attic", "2010 bytes", "2000 are allowed", "state_bytes_max"] {
        assert!(text.contains(word), "{text}");
    }
    assert!(matches!(error, CallError::App(StateError::TooLarge { bytes: 2_010, max: 2_000, .. })));
    // The store still has the old value, and the grain continues with that.
    assert_eq!(shelf.items().await.unwrap(), ["bread"]);
}

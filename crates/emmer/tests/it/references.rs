//! References as data: as arguments, results, state and keys of maps; several classes for one
//! interface; keys of every type.

use std::collections::BTreeMap;

use emmer::prelude::*;
use emmer::test::World;
use emmer::{GrainKey, Uuid};
use serde::{Deserialize, Serialize};

#[grain_interface(key = String)]
trait Room {
    async fn enter(&mut self, who: String) -> usize;
    async fn called(&self) -> String;
}

#[derive(Grain)]
struct RoomGrain {
    guests: Vec<String>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Room for RoomGrain {
    async fn enter(&mut self, who: String) -> usize {
        self.guests.push(who);
        self.guests.len()
    }

    async fn called(&self) -> String {
        self.ctx.me::<dyn Room>().key().to_owned()
    }
}

/// Another class of the same interface.
#[derive(Grain)]
#[grain(name = "suite")]
struct SuiteGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Room for SuiteGrain {
    async fn enter(&mut self, _: String) -> usize {
        0
    }

    async fn called(&self) -> String {
        format!("{:?}", self.ctx.me::<dyn Room>())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, GrainKey)]
struct HouseId(u32);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Rooms {
    doors: BTreeMap<RoomRef, u64>,
    best: Option<RoomRef>,
}

#[grain_interface(key = HouseId)]
trait House {
    async fn add(&mut self, room: RoomRef) -> emmer::Result<u64>;
    async fn visit_all(&self, who: String) -> emmer::Result<Vec<String>>;
    async fn best(&self) -> Option<RoomRef>;
    async fn me(&self) -> HouseRef;
}

#[derive(Grain)]
struct HouseGrain {
    #[state("rooms")]
    rooms: Persistent<Rooms>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl House for HouseGrain {
    async fn add(&mut self, room: RoomRef) -> emmer::Result<u64> {
        self.rooms.best = Some(room.clone());
        *self.rooms.doors.entry(room).or_default() += 1;
        self.rooms.write().await?;
        Ok(self.rooms.doors.values().sum())
    }

    async fn visit_all(&self, who: String) -> emmer::Result<Vec<String>> {
        let mut found = Vec::new();
        for room in self.rooms.doors.keys() {
            room.enter(who.clone()).await?;
            found.push(room.called().await?);
        }
        Ok(found)
    }

    async fn best(&self) -> Option<RoomRef> {
        self.rooms.best.clone()
    }

    async fn me(&self) -> HouseRef {
        self.ctx.me::<dyn House>()
    }
}

fn describe(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Room, RoomGrain>()
        .host::<dyn Room, SuiteGrain>()
        .host::<dyn House, HouseGrain>()
}

#[emmer::test(seeds = 5)]
async fn references_travel_are_stored_and_call_from_where_they_arrive(world: World) {
    let mut cluster = world.cluster(3, describe).await;
    let client = cluster.client().await;
    let house = client.grain::<dyn House>(HouseId(7));
    for name in ["blue", "red", "a/b"] {
        house.add(client.grain::<dyn Room>(name)).await.unwrap();
    }
    house.add(client.grain::<dyn Room>("blue").of("suite")).await.unwrap();
    assert_eq!(house.add(client.grain::<dyn Room>("red")).await.unwrap(), 5);
    let called = house.visit_all("ann".to_owned()).await.unwrap();
    let mut called: Vec<&str> = called.iter().map(String::as_str).collect();
    called.sort_unstable();
    assert_eq!(called, ["RoomRef(room:suite/blue)", "a/b", "blue", "red"]);
    // A reference that a grain returns works for the client that gets it.
    let red = house.best().await.unwrap().unwrap();
    assert_eq!((red.key(), red.enter("bob".to_owned()).await), ("red", Ok(2)));
    let me = house.me().await.unwrap();
    assert_eq!((me.key(), &me), (HouseId(7), &house));
    // Every silo is started again: only stored values are left.
    for n in 0..3 {
        cluster.kill(n);
    }
    for n in 0..3 {
        cluster.restart(n).await;
    }
    let client = cluster.client().await;
    let house = client.grain::<dyn House>(HouseId(7));
    let called = house.visit_all("eve".to_owned()).timeout(secs(60)).await.unwrap();
    assert_eq!(called.len(), 4);
}

#[emmer::test]
async fn a_reference_decoded_outside_says_so_at_its_first_call(world: World) {
    let cluster = world.cluster(1, describe).await;
    let client = cluster.client().await;
    let text = serde_json::to_string(&client.grain::<dyn Room>("blue")).unwrap();
    assert_eq!(text, "\"room/s.blue\"");
    let lost: RoomRef = serde_json::from_str(&text).unwrap();
    assert_eq!(lost, client.grain::<dyn Room>("blue"));
    let error = lost.called().await.unwrap_err();
    assert!(error.to_string().contains("client.grains().bind"), "{error}");
    assert!(!error.maybe_executed());
    assert!(lost.called().send().unwrap_err().to_string().contains("client.grains().bind"));
    let late = lost.called().timeout(secs(1)).await.unwrap_err();
    assert!(late.to_string().contains("client.grains().bind"), "{late}");
    let found: RoomRef = client.grains().bind(|| serde_json::from_str(&text)).unwrap();
    assert_eq!(found.called().await.unwrap(), "blue");
    // A map's key in a format whose keys are texts.
    let doors = BTreeMap::from([(found, 1_u8)]);
    let text = serde_json::to_string(&doors).unwrap();
    assert_eq!(serde_json::from_str::<BTreeMap<RoomRef, u8>>(&text).unwrap(), doors);
}

/// Nothing is encoded within a silo: the reference belongs to it all the same.
#[emmer::test]
async fn a_reference_decoded_outside_works_where_a_grain_has_it(world: World) {
    let cluster = world.cluster(2, describe).await;
    let called = cluster.node(0).run(async |silo| {
        let mut called = Vec::new();
        for n in 0..6 {
            let outside: RoomRef = serde_json::from_str("\"room/s.blue\"").unwrap();
            let house = silo.grain::<dyn House>(HouseId(n));
            house.add(outside).await.unwrap();
            called.extend(house.visit_all("ann".to_owned()).await.unwrap());
        }
        called
    });
    assert_eq!(called.await.unwrap(), ["blue"; 6]);
}

#[test]
fn what_is_no_reference_to_such_a_grain_is_refused() {
    for text in [
        "\"room\"",
        "\"house/u.7\"",
        "\"rooms/s.x\"",
        "\"room:/s.x\"",
        "\"room/u.7\"",
        "\"room/s.%\"",
        "7",
    ] {
        let error = serde_json::from_str::<RoomRef>(text).unwrap_err().to_string();
        assert!(error.contains("room/s.key"), "{text}: {error}");
    }
    let long = format!("\"room/s.{}\"", "x".repeat(1_025));
    assert!(serde_json::from_str::<RoomRef>(&long).is_err());
    assert!(serde_json::from_str::<HouseRef>("\"house/u.4294967296\"").is_err(), "no u32");
}

#[emmer::test]
async fn a_call_by_a_class_that_nobody_hosts_says_which(world: World) {
    let listing = |silo| describe(silo).configure(|options| options.list_types_to_clients = true);
    let cluster = world.cluster(1, listing).await;
    let client = cluster.client().await;
    let error = client.grain::<dyn Room>("x").of("hall").called().await.unwrap_err();
    assert!(error.to_string().contains("room:suite"), "{error}");
}

macro_rules! keyed {
    ($interface:ident, $key:ty) => {
        #[grain_interface(key = $key)]
        trait $interface {
            async fn nothing(&self);
        }
    };
}

keyed!(ByByte, u8);
keyed!(ByShort, i16);
keyed!(ByUuid, Uuid);
keyed!(ByPair, (String, u64));

#[emmer::test]
async fn keys_are_shown_as_the_interface_has_them(world: World) {
    let cluster = world.cluster(1, describe).await;
    let client = cluster.client().await;
    assert_eq!(client.grain::<dyn ByByte>(200).key(), 200);
    assert_eq!(client.grain::<dyn ByShort>(-3).key(), -3);
    assert_eq!(client.grain::<dyn ByUuid>(Uuid::from_u128(5)).key(), Uuid::from_u128(5));
    let pair = client.grain::<dyn ByPair>(("a/b".to_owned(), 9));
    assert_eq!(pair.key(), ("a/b".to_owned(), 9));
    assert_eq!(pair.grain_id().key(), &GrainKey::from("a%2Fb/9"));
}

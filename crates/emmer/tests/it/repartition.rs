//! Grains that move to the silos of the grains that they talk with.

use emmer::prelude::*;
use emmer::test::World;

#[grain_interface(key = u64)]
trait Person {
    /// Says something in a room. Returns the silos of both, and the number of words there.
    async fn talk(&self, room: u64) -> (String, String, u64);
    /// Says something in a room and does not wait.
    async fn whisper(&self, room: u64);
}

#[grain_interface(key = u64)]
trait Room {
    async fn say(&mut self) -> (String, u64);
}

fn here(ctx: &Ctx) -> String {
    ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
}

#[derive(Grain)]
struct PersonGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Person for PersonGrain {
    async fn talk(&self, room: u64) -> (String, String, u64) {
        let (at, words) = self.ctx.grains().grain::<dyn Room>(room).say().await.unwrap();
        (here(&self.ctx), at, words)
    }

    async fn whisper(&self, room: u64) {
        self.ctx.grains().grain::<dyn Room>(room).say().send().unwrap();
    }
}

#[derive(Grain)]
struct RoomGrain {
    #[context]
    ctx: Ctx,
    #[carry]
    words: u64,
}

#[grain]
impl Room for RoomGrain {
    async fn say(&mut self) -> (String, u64) {
        self.words += 1;
        (here(&self.ctx), self.words)
    }
}

fn people(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Person, PersonGrain>().host::<dyn Room, RoomGrain>()
}

const ROOMS: u64 = 40;
const PEOPLE: u64 = 120;

/// People of three silos come to the silos of their rooms, and no word is lost meanwhile.
#[emmer::test(seeds = 3)]
async fn people_come_to_the_silos_of_their_rooms(world: World) {
    let cluster = world.cluster(3, |silo| people(silo).configure(|o| o.repartition = true)).await;
    let client = cluster.client().await;
    let (mut first, mut last) = (0, 0);
    let mut words = vec![0; usize::try_from(ROOMS).unwrap()];
    for round in 0..300u64 {
        let mut apart = 0;
        for person in 0..PEOPLE {
            let room = person % ROOMS;
            let heard = &mut words[usize::try_from(room).unwrap()];
            let grain = client.grain::<dyn Person>(person);
            if person < PEOPLE / 4 {
                grain.whisper(room).await.unwrap();
                *heard += 1;
            }
            let (own, at, words) = grain.talk(room).await.unwrap();
            apart += u64::from(own != at);
            *heard += 1;
            assert_eq!(words, *heard, "room {room} in round {round}");
        }
        if round == 0 {
            first = apart;
        }
        last = apart;
        world.advance(secs(2)).await;
    }
    assert!(first > PEOPLE / 2, "{first} of {PEOPLE} are apart at first");
    assert!(last < PEOPLE / 5, "{last} of {PEOPLE} are apart at last");
    let counts: Vec<_> = (0..3).map(|n| cluster.node(n).statistics().activations).collect();
    assert!(counts.iter().all(|count| (40..=68).contains(count)), "{counts:?}");
    let arrived: u64 = (0..3).map(|n| cluster.node(n).statistics().arrived).sum();
    assert!(arrived < PEOPLE * 2, "{arrived} moves");
}

/// Without the setting nothing moves.
#[emmer::test]
async fn by_default_grains_stay_where_they_are(world: World) {
    let cluster = world.cluster(3, people).await;
    let client = cluster.client().await;
    for _ in 0..60 {
        for person in 0..12 {
            client.grain::<dyn Person>(person).talk(person % 2).await.unwrap();
        }
        world.advance(secs(5)).await;
    }
    let arrived: u64 = (0..3).map(|n| cluster.node(n).statistics().arrived).sum();
    assert_eq!(arrived, 0);
}

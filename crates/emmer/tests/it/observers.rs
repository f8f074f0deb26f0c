//! Observers: what a grain tells, whom it tells, and what happens when either is lost.

use std::sync::{Arc, Mutex};

use emmer::observers::{Gap, News, Overflow, Watch, WatchError};
use emmer::prelude::*;
use emmer::test::{Cluster, NetModel, World};

#[observer]
trait ChatEvents {
    /// A line was said.
    fn said(&self, number: u64, text: String);
    fn left(&self);
}

#[grain_interface(key = u64)]
trait Room {
    async fn join(&mut self, who: ObserverRef<dyn ChatEvents>) -> Result<(), String>;
    async fn kick(&mut self, who: ObserverRef<dyn ChatEvents>) -> bool;
    async fn say(&mut self, number: u64, bytes: usize);
    async fn goodbye(&self);
    async fn people(&self) -> u64;
    async fn rest(&mut self);
    async fn silo(&self) -> String;
}

#[derive(Grain)]
struct RoomGrain {
    people: Observers<dyn ChatEvents>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Room for RoomGrain {
    async fn join(&mut self, who: ObserverRef<dyn ChatEvents>) -> Result<(), String> {
        if self.ctx.me::<dyn Room>().key() == 999 {
            return Err("members only".to_owned());
        }
        self.people.add(who).map_err(|e| e.to_string())
    }

    async fn kick(&mut self, who: ObserverRef<dyn ChatEvents>) -> bool {
        self.people.remove(&who)
    }

    async fn say(&mut self, number: u64, bytes: usize) {
        self.people.tell(|to| to.said(number, "x".repeat(bytes)));
    }

    async fn goodbye(&self) {
        self.people.tell(|to| to.left());
    }

    async fn people(&self) -> u64 {
        self.people.len()
    }

    async fn rest(&mut self) {
        self.ctx.deactivate_on_idle();
    }

    async fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }
}

async fn cluster(world: &World, silos: usize) -> Cluster {
    let cluster = world.cluster(silos, |silo| silo.host::<dyn Room, RoomGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(2), split: 0.2, ..NetModel::default() });
    cluster
}

async fn on(cluster: &Cluster, client: &GrainFactory, n: usize) -> RoomRef {
    let wanted = cluster.node(n).address().to_string();
    for key in 0..100 {
        let room = client.grain::<dyn Room>(key);
        if room.silo().await.unwrap() == wanted {
            return room;
        }
    }
    unreachable!("a hundred grains, and none on {wanted}")
}

type Heard = Watch<dyn ChatEvents>;

/// A watch that has joined.
async fn watch(client: &GrainFactory, room: &RoomRef) -> Heard {
    let before = room.people().await.unwrap();
    let mut watch = client.watch(room, |room, me| room.join(me));
    watch.joined().await;
    assert_eq!(room.people().await.unwrap(), before + 1);
    watch
}

async fn number(watch: &mut Heard) -> u64 {
    match tokio::time::timeout(secs(60), watch.next()).await {
        Ok(Some(Ok(News::Event(ChatEventsEvent::Said { number, .. })))) => number,
        other => panic!("no line: {other:?}"),
    }
}

#[emmer::test(seeds = 5)]
async fn every_observer_hears_in_order(world: World) {
    let cluster = cluster(&world, 3).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let room = on(&cluster, &one.grains(), 1).await;
    let mut watches = Vec::new();
    for client in [&one, &two, &one] {
        watches.push(watch(&client.grains(), &room).await);
    }
    for number in 0..300 {
        room.say(number, 50).await.unwrap();
    }
    room.goodbye().await.unwrap();
    for watch in &mut watches {
        for n in 0..300 {
            assert_eq!(number(watch).await, n);
        }
        let last = watch.next().await;
        assert!(matches!(last, Some(Ok(News::Event(ChatEventsEvent::Left {})))), "{last:?}");
    }
    drop(watches);
    world.advance(millis(100)).await;
    assert_eq!(room.people().await.unwrap(), 0, "observers that are dropped leave");
}

/// An observer in a silo's process, of a grain there and of one elsewhere.
#[emmer::test(seeds = 5)]
async fn a_service_of_a_silo_observes(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    for n in 0..2 {
        let key = on(&cluster, &client.grains(), n).await.key();
        let observes = async move |grains: GrainFactory| {
            let room = grains.grain::<dyn Room>(key);
            let mut watch = watch(&grains, &room).await;
            for n in 0..10 {
                room.say(n, 1).await.unwrap();
                assert_eq!(number(&mut watch).await, n);
            }
            drop(watch);
            tokio::time::sleep(millis(50)).await;
            assert_eq!(room.people().await.unwrap(), 0);
        };
        cluster.node(0).run(observes).await.unwrap();
    }
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl ChatEvents for Listener {
    fn said(&self, number: u64, _text: String) {
        assert!(number != 2, "a listener that panics");
        self.0.lock().unwrap().push(number.to_string());
    }

    fn left(&self) {
        self.0.lock().unwrap().push("left".to_owned());
    }

    fn gap(&self, gap: Gap) {
        self.0.lock().unwrap().push(format!("gap {:?}", gap.missed));
    }
}

#[emmer::test(seeds = 5)]
async fn a_handler_hears_events_and_gaps(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let room = on(&cluster, &client.grains(), 1).await;
    let listener = Listener::default();
    let watch = client.watch(&room, |room, me| room.join(me));
    let handled = watch.handle(Box::new(listener.clone()));
    world.advance(millis(100)).await;
    for number in 0..4 {
        room.say(number, 1).await.unwrap();
    }
    world.advance(millis(50)).await;
    room.rest().await.unwrap();
    world.advance(secs(2)).await;
    room.goodbye().await.unwrap();
    world.advance(millis(50)).await;
    assert_eq!(*listener.0.lock().unwrap(), ["0", "1", "3", "gap None", "left"]);
    drop(handled);
    world.advance(millis(100)).await;
    assert_eq!(room.people().await.unwrap(), 0);
}

#[emmer::test(seeds = 10)]
async fn an_observer_joins_again_when_its_silo_or_gateway_dies(world: World) {
    let mut cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    for n in 1..3 {
        let room = on(&cluster, &client.grains(), n).await;
        let mut heard = watch(&client.grains(), &room).await;
        room.say(1, 1).await.unwrap();
        assert_eq!(number(&mut heard).await, 1);
        cluster.kill(n);
        let gap = tokio::time::timeout(secs(60), heard.next()).await.unwrap();
        assert!(matches!(gap, Some(Ok(News::Gap(Gap { missed: None, .. })))), "{gap:?}");
        room.say(2, 1).await.unwrap();
        assert_eq!(number(&mut heard).await, 2);
        drop(heard);
        cluster.restart(n).await;
        world.advance(secs(30)).await;
    }
}

#[emmer::test(seeds = 10)]
async fn observers_hear_again_within_a_second_of_their_gateways_death(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client_with(|options| options.gateways_max = 2).await;
    world.advance(secs(1)).await;
    let gateways = client.gateways();
    let silo = (0..3).find(|n| !gateways.contains(&cluster.node(*n).address())).unwrap();
    let room = on(&cluster, &client.grains(), silo).await;
    let mut heard = watch(&client.grains(), &room).await;
    for gateway in gateways {
        let n = (0..3).find(|n| cluster.node(*n).address() == gateway).unwrap();
        let begun = world.elapsed();
        let said = room.people().await;
        cluster.kill(n);
        let gap = tokio::time::timeout(secs(2), heard.next()).await;
        match gap {
            Ok(Some(Ok(News::Gap(_)))) => {
                let took = world.elapsed().saturating_sub(begun);
                assert!(took <= secs(1), "{took:?}");
                return;
            }
            // It was not behind this one.
            Err(_) => assert!(said.is_ok()),
            other => panic!("{other:?}"),
        }
    }
    panic!("behind neither gateway");
}

/// A client that dies without a word is gone from its grains.
#[emmer::test(seeds = 5)]
async fn a_dead_clients_observers_leave(world: World) {
    let cluster = cluster(&world, 2).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let room = on(&cluster, &one.grains(), 1).await;
    let heard = watch(&two.grains(), &room).await;
    two.close().await;
    let gone = async {
        while room.people().await.unwrap() > 0 {
            world.advance(millis(500)).await;
        }
    };
    assert!(tokio::time::timeout(secs(16), gone).await.is_ok());
    drop(heard);
}

#[emmer::test(seeds = 5)]
async fn what_does_not_fit_is_told_as_a_gap(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let room = on(&cluster, &client.grains(), 1).await;
    let watched = |overflow| {
        let watch = client.watch(&room, |room, me| room.join(me));
        watch.capacity(10).overflow(overflow)
    };
    let (mut oldest, mut newest) = (watched(Overflow::DropOldest), watched(Overflow::DropNewest));
    let mut ends = watched(Overflow::End);
    for watch in [&mut oldest, &mut newest, &mut ends] {
        assert!(tokio::time::timeout(millis(100), watch.next()).await.is_err());
    }
    for number in 0..200 {
        room.say(number, 1).await.unwrap();
    }
    world.advance(millis(50)).await;
    let gap = oldest.next().await;
    let missed = match gap {
        Some(Ok(News::Gap(Gap { missed: Some(missed), .. }))) => missed,
        other => panic!("{other:?}"),
    };
    for n in missed..200 {
        assert_eq!(number(&mut oldest).await, n);
    }
    for n in 0..10 {
        assert_eq!(number(&mut newest).await, n);
    }
    let gap = newest.next().await;
    assert!(matches!(gap, Some(Ok(News::Gap(Gap { missed: Some(190), .. })))), "{gap:?}");
    for n in 0..10 {
        assert_eq!(number(&mut ends).await, n);
    }
    assert!(matches!(ends.next().await, Some(Err(WatchError::Overflow))));
    assert!(ends.next().await.is_none());
}

/// A client that takes nothing off its link: the grain goes on, and the gap says how much was lost.
#[emmer::test(seeds = 3)]
async fn a_link_that_is_full_stops_no_grain(world: World) {
    let cluster = cluster(&world, 2).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let room = on(&cluster, &one.grains(), 1).await;
    let mut slow = watch(&two.grains(), &room).await;
    let mut said = 0;
    for _ in 0..50 {
        for _ in 0..20 {
            // More than the window of a link in no time.
            room.say(said, 30_000).send().unwrap();
            said += 1;
        }
        world.advance(millis(1)).await;
    }
    world.advance(secs(5)).await;
    assert_eq!(room.people().await.unwrap(), 1, "it is still there");
    room.say(said, 1).await.unwrap();
    world.advance(secs(1)).await;
    let (mut next, mut missed) = (0, 0);
    while next + missed <= said {
        match slow.next().await {
            Some(Ok(News::Event(ChatEventsEvent::Said { number, .. }))) => {
                assert_eq!(number, next + missed, "each missing event is counted");
                next += 1;
            }
            Some(Ok(News::Gap(Gap { missed: Some(more), .. }))) => missed += more,
            other => panic!("{other:?}"),
        }
    }
    assert!(missed > 0 && next > 0, "{next} heard, {missed} missed");
}

/// A program keeps a watch in a task, whose future has to be `Send`.
async fn in_a_task(mut watch: Heard) -> Option<u64> {
    watch.joined().await;
    match watch.next().await {
        Some(Ok(News::Event(ChatEventsEvent::Said { number, .. }))) => Some(number),
        _ => None,
    }
}

#[emmer::test]
async fn a_task_keeps_a_watch(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let room = on(&cluster, &client.grains(), 1).await;
    let heard = tokio::spawn(in_a_task(watch(&client.grains(), &room).await));
    room.say(7, 1).await.unwrap();
    assert_eq!(heard.await.unwrap(), Some(7));
    // One that is refused has joined nothing, and waits for nothing.
    let refused = client.grain::<dyn Room>(999);
    assert_eq!(in_a_task(client.watch(&refused, |room, me| room.join(me))).await, None);
}

#[emmer::test(seeds = 3)]
async fn a_grain_refuses_an_observer_and_takes_one_out(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let refused = client.grain::<dyn Room>(999);
    let mut watch = client.watch(&refused, |room, me| room.join(me));
    match watch.next().await {
        Some(Err(WatchError::NotJoined(why))) => assert_eq!(&*why, "members only"),
        other => panic!("{other:?}"),
    }
    assert!(watch.next().await.is_none());
    let room = on(&cluster, &client.grains(), 1).await;
    let known = Arc::new(Mutex::new(None));
    let me = known.clone();
    let mut watch = client.watch(&room, move |room, who| {
        *me.lock().unwrap() = Some(who);
        room.join(who)
    });
    assert!(tokio::time::timeout(millis(100), watch.next()).await.is_err());
    let who = known.lock().unwrap().unwrap();
    assert!(room.kick(who).await.unwrap());
    assert!(watch.next().await.is_none(), "an observer that was taken out ends");
    assert!(!room.kick(who).await.unwrap());
}

/// Kills, cuts and lost gateways. Between two events that an observer hears, every other one is
/// heard as well, or there is a gap.
#[emmer::test(seeds = 8)]
async fn whatever_happens_what_is_missing_is_told(world: World) {
    let mut cluster = cluster(&world, 4).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let room = one.grain::<dyn Room>(world.bits() % 100);
    let stop = tokio_util::sync::CancellationToken::new();
    let heard: Arc<Mutex<Vec<Vec<Option<u64>>>>> = Arc::new(Mutex::new(vec![Vec::new(); 4]));
    let listening = (0..4).map(|n| {
        let client = if n % 2 == 0 { &one } else { &two };
        let mut watch = client.watch(&room, |room, me| room.join(me).timeout(secs(2)));
        let (heard, stop) = (heard.clone(), stop.clone());
        async move {
            loop {
                let news = tokio::select! {
                    () = stop.cancelled() => return,
                    news = watch.next() => news,
                };
                let news = match news {
                    Some(Ok(News::Event(ChatEventsEvent::Said { number, .. }))) => Some(number),
                    Some(Ok(News::Gap(_))) => None,
                    other => panic!("{other:?}"),
                };
                heard.lock().unwrap()[n].push(news);
            }
        }
    });
    let mut told = Vec::new();
    let speaking = async {
        for number in 0..400 {
            let said = room.say(number, 100).timeout(secs(1)).await;
            told.extend(said.is_ok().then_some(number));
            world.advance(millis(world.bits() % 100)).await;
        }
        // Everything is well by now.
        world.advance(secs(60)).await;
        for number in 400..410 {
            assert!(room.say(number, 100).await.is_ok());
        }
        world.advance(secs(5)).await;
        stop.cancel();
    };
    let faults = async {
        for _ in 0..6 {
            world.advance(millis(world.bits() % 4_000)).await;
            let n = 1 + usize::try_from(world.bits() % 3).unwrap();
            match world.bits() % 5 {
                0 => {
                    cluster.kill(n);
                    cluster.restart(n).await;
                }
                1 => cluster.forget_connections(0, n),
                2 => {
                    cluster.isolate(n);
                    world.advance(millis(world.bits() % 2_000)).await;
                    cluster.heal();
                }
                3 => cluster.forget_all_connections(),
                _ => {}
            }
        }
        cluster.heal();
    };
    tokio::join!(futures_util::future::join_all(listening), speaking, faults);
    for heard in heard.lock().unwrap().iter() {
        let numbers: Vec<u64> = heard.iter().copied().flatten().collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "the order: {heard:?}");
        assert!(
            numbers.ends_with(&(400..410).collect::<Vec<_>>()),
            "deaf at the end: {:?}",
            &heard[heard.len().saturating_sub(15)..]
        );
        for pair in heard.windows(2) {
            let (Some(one), Some(next)) = (pair[0], pair[1]) else { continue };
            let missing = told.iter().find(|told| (one + 1..next).contains(*told));
            assert_eq!(missing, None, "missing between {one} and {next}, and no gap is told");
        }
    }
    drop((one, two));
}

/// An activation ends while its link has room for nothing: its observer joins the next one.
#[emmer::test(seeds = 5)]
async fn the_end_of_an_activation_reaches_observers_behind_a_full_link(world: World) {
    let cluster = cluster(&world, 2).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let room = on(&cluster, &one.grains(), 1).await;
    let mut heard = watch(&two.grains(), &room).await;
    for number in 0..200 {
        room.say(number, 30_000).send().unwrap();
    }
    room.rest().await.unwrap();
    let back = async {
        loop {
            if let Some(Ok(News::Gap(Gap { missed: None, .. }))) = heard.next().await {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(secs(30), back).await.is_ok(), "it has joined again");
    room.say(1_000, 1).await.unwrap();
    assert_eq!(number(&mut heard).await, 1_000);
}

/// Observers of one process come and go while a grain speaks: each one that stays hears.
#[emmer::test(seeds = 20)]
async fn an_observer_that_leaves_takes_no_other_one_along(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let room = on(&cluster, &client.grains(), 1).await;
    let mut before = watch(&client.grains(), &room).await;
    for round in 0..40 {
        drop(before);
        room.say(round, 1).send().unwrap();
        world.advance(std::time::Duration::from_micros(world.bits() % 3_000)).await;
        let mut next = client.watch(&room, |room, me| room.join(me));
        assert!(tokio::time::timeout(millis(50), next.next()).await.is_err());
        room.say(1_000 + round, 1).await.unwrap();
        let said = tokio::time::timeout(millis(500), next.next()).await;
        let said = said.unwrap_or_else(|_| panic!("deaf in round {round}"));
        assert!(matches!(said, Some(Ok(News::Event(_)))), "{said:?}");
        assert_eq!(room.people().await.unwrap(), 1);
        before = next;
    }
}

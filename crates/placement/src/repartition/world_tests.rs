//! Worlds of a few silos whose grains talk along the edges of a graph.

use std::collections::BTreeMap;

use emmer_core::GrainTypeId;

use super::*;

fn silo(n: usize) -> SiloAddress {
    format!("10.0.0.{}:1:1", n + 1).parse().unwrap()
}

fn grain(n: usize) -> GrainId {
    GrainId::new(GrainTypeId::of("g"), n as u64)
}

struct World {
    rng: SeededRng,
    now: Instant,
    silos: Vec<Repartitioner>,
    /// The silo of each grain.
    places: Vec<usize>,
    by_hash: BTreeMap<u64, usize>,
    /// Calls of a minute from a grain to another.
    edges: Vec<(usize, usize, u64)>,
    /// Messages that are lost, in percent.
    lost: u64,
    /// A silo without the setting: it neither hears nor says anything.
    deaf: Option<usize>,
    moves: usize,
}

/// The world as one silo sees it.
struct View<'a> {
    me: usize,
    places: &'a [usize],
    by_hash: &'a BTreeMap<u64, usize>,
    silos: usize,
}

impl Ground for View<'_> {
    fn loads(&self) -> Vec<(SiloAddress, u32)> {
        let busy = |n| self.places.iter().filter(|place| **place == n).count();
        (0..self.silos).map(|n| (silo(n), u32::try_from(busy(n)).unwrap())).collect()
    }

    fn may_go(&self, grain: &GrainId, _to: SiloAddress) -> bool {
        self.by_hash.get(&grain.stable_hash()).is_some_and(|n| self.places[*n] == self.me)
    }
}

impl Repartitioner {
    /// Many samples at once.
    fn sample(&mut self, own: &GrainId, other: &GrainId, at: SiloAddress, calls: u64) {
        (0..calls).for_each(|_| self.handle_sample(own, other, at, 1));
    }
}

impl World {
    fn new(seed: u64, silos: usize, grains: usize, edges: Vec<(usize, usize, u64)>) -> Self {
        let mut rng = SeededRng::new(seed);
        let now = Instant::from_millis(1);
        let machine = |n| Repartitioner::new(silo(n), n as u64, now, RepartitionConfig::default());
        Self {
            now,
            silos: (0..silos).map(machine).collect(),
            places: (0..grains).map(|_| rng.index(silos)).collect(),
            by_hash: (0..grains).map(|n| (grain(n).stable_hash(), n)).collect(),
            edges,
            lost: 0,
            deaf: None,
            moves: 0,
            rng,
        }
    }

    /// The part of the calls that go to another silo, in percent.
    fn remote(&self) -> u64 {
        let sum: u64 = self.edges.iter().map(|edge| edge.2).sum();
        let apart = self.edges.iter().filter(|(a, b, _)| self.places[*a] != self.places[*b]);
        apart.map(|edge| edge.2).sum::<u64>() * 100 / sum
    }

    fn counts(&self) -> Vec<usize> {
        let count = |n| self.places.iter().filter(|place| **place == n).count();
        (0..self.silos.len()).map(count).collect()
    }

    fn talk(&mut self) {
        for &(a, b, calls) in &self.edges {
            let (from, to) = (self.places[a], self.places[b]);
            self.silos[from].sample(&grain(a), &grain(b), silo(to), calls);
            if from != to {
                self.silos[to].sample(&grain(b), &grain(a), silo(from), calls);
            }
        }
    }

    fn minute(&mut self) {
        self.talk();
        for _ in 0..60 {
            self.now = self.now + Duration::from_secs(1);
            let deaf = self.deaf;
            for n in (0..self.silos.len()).filter(|n| Some(*n) != deaf) {
                self.act(n, &|silo, now, view| silo.handle_timeout(now, view));
            }
        }
    }

    /// Lets a silo act, and carries out what follows.
    fn act(&mut self, n: usize, act: &dyn Fn(&mut Repartitioner, Instant, &View<'_>)) {
        let view =
            View { me: n, places: &self.places, by_hash: &self.by_hash, silos: self.silos.len() };
        act(&mut self.silos[n], self.now, &view);
        while let Some(effect) = self.silos[n].poll_effect() {
            match effect {
                Effect::Send { to, message } => {
                    let to = (0..self.silos.len()).find(|n| silo(*n) == to).unwrap();
                    if self.rng.below(100) >= self.lost && Some(to) != self.deaf {
                        self.act(to, &|there, now, view| {
                            there.handle_message(now, silo(n), message.clone(), view);
                        });
                    }
                }
                Effect::Move { to, grains } => {
                    let to = (0..self.silos.len()).find(|n| silo(*n) == to).unwrap();
                    for grain in grains {
                        let place = &mut self.places[self.by_hash[&grain.stable_hash()]];
                        assert_eq!(*place, n, "a silo moves its own grains");
                        *place = to;
                        self.moves += 1;
                    }
                }
            }
        }
    }
}

/// Rooms of `size` people; people talk to their room.
fn rooms(rooms: usize, size: usize) -> Vec<(usize, usize, u64)> {
    (0..rooms * size).map(|n| (rooms + n, n / size, 60)).collect()
}

#[test]
fn people_come_to_their_rooms_and_the_silos_stay_even() {
    let mut left = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 4, 40 + 40 * 20, rooms(40, 20));
        world.lost = 10;
        assert!(world.remote() > 65);
        for _ in 0..30 {
            world.minute();
        }
        let counts = world.counts();
        left += world.remote();
        // Silos that began with many rooms have no place for all their people.
        assert!(world.remote() <= 30, "seed {seed}: {}% {counts:?}", world.remote());
        assert!(counts.iter().all(|n| (160..=260).contains(n)), "seed {seed}: {counts:?}");
        assert!(world.moves <= 1_600, "seed {seed}: {} moves", world.moves);
        let moves = world.moves;
        for _ in 0..10 {
            world.minute();
        }
        assert!(world.moves - moves <= 100, "seed {seed}: they rest, not {}", world.moves - moves);
    }
    assert!(left / 20 <= 15, "{}% of the calls in the mean", left / 20);
}

#[test]
fn pairs_come_together_and_stay() {
    for seed in 0..20 {
        let edges = (0..500).flat_map(|n| [(2 * n, 2 * n + 1, 40), (2 * n + 1, 2 * n, 20)]);
        let mut world = World::new(seed, 5, 1_000, edges.collect());
        for _ in 0..30 {
            world.minute();
        }
        assert!(world.remote() <= 5, "seed {seed}: {}% {:?}", world.remote(), world.counts());
        assert!(world.counts().iter().all(|n| (170..=230).contains(n)), "{:?}", world.counts());
    }
}

#[test]
fn a_silo_that_does_not_take_part_does_not_hinder_the_others() {
    let edges = (0..500).map(|n| (2 * n, 2 * n + 1, 40)).collect();
    let mut world = World::new(5, 4, 1_000, edges);
    world.deaf = Some(2);
    // It has the partners of most, so that most would win there.
    for n in 0..600 {
        if n % 2 == 0 {
            world.places[n] = 2;
        }
    }
    let together = |world: &World| {
        let pairs = (0..500).map(|n| (world.places[2 * n], world.places[2 * n + 1]));
        pairs.filter(|(a, b)| a != b && *a != 2 && *b != 2).count()
    };
    let before = together(&world);
    for _ in 0..30 {
        world.minute();
    }
    assert!(together(&world) <= before / 8, "{} of {before} are apart", together(&world));
}

#[test]
fn grains_that_talk_with_all_stay() {
    let mut rng = SeededRng::new(3);
    let edges = (0..20_000).map(|n| (n % 400, rng.index(400), 2)).filter(|(a, b, _)| a != b);
    let edges = edges.collect();
    let mut world = World::new(3, 4, 400, edges);
    for _ in 0..20 {
        world.minute();
    }
    assert!(world.moves < 400, "{} moves for nothing", world.moves);
    assert!(world.counts().iter().all(|n| (70..=130).contains(n)), "{:?}", world.counts());
}

#[test]
fn a_foreign_answer_or_offer_moves_nothing_else() {
    let mut world = World::new(1, 2, 4, vec![(0, 1, 100), (2, 3, 100)]);
    world.places = vec![0, 1, 0, 0];
    world.talk();
    // An answer to no offer.
    let take = Message::Take(vec![0, 1, 99]);
    world.act(0, &|silo_0, now, view| silo_0.handle_message(now, silo(1), take.clone(), view));
    assert_eq!(world.moves, 0);
    // An offer of grains with strange numbers.
    let strange = |gain, n| Wish { grain: grain(n), gain, with: vec![(7, u64::MAX); 1_000] };
    let wishes: Vec<_> = (0..2_000).map(|n| strange(i64::MAX, n)).collect();
    world.act(0, &|silo_0, now, view| {
        silo_0.handle_message(now, silo(1), Message::Offer(wishes.clone()), view);
    });
    let wishes = vec![strange(i64::MIN, 0), strange(i64::MIN, 0)];
    world.act(1, &|silo_1, now, view| {
        silo_1.handle_message(now, silo(0), Message::Offer(wishes.clone()), view);
    });
    assert_eq!(world.places.iter().filter(|place| **place == 1).count(), 1);
}

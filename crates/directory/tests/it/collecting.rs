//! Every host reports a dead owner's registrations once, to one collector, which passes them on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::common::{Active, Bench, Dead, ShuttingDown, at, complete, silo};
use emmer_core::{GrainId, GrainTypeId, Instant, SiloAddress, SiloStatus};
use emmer_directory::{Config, Directory, Effect, Message, Outcome};

/// Silo 1 in view 2 with silos 2 and 3, all Active and at rest.
fn three(me: u16, config: Config) -> Bench {
    let mut bench = Bench::new(me, config);
    bench.view(1, &[(1, Active), (2, Active), (3, Active)]);
    bench.report_all(&[]);
    for n in [1, 2, 3] {
        let asked = Message::Report {
            recovery: 1,
            view: 1,
            series: 1,
            batch: 0,
            last: true,
            entries: vec![],
        };
        if n != me {
            bench.from(n, asked);
        }
    }
    assert!(!bench.dir.is_recovering());
    bench
}

/// Report of silo `n` about view 2's losses.
fn told(view: u64, series: u64, batch: u32, last: bool, entries: &[(GrainId, u64)]) -> Message {
    let entries = entries.to_vec();
    Message::Report { recovery: Message::UNASKED, view, series, batch, last, entries }
}

/// To whom the effects tell something unasked.
fn tells(effects: &[Effect]) -> Vec<SiloAddress> {
    let unasked = |effect: &Effect| match effect {
        Effect::Send { to, message: Message::Report { recovery: Message::UNASKED, .. } } => {
            Some(*to)
        }
        _ => None,
    };
    effects.iter().filter_map(unasked).collect()
}

fn is_question(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { message: Message::Recover { .. }, .. })
}

/// Three silos, of which 3 dies in view 2: the collector, the other one.
fn roles() -> (u16, u16) {
    let mut one = three(1, Config::default());
    one.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    one.report_all(&[]);
    if tells(&one.effects()).is_empty() { (1, 2) } else { (2, 1) }
}

#[test]
fn every_host_tells_the_collector_and_nobody_is_asked() {
    let (collector, other) = roles();
    let mut bench = three(other, Config::default());
    let grain = bench.grain_of(3, 0);
    let kept = bench.grain_of(other, 0);
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    let mut effects = bench.report_all(&[(grain.clone(), 4), (kept, 5)]);
    effects.extend(bench.effects());
    let [Effect::Send { to, message: Message::Report { recovery, view, last, entries, .. } }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*to, *recovery, *view, *last), (silo(collector), Message::UNASKED, 2, true));
    assert_eq!(entries, &[(grain, 4)], "what was not lost is not told");
}

#[test]
fn a_grant_on_its_way_is_void_once_the_host_has_told() {
    let (_, other) = roles();
    let mut bench = three(other, Config::default());
    let grain = bench.grain_of(3, 0);
    bench.register(1, &grain, 4);
    let (_, old, ..) = Bench::request(&bench.effects());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    bench.effects();
    assert!(bench.respond(3, old, emmer_directory::Answer::Registered).is_empty());
    assert_eq!(bench.dir.pending_count(), 1);
}

#[test]
fn the_collector_passes_on_what_it_was_told_when_all_have_told() {
    let (collector, other) = roles();
    let mut bench = three(collector, Config::default());
    let lost: Vec<_> = (0..400).map(|nth| bench.grain_of(3, nth)).collect();
    // The other silo is faster: it tells before the view is here.
    let early =
        told(2, 9, 0, true, &lost.iter().map(|grain| (grain.clone(), 7)).collect::<Vec<_>>());
    assert!(bench.from(other, early).is_empty());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    let effects = bench.effects();
    assert!(!bench.dir.is_recovering(), "the collector itself has its part");
    let [
        Effect::Send {
            to,
            message: Message::Collected { view: 2, last: true, missing, entries, .. },
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*to, missing.len()), (silo(other), 0));
    for grain in &lost {
        let passed = entries.iter().any(|(g, held)| g == grain && *held == at(other, 7));
        let mine = bench.dir.owner_of(grain) == Some(silo(collector));
        assert_eq!(passed, !mine);
        if mine {
            assert_eq!(bench.lookup(1, grain), Some(Outcome::Found(Some(at(other, 7)))));
        }
    }
}

#[test]
fn who_has_not_told_is_asked_after_a_while() {
    let (collector, other) = roles();
    let mut bench = three(collector, Config::default());
    let start = bench.now;
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    let effects = bench.elapse();
    assert_eq!(bench.now.saturating_since(start), Config::default().collect_patience);
    let [Effect::Send { to, message: Message::Recover { recovery, view: 2, .. } }] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*to, silo(other));
    let answer = Message::Report {
        recovery: *recovery,
        view: 2,
        series: 1,
        batch: 0,
        last: true,
        entries: vec![],
    };
    let effects = bench.from(other, answer);
    assert!(!bench.dir.is_recovering());
    assert!(matches!(effects[..], [Effect::Send { message: Message::Collected { .. }, .. }]));
}

#[test]
fn a_host_that_dies_untold_has_to_fade_at_every_new_owner() {
    let (collector, other) = roles();
    let mut bench = three(other, Config::default());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead), (4, ShuttingDown)]);
    bench.report_all(&[]);
    bench.effects();
    let grain = bench.grain_of(other, 0);
    let lost =
        (0..).map(|nth| bench.grain_of(other, nth)).find(|g| bench.dir.is_locked(g)).unwrap();
    assert!(bench.dir.serves(&grain) || bench.dir.is_locked(&grain));
    // The collector has seen silo 4 die in view 3.
    let passed = Message::Collected {
        view: 2,
        at: 3,
        series: 1,
        batch: 0,
        last: true,
        missing: vec![silo(4)],
        entries: vec![(lost.clone(), at(4, 8))],
    };
    let effects = bench.from(collector, passed);
    assert_eq!(effects.len(), 1, "credit: {effects:?}");
    assert!(bench.dir.is_locked(&lost));
    let until = bench.now + Duration::from_millis(300);
    bench.view_fading(3, &[(1, Active), (2, Active), (4, Dead)], &[(4, until)]);
    assert!(bench.dir.is_locked(&lost));
    assert_eq!(bench.register(1, &lost, 1), None);
    bench.now = until;
    bench.dir.handle_timeout(until);
    assert!(bench.effects().contains(&complete(1, Outcome::Registered)));
}

#[test]
fn what_was_told_at_a_later_view_counts_when_that_view_is_here() {
    let (collector, other) = roles();
    let mut bench = three(other, Config::default());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    let lost =
        (0..).map(|nth| bench.grain_of(other, nth)).find(|g| bench.dir.is_locked(g)).unwrap();
    let passed = Message::Collected {
        view: 2,
        at: 4,
        series: 1,
        batch: 0,
        last: true,
        missing: vec![],
        entries: vec![],
    };
    bench.from(collector, passed);
    bench.view(3, &[(1, Active), (2, Active)]);
    assert!(bench.dir.is_locked(&lost), "by view 4 another silo may own it");
    bench.view(4, &[(1, Active), (2, Active)]);
    assert!(bench.dir.serves(&lost));
}

#[test]
fn the_collector_says_when_it_was_told_and_who_died_before() {
    let (collector, other) = roles();
    let list = |effects: Vec<Effect>| match &effects[..] {
        [Effect::Send { message: Message::Collected { at, missing, .. }, .. }] => {
            (*at, missing.clone())
        }
        other => panic!("{other:?}"),
    };
    let fourth = |status| [(1, Active), (2, Active), (3, Dead), (4, status)];
    for told_late in [true, false] {
        let mut bench = three(collector, Config::default());
        bench.view(2, &fourth(ShuttingDown));
        bench.report_all(&[]);
        bench.from(other, told(2, 9, 0, true, &[]));
        if told_late {
            let Some(Effect::Send { message: Message::Recover { recovery, .. }, .. }) =
                bench.elapse().pop()
            else {
                panic!("silo 4 is not asked")
            };
            let (view, entries) = (7, vec![]);
            let late = Message::Report { recovery, view, series: 1, batch: 0, last: true, entries };
            assert_eq!(list(bench.from(4, late)), (7, vec![]));
        } else {
            bench.view(3, &fourth(Dead));
            assert_eq!(list(bench.effects()), (3, vec![silo(4)]));
        }
    }
}

#[test]
fn the_collector_gives_credit() {
    let (collector, other) = roles();
    let mut bench = three(collector, Config::default());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    let credit = |batches| {
        [Effect::Send { to: silo(other), message: Message::Credit { series: 9, batches } }]
    };
    assert_eq!(bench.from(other, told(2, 9, 0, false, &[])), credit(1));
    assert!(bench.from(other, told(2, 9, 2, false, &[])).is_empty(), "one was lost");
    assert_eq!(bench.from(other, told(2, 9, 1, false, &[])), credit(2));
    // A host in the middle of it is not asked to begin again; a host that stopped is.
    assert!(!bench.elapse().iter().any(is_question));
    let mut later = (0..2).flat_map(|_| bench.elapse());
    assert!(later.any(|effect| is_question(&effect)));
}

#[test]
fn what_is_told_of_the_dead_counts_only_while_they_fade() {
    let (collector, other) = roles();
    let mut bench = three(other, Config::default());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead), (4, ShuttingDown)]);
    bench.report_all(&[]);
    let lost =
        (0..).map(|nth| bench.grain_of(other, nth)).find(|g| bench.dir.is_locked(g)).unwrap();
    bench.view(3, &[(1, Active), (2, Active), (4, Dead)]);
    let entries = vec![(lost.clone(), at(4, 8))];
    let passed = Message::Collected {
        view: 2,
        at: 2,
        series: 1,
        batch: 0,
        last: true,
        missing: vec![],
        entries,
    };
    bench.from(collector, passed);
    assert_eq!(bench.lookup(1, &lost), Some(Outcome::Found(None)));
}

#[test]
fn without_a_collector_the_new_owner_asks_everybody() {
    let (collector, other) = roles();
    // The collector is silent, or knows nothing, or is no longer Active.
    for case in 0..3 {
        let mut bench = three(other, Config::default());
        bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
        bench.report_all(&[]);
        bench.effects();
        let effects = match case {
            0 => {
                let waits =
                    [Effect::Send { to: silo(collector), message: Message::Await { view: 2 } }];
                assert_eq!(bench.elapse(), waits);
                assert!(
                    bench.from(collector, Message::Awaited { view: 2, known: true }).is_empty()
                );
                assert_eq!(bench.elapse(), waits, "it goes on waiting");
                bench.elapse()
            }
            1 => bench.from(collector, Message::Awaited { view: 2, known: false }),
            _ => {
                bench.view(3, &[(collector, ShuttingDown), (other, Active)]);
                bench.effects()
            }
        };
        assert!(effects.iter().any(is_question), "{case}: {effects:?}");
        assert!(bench.dir.is_recovering());
    }
}

#[test]
fn long_lists_wait_for_credit() {
    let (collector, other) = roles();
    let mut bench = three(other, Config { report_batch_max: 10, ..Config::default() });
    let lost: Vec<_> = (0..95).map(|nth| (bench.grain_of(3, nth), nth as u64)).collect();
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    let mut effects = bench.report_all(&lost);
    effects.extend(bench.effects());
    let batches = |effects: &[Effect]| -> Vec<(u64, u32, bool)> {
        let batch = |effect: &Effect| match effect {
            Effect::Send { message: Message::Report { series, batch, last, .. }, .. } => {
                Some((*series, *batch, *last))
            }
            _ => None,
        };
        effects.iter().filter_map(batch).collect()
    };
    let first = batches(&effects);
    assert_eq!(first.len(), 4);
    let series = first[0].0;
    assert!(
        bench.from(other + 5, Message::Credit { series, batches: 9 }).is_empty(),
        "a stranger's"
    );
    let next = bench.from(collector, Message::Credit { series, batches: 3 });
    assert_eq!(batches(&next), [(series, 4, false), (series, 5, false), (series, 6, false)]);
    let rest = bench.from(collector, Message::Credit { series, batches: 7 });
    assert_eq!(batches(&rest), [(series, 7, false), (series, 8, false), (series, 9, true)]);
    assert!(
        bench.from(collector, Message::Credit { series, batches: 10 }).is_empty(),
        "it is over"
    );
}

#[test]
fn a_list_whose_receiver_is_silent_is_given_up() {
    let (collector, other) = roles();
    let mut bench = three(collector, Config::default());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    bench.from(other, told(2, 9, 0, true, &[]));
    let start = bench.now;
    assert_eq!(bench.dir.unfinished(), Some("a list is being sent"));
    while bench.dir.poll_timeout().is_some() {
        bench.elapse();
    }
    assert_eq!(bench.now.saturating_since(start), Config::default().op_timeout);
    assert_eq!(bench.dir.unfinished(), None);
}

#[test]
fn a_list_that_was_lost_is_passed_on_again() {
    let (collector, other) = roles();
    let mut bench = three(collector, Config::default());
    bench.view(2, &[(1, Active), (2, Active), (3, Dead)]);
    bench.report_all(&[]);
    bench.from(other, told(2, 9, 0, true, &[]));
    let again = bench.from(other, Message::Await { view: 2 });
    let [Effect::Send { message: Message::Collected { series, .. }, .. }] = &again[..] else {
        panic!("{again:?}")
    };
    bench.from(other, Message::Credit { series: *series, batches: 1 });
    let unknown = Message::Awaited { view: 2, known: false };
    let effects = bench.from(other, Message::Await { view: 2 });
    assert_eq!(effects, [Effect::Send { to: silo(other), message: unknown }]);
}

/// Many directories, all messages delivered in order at once.
struct Crowd {
    now: Instant,
    nodes: BTreeMap<SiloAddress, (Directory, Vec<(GrainId, u64)>)>,
    wire: VecDeque<(SiloAddress, SiloAddress, Message)>,
    /// Number of messages that each has sent.
    sent: BTreeMap<SiloAddress, usize>,
}

impl Crowd {
    fn new(silos: usize, config: &Config) -> Self {
        let now = Instant::from_millis(1);
        let address = |n: usize| format!("10.0.{}.{}:11111:1", n / 250, n % 250).parse().unwrap();
        let node = |n| (address(n), (Directory::new(address(n), config.clone(), now), Vec::new()));
        Self {
            now,
            nodes: (0..silos).map(node).collect(),
            wire: VecDeque::new(),
            sent: BTreeMap::new(),
        }
    }

    fn view(&mut self, version: u64, dead: &[SiloAddress]) {
        let status = |silo: &SiloAddress| if dead.contains(silo) { Dead } else { Active };
        let view: Vec<(SiloAddress, SiloStatus)> =
            self.nodes.keys().map(|s| (*s, status(s))).collect();
        for silo in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.nodes.get_mut(&silo).unwrap().0.handle_view(self.now, version, &view, &[]);
            self.drain(silo);
        }
    }

    fn drain(&mut self, silo: SiloAddress) {
        let (dir, local) = self.nodes.get_mut(&silo).unwrap();
        while let Some(effect) = dir.poll_effect() {
            match effect {
                Effect::Send { to, message } => {
                    *self.sent.entry(silo).or_default() += 1;
                    self.wire.push_back((silo, to, message));
                }
                Effect::ReportLocal { report, ranges } => {
                    let inside = |g: &GrainId| ranges.iter().any(|r| r.contains(g.stable_hash()));
                    let entries = local.iter().filter(|(g, _)| inside(g)).cloned().collect();
                    dir.handle_local_report(self.now, report, entries);
                }
                Effect::Complete { .. } => {}
                Effect::Evict { .. } => panic!("a duplicate"),
            }
        }
    }

    fn deliver_all(&mut self) {
        while let Some((from, to, message)) = self.wire.pop_front() {
            self.nodes.get_mut(&to).unwrap().0.handle_message(self.now, from, message);
            self.drain(to);
        }
    }
}

#[test]
fn one_death_among_a_thousand_costs_two_messages_for_each_survivor_at_most() {
    let config = Config { points_per_silo: 4, ..Config::default() };
    let mut crowd = Crowd::new(1000, &config);
    // The first view would ask a million questions: it is answered without them.
    let silos: Vec<_> = crowd.nodes.keys().copied().collect();
    let doomed = silos[400];
    crowd.view(1, &[]);
    crowd.wire.clear();
    crowd.sent.clear();
    let owner = crowd.nodes[&doomed].0.owned_ranges().clone();
    let grains: Vec<_> = (0u64..)
        .map(|key| GrainId::new(GrainTypeId::of("g"), key))
        .filter(|grain| owner.covers(grain))
        .take(500)
        .collect();
    for (n, grain) in grains.iter().enumerate() {
        crowd.nodes.get_mut(&silos[n % 300]).unwrap().1.push((grain.clone(), n as u64));
    }
    crowd.view(2, &[doomed]);
    crowd.deliver_all();
    let survivors = silos.len() - 1;
    assert!(crowd.sent.len() >= survivors - 1, "every survivor tells what it has");
    let all: usize = crowd.sent.values().sum();
    assert!(all <= 2 * survivors, "{all} messages");
    let many: Vec<_> = crowd.sent.iter().filter(|(_, sent)| **sent > 2).collect();
    assert!(many.len() <= 1, "one collects, and the others send two messages at most: {many:?}");
    for (n, grain) in grains.iter().enumerate() {
        let gainer = crowd.nodes[&silos[0]].0.owner_of(grain).unwrap();
        let dir = &mut crowd.nodes.get_mut(&gainer).unwrap().0;
        let held = emmer_directory::Registration { silo: silos[n % 300], activation: n as u64 };
        assert!(dir.entries().any(|(g, h)| g == grain && h == held), "{grain}");
    }
}

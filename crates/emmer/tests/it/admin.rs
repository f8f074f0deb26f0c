//! The admin interface: what an operator sees of a cluster, and does to it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use emmer::access::{Access, Right};
use emmer::admin::{AdminError, GrainName, GrainPage, Question};
use emmer::prelude::*;
use emmer::test::World;
use emmer::{Silo, SiloBuilder};

#[grain_interface(key = String)]
trait Clerk {
    /// Counts.
    async fn count(&mut self, by: u64) -> u64;
    /// Waits for a word that never comes.
    async fn hang(&mut self) -> u64;
    /// Has another clerk hang.
    async fn wait_for(&mut self, other: String) -> Result<u64, String>;
    /// Holds the thread until it is let go.
    async fn spin(&mut self) -> u64;
    async fn fail(&self);
}

#[derive(Grain)]
struct ClerkGrain {
    #[state("sum")]
    sum: Persistent<u64>,
    #[context]
    ctx: Ctx,
}

static LET_GO: AtomicBool = AtomicBool::new(false);

/// Lets the thread go when it is dropped.
struct LetGo;

impl Drop for LetGo {
    fn drop(&mut self) {
        LET_GO.store(true, Ordering::Relaxed);
    }
}

#[grain]
impl Clerk for ClerkGrain {
    async fn count(&mut self, by: u64) -> u64 {
        *self.sum += by;
        self.sum.write().await.unwrap();
        *self.sum
    }

    async fn hang(&mut self) -> u64 {
        std::future::pending().await
    }

    async fn wait_for(&mut self, other: String) -> Result<u64, String> {
        let other = self.ctx.grains().grain::<dyn Clerk>(other);
        other.hang().timeout(secs(600)).await.map_err(|error| error.to_string())
    }

    async fn spin(&mut self) -> u64 {
        while !LET_GO.load(Ordering::Relaxed) {
            std::thread::sleep(millis(1));
        }
        1
    }

    async fn fail(&self) {
        panic!("as it was told");
    }
}

fn clerks(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn Clerk, ClerkGrain>().authorize_admin(|_| Access::Allow)
}

fn clerk(key: &str) -> GrainName {
    GrainName { grain_type: "clerk".to_owned(), key: key.into() }
}

fn page_of(max: u32, after: Option<u64>) -> Question {
    Question::Grains { grain_type: None, key_has: None, busy: false, after, max }
}

fn deactivate(key: &str, drop_turns: bool) -> Question {
    let because = Some("it hangs".to_owned());
    Question::Deactivate { grain: clerk(key), drop_turns, within_ms: 200, because }
}

#[emmer::test(seeds = 4)]
async fn a_grain_is_seen_with_its_state_and_not_woken(world: World) {
    let cluster = world.cluster(2, clerks).await;
    let client = cluster.client().await;
    let admin = client.admin();
    let before = admin.grain(clerk("ann")).await.unwrap();
    assert!(before.activations.is_empty() && before.states.is_empty(), "{before:?}");
    client.grain::<dyn Clerk>("ann").count(7).await.unwrap();
    client.grain::<dyn Clerk>("bob").fail().await.unwrap_err();
    // People may write the name of the interface.
    let ann = GrainName { grain_type: "Clerk".to_owned(), key: "ann".into() };
    let ann = admin.grain(ann).await.unwrap();
    assert_eq!((ann.activations.len(), ann.states.len()), (1, 1));
    let state = &ann.states[0];
    assert_eq!((state.name.as_str(), state.payload.as_deref()), ("sum", Some(&[7_u8][..])));
    assert!(ann.activations[0].is_registered && !ann.activations[0].is_running);
    // Only gone grains are asked for: none of them wakes.
    assert!(admin.grain(clerk("carl")).await.unwrap().activations.is_empty());
    let mut on_silos = 0;
    for node in cluster.nodes() {
        on_silos += admin.silo(Some(node.address())).await.unwrap().statistics.activations;
    }
    assert_eq!(on_silos, 1, "bob's panic has ended it");
    let mut words = Vec::new();
    for node in cluster.nodes() {
        let look: emmer::admin::GrainLook =
            admin.ask(Some(node.address()), &Question::Look(clerk("bob"))).await.unwrap();
        words.extend(look.failures.into_iter().map(|failed| (failed.method, failed.words)));
    }
    assert_eq!(words, [("Clerk.fail".to_owned(), "panicked: as it was told".to_owned())]);
}

#[emmer::test(seeds = 8)]
async fn a_turn_that_hangs_is_seen_and_dropped(world: World) {
    let cluster = world.cluster(2, clerks).await;
    let client = cluster.client().await;
    let admin = client.admin();
    let ann = client.grain::<dyn Clerk>("ann");
    let hangs = tokio::spawn({
        let ann = ann.clone();
        async move { ann.hang().timeout(secs(600)).await }
    });
    world.advance(millis(50)).await;
    let waits = tokio::spawn(async move { ann.count(1).timeout(secs(600)).await });
    world.advance(secs(3)).await;
    let look = admin.grain(clerk("ann")).await.unwrap();
    let [activation] = &look.activations[..] else { panic!("{look:?}") };
    assert!(activation.is_running && activation.waiting == 1 && activation.waits.len() == 1);
    let [turn] = &activation.turns[..] else { panic!("{look:?}") };
    assert_eq!((turn.method.as_str(), turn.caller.as_deref()), ("Clerk.hang", None));
    assert!((2_900..3_500).contains(&turn.age_ms), "{turn:?}");
    let (turns, held) = admin.turns(Some(look.silo), 10).await.unwrap();
    assert!(held.is_empty() && turns.len() == 1 && turns[0].key == "ann".into(), "{turns:?}");
    let queues = admin.queues(Some(look.silo), 10).await.unwrap();
    assert_eq!((queues.len(), queues[0].waiting), (1, 1));
    // Without force it stays, and the answer says what stands in the way.
    let first = admin.deactivate(&deactivate("ann", false)).await.unwrap();
    assert_eq!((first.ended, first.left, first.dropped), (0, 1, 0));
    assert_eq!(first.turns.len(), 1);
    let then = admin.deactivate(&deactivate("ann", true)).await.unwrap();
    assert_eq!((then.ended, then.left, then.dropped), (1, 0, 1));
    let error = hangs.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, CallError::Cancelled { maybe_executed: true, detail, .. }
            if detail.contains("it hangs")),
        "{error}"
    );
    // The call that waited runs on a new activation.
    assert_eq!(waits.await.unwrap().unwrap(), 1);
}

#[emmer::test(seeds = 8)]
async fn the_grain_that_others_wait_for_is_named(world: World) {
    let cluster = world.cluster(3, clerks).await;
    let client = cluster.client().await;
    let admin = client.admin();
    let (ann, bob) = (client.grain::<dyn Clerk>("ann"), client.grain::<dyn Clerk>("bob"));
    bob.count(1).await.unwrap();
    let hangs =
        tokio::spawn(async move { ann.wait_for("bob".to_owned()).timeout(secs(600)).await });
    world.advance(secs(1)).await;
    let ann = admin.grain(clerk("ann")).await.unwrap();
    let bob = admin.grain(clerk("bob")).await.unwrap();
    let (waiting, waited_for) = (&ann.activations[0].turns[0], &bob.activations[0].turns[0]);
    assert_eq!(
        (waited_for.caller.as_deref(), &waited_for.chain[..]),
        (Some("clerk/ann"), &["clerk/ann".to_owned()][..])
    );
    let expected =
        if ann.silo == bob.silo { "clerk/bob".to_owned() } else { format!("silo {}", bob.silo) };
    assert_eq!(waiting.waits_for, [expected]);
    // Bob's turn is dropped, and Ann's turn gets the error.
    admin.deactivate(&deactivate("bob", true)).await.unwrap();
    let told = hangs.await.unwrap().unwrap_err().to_string();
    assert!(told.contains("cancelled") && told.contains("it hangs"), "{told}");
    let ann = admin.grain(clerk("ann")).await.unwrap();
    assert!(!ann.activations[0].is_running);
}

#[emmer::test(seeds = 4)]
async fn lists_are_paged_and_nothing_is_missed(world: World) {
    let cluster = world.cluster(2, clerks).await;
    let client = cluster.client().await;
    let admin = client.admin();
    for n in 0..150 {
        client.grain::<dyn Clerk>(format!("clerk {n}")).count(1).await.unwrap();
    }
    let mut keys = Vec::new();
    for node in cluster.nodes() {
        let (mut after, silo) = (None, Some(node.address()));
        loop {
            let page: GrainPage = admin.grains(silo, &page_of(7, after)).await.unwrap();
            assert!(page.grains.len() <= 7 && page.grains.is_sorted_by_key(|row| row.place));
            keys.extend(page.grains.iter().map(|row| row.key.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 150);
    let types = admin.types(Some(cluster.node(0).address())).await.unwrap();
    let clerk = types.iter().find(|found| found.grain_type == "clerk").unwrap();
    let count = clerk.methods.iter().find(|method| method.name == "count").unwrap();
    assert_eq!((clerk.key.as_str(), count.returns.as_str()), ("text", "u64"));
    assert_eq!(
        (count.arguments[0].name.as_str(), count.arguments[0].r#type.as_str()),
        ("by", "u64")
    );
    let waits = clerk.methods.iter().find(|method| method.name == "wait_for").unwrap();
    assert_eq!(waits.returns, "Result<u64, String>");
}

#[emmer::test(seeds = 4)]
async fn an_operator_moves_a_grain(world: World) {
    let cluster = world.cluster(2, clerks).await;
    let client = cluster.client().await;
    let admin = client.admin();
    let ann = client.grain::<dyn Clerk>("ann");
    ann.count(2).await.unwrap();
    let from = admin.grain(clerk("ann")).await.unwrap().silo;
    let to = cluster.nodes().iter().map(|node| node.address()).find(|to| *to != from).unwrap();
    let moved = admin.move_grain(clerk("ann"), Some(to), None).await.unwrap();
    assert_eq!((moved.from, moved.to), (from, to));
    assert_eq!(admin.grain(clerk("ann")).await.unwrap().silo, to);
    assert_eq!(ann.count(2).await.unwrap(), 4);
    let again = admin.move_grain(clerk("bob"), Some(to), None).await.unwrap_err();
    assert!(again.to_string().contains("it is not active"), "{again}");
}

/// Silos without rules of their own.
#[emmer::test(seeds = 2)]
async fn a_stranger_sees_nothing_and_does_nothing(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Clerk, ClerkGrain>()).await;
    let client = cluster.client().await;
    client.grain::<dyn Clerk>("ann").count(1).await.unwrap();
    let admin = client.admin();
    for question in [
        Question::Silo,
        Question::Members,
        Question::Look(clerk("ann")),
        page_of(10, None),
        deactivate("ann", true),
    ] {
        for to in [None, Some(cluster.node(0).address()), Some(cluster.node(1).address())] {
            let refused = admin.ask::<emmer::admin::SiloLook>(to, &question).await.unwrap_err();
            assert!(matches!(refused, AdminError::Refused(_)), "{question:?}: {refused}");
        }
    }
    assert_eq!(client.grain::<dyn Clerk>("ann").count(1).await.unwrap(), 2);
}

#[emmer::test(seeds = 2)]
async fn who_may_look_may_not_act(world: World) {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let cluster = world
        .cluster(2, |silo| {
            silo.host::<dyn Clerk, ClerkGrain>().authorize_admin(|visit| {
                ASKED.fetch_add(1, Ordering::Relaxed);
                Access::when(visit.right() == Right::Look, "only to look")
            })
        })
        .await;
    let client = cluster.client().await;
    let admin = client.admin();
    client.grain::<dyn Clerk>("ann").count(1).await.unwrap();
    assert_eq!(admin.grain(clerk("ann")).await.unwrap().activations.len(), 1);
    let refused = admin.deactivate(&deactivate("ann", true)).await.unwrap_err();
    assert_eq!(refused, AdminError::Refused("only to look".to_owned()));
    // A question is judged once, by the gateway.
    ASKED.store(0, Ordering::Relaxed);
    for node in cluster.nodes() {
        admin.silo(Some(node.address())).await.unwrap();
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    let gone = admin.silo(Some("10.9.9.9:1:1".parse().unwrap())).await.unwrap_err();
    assert!(matches!(gone, AdminError::NoSilo(_)), "{gone}");
    let unknown = GrainName { grain_type: "Nothing".to_owned(), key: 1_u64.into() };
    assert_eq!(admin.grain(unknown).await.unwrap_err(), AdminError::NoType("Nothing".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_never_awaits_is_named_with_its_thread() {
    let silo = Silo::builder()
        .store("memory://admin_held")
        .host::<dyn Clerk, ClerkGrain>()
        .start()
        .await
        .unwrap();
    let let_go = LetGo;
    let ann = silo.grain::<dyn Clerk>("ann");
    let spins = tokio::spawn(async move { ann.spin().await });
    let admin = silo.admin();
    let look = loop {
        let look = admin.grain(clerk("ann")).await.unwrap();
        if look.activations.iter().any(|activation| !activation.threads.is_empty()) {
            break look;
        }
        tokio::time::sleep(millis(10)).await;
    };
    let thread = &look.activations[0].threads[0];
    assert_eq!(
        (thread.method.as_str(), thread.grain.as_deref()),
        ("Clerk.spin", Some("clerk/ann"))
    );
    assert!(thread.thread.contains("tokio"), "{thread:?}");
    let outcome = admin.deactivate(&deactivate("ann", true)).await.unwrap();
    assert_eq!((outcome.ended, outcome.left, outcome.threads.len()), (0, 1, 1));
    drop(let_go);
    assert_eq!(spins.await.unwrap().unwrap(), 1);
    silo.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_keys_are_found_while_somebody_looks() {
    let silo = Silo::builder()
        .store("memory://admin_hot")
        .host::<dyn Clerk, ClerkGrain>()
        .start()
        .await
        .unwrap();
    let admin = silo.admin();
    assert!(admin.hot(None, 5).await.unwrap().called.is_empty());
    let hot = silo.grain::<dyn Clerk>("hot");
    for n in 0..2_000 {
        hot.count(1).await.unwrap();
        if n % 10 == 0 {
            silo.grain::<dyn Clerk>(format!("cold {n}")).count(1).await.unwrap();
        }
    }
    let seen = admin.hot(None, 5).await.unwrap();
    assert_eq!(
        (seen.called[0].key.to_string(), seen.busy[0].key.to_string()),
        ("hot".to_owned(), "hot".to_owned())
    );
    let calls = seen.called[0].count;
    assert!((1_000..4_000).contains(&calls), "2,000 calls, told as {calls}");
    silo.stop().await.unwrap();
}

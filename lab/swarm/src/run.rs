//! One seed, from the start of its cluster to its rest.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;

use emmer::test::{Cluster, NetModel, World};
use emmer::{Client, millis};

use crate::ledger::{self, Sometimes, Violation};
use crate::plan::{CLIENTS, Plan};
use crate::{
    callers, circles, death, faults, idle, kinds, leaving, moves, order, patience, peace, quiet,
    turns,
};

/// Number of circles that are made before every fault.
const CIRCLES: usize = 3;

/// Interval of the checks of queues and circles.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Result of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// Number of times rare things happened.
    pub sometimes: Sometimes,
    /// Calls that began to run.
    pub begun: u64,
    /// The virtual time that passed.
    pub passed: Duration,
    /// A number over everything that happened.
    pub trace: u64,
}

/// The longest virtual time that a world may take to come to rest.
const LONGEST: Duration = Duration::from_secs(4 * 3_600);

/// Lets a panic of the runtime's own code break a rule. Grains' panics are raised without the hook.
fn watch_panics() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            ledger::violate("R7", format!("the runtime's own code panics: {panic}"));
            before(panic);
        }));
    });
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Report {
    watch_panics();
    let report = Rc::new(RefCell::new(None));
    let (told, plan) = (report.clone(), plan.clone());
    emmer::test::run_seed(plan.seed, async move |world: World| {
        ledger::open(&plan, world.store());
        circles::open();
        death::open();
        idle::open();
        moves::open();
        order::open();
        patience::open();
        turns::open();
        if tokio::time::timeout(LONGEST, live(&world, &plan)).await.is_err() {
            ledger::violate("R6", format!("the world does not come to rest within {LONGEST:?}"));
        }
        *told.borrow_mut() = Some((world.elapsed(), world.trace()));
    });
    let (passed, trace) = report.borrow_mut().take().unwrap_or_default();
    Report {
        violation: ledger::violation(),
        sometimes: ledger::sometimes(),
        begun: ledger::begun(),
        passed,
        trace,
    }
}

async fn live(world: &World, plan: &Plan) {
    let mut cluster = kinds::start(world, plan).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(cluster.client().await);
    }
    if plan.is_noisy {
        let (most, split) = (millis(1 + ledger::below(20)), 0.05);
        world.net().set_model(NetModel {
            delay_max: most,
            loss: 0.01,
            split,
            ..NetModel::default()
        });
    }
    if plan.is_slow {
        let (least, most) = (millis(1), millis(40));
        world.net().set_model(NetModel {
            delay_min: least,
            delay_max: most,
            ..NetModel::default()
        });
    }
    let calling = tokio::spawn(make_calls(plan.clone(), clients.clone()));
    suffer(world, plan, &mut cluster, &clients).await;
    if plan.is_tight {
        let rest = Duration::from_secs(plan.seconds).saturating_sub(world.elapsed());
        watch(world, plan, &cluster, rest).await;
    }
    let _ = calling.await;
    faults::end(world, &mut cluster, plan).await;
    // The longest timeout of a caller, and the longest time for which one keeps a future.
    world.advance(Duration::from_secs(40)).await;
    quiet::totals(world, &clients[0], plan).await;
    quiet::rest(world, &cluster).await;
    if plan.is_gentle {
        patience::judge_doubts();
    }
    ledger::calm_down();
    peace::everybody_is_answered(world, &cluster, &clients, plan).await;
    peace::break_connections(world, &cluster);
    world.advance(Duration::from_secs(1)).await;
    peace::everybody_is_answered(world, &cluster, &clients, plan).await;
    peace::in_order(world, &cluster, plan).await;
    peace::in_order_while_it_moves(world, &cluster, plan).await;
    circles::when_quiet(&clients[0], plan).await;
    turns::judge(&cluster);
    leaving::when_quiet(world, &cluster).await;
}

/// Spreads the calls over the time.
async fn make_calls(plan: Plan, clients: Vec<Client>) {
    let every = Duration::from_secs(plan.seconds) / u32::try_from(plan.calls).unwrap_or(1);
    let mut due = tokio::time::Instant::now();
    for n in 0..plan.calls {
        due += every;
        tokio::time::sleep_until(due).await;
        if ledger::violation().is_some() {
            return;
        }
        let client = clients[usize::try_from(n).unwrap_or(0) % CLIENTS].clone();
        tokio::spawn(callers::call(plan.clone(), client));
    }
}

/// Lets quiet time pass, and checks waiting work.
async fn watch(world: &World, plan: &Plan, cluster: &Cluster, time: Duration) {
    let end = world.elapsed() + time;
    while world.elapsed() < end && ledger::violation().is_none() {
        if plan.is_tight {
            idle::look(cluster);
        }
        circles::look(cluster);
        world.advance(LOOK_EVERY.min(end.saturating_sub(world.elapsed()))).await;
    }
}

/// Spreads the faults over the time.
async fn suffer(world: &World, plan: &Plan, cluster: &mut Cluster, clients: &[Client]) {
    let end = world.elapsed() + Duration::from_secs(plan.seconds);
    let mean = plan.seconds * 1_000 / (plan.faults + 1);
    for _ in 0..plan.faults {
        let pause = millis(ledger::below(2 * mean));
        watch(world, plan, cluster, pause).await;
        if world.elapsed() >= end || ledger::violation().is_some() {
            return;
        }
        if !plan.is_noisy {
            (0..CIRCLES).for_each(|_| circles::make(&clients[0]));
        }
        faults::one(world, cluster, clients, plan).await;
    }
}

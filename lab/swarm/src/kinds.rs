//! Classes that each silo hosts, and where it places grains: the silos of a plan may be of several
//! kinds.

use std::cell::Cell;

use emmer::SiloBuilder;
use emmer::placement::{PlacementContext, PlacementTarget};
use emmer::prelude::*;
use emmer::tables::SiloAddress;
use emmer::test::{Cluster, World};

use crate::idle;
use crate::orders::{Order, Subject};
use crate::plan::{Plan, STRATEGIES};
use crate::subject::SubjectGrain;

/// Interface that came to the class later: silos of the older kind do not have it.
#[grain_interface(key = u64, grain = "subject")]
pub(crate) trait Later {
    /// Does it alone.
    async fn work_later(&mut self, order: Order) -> Result<u64, StateError>;
}

#[grain]
impl Later for SubjectGrain {
    async fn work_later(&mut self, order: Order) -> Result<u64, StateError> {
        Subject::work(self, order).await
    }
}

/// Kind of a silo, by its hosted types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Everything.
    New,
    /// The classes of before.
    Old,
    /// Nothing: it takes the calls of clients.
    Gateway,
}

/// The kind of the silo `n`. The first one hosts everything.
const fn kind(plan: &Plan, n: usize) -> Kind {
    match n % 3 {
        1 if plan.is_mixed => Kind::Old,
        2 if plan.is_mixed => Kind::Gateway,
        _ => Kind::New,
    }
}

/// Number of silos that host everything.
pub(crate) fn new_ones(plan: &Plan) -> usize {
    (0..plan.silos).filter(|n| kind(plan, *n) == Kind::New).count()
}

/// A director of the application's own: everything on one silo.
fn last(_: &PlacementTarget<'_>, context: &PlacementContext<'_>) -> Option<SiloAddress> {
    context.silos.last().copied()
}

fn describe(plan: &Plan, n: usize, silo: SiloBuilder) -> SiloBuilder {
    let silo = match kind(plan, n) {
        Kind::New => silo.host::<dyn Subject, SubjectGrain>().host::<dyn Later, SubjectGrain>(),
        Kind::Old => silo.host::<dyn Subject, SubjectGrain>(),
        Kind::Gateway => silo,
    };
    let strategy = STRATEGIES[plan.placement % STRATEGIES.len()].clone();
    let plan = plan.clone();
    silo.director("last", last).default_placement(strategy).configure(move |options| {
        options.deactivation_timeout = secs(5);
        if plan.is_fast {
            options.membership = emmer::membership::Config::fast();
        }
        if plan.is_tight {
            options.limits.activation_queue_max = idle::TIGHT_QUEUE;
            options.limits.calls_in_flight_max = 20;
            options.limits.location_cache_max = 16;
            options.limits.activations_max = 100;
        }
    })
}

/// The silos of a plan.
pub(crate) async fn start(world: &World, plan: &Plan) -> Cluster {
    let (plan, started) = (plan.clone(), Cell::new(0));
    let silos = plan.silos;
    let next = move |silo| describe(&plan, started.replace(started.get() + 1), silo);
    world.cluster(silos, next).await
}

/// The silo `n` comes back with its kind.
pub(crate) async fn restart(cluster: &mut Cluster, plan: &Plan, n: usize) {
    let plan = plan.clone();
    cluster.describe(move |silo| describe(&plan, n, silo));
    cluster.restart(n).await;
}

//! Finds the grain of a call, or chooses a silo for it.

use std::panic::resume_unwind;

use emmer_core::{GrainId, SiloAddress};
use emmer_directory::FailReason;
use emmer_net::clock::Due;
use emmer_placement::PlaceError;
use emmer_wire::CallChain;

use super::Calls;
use super::path::Hint;
use crate::cluster::directory::Whereabouts;
use crate::cluster::locations::Locations;
use crate::cluster::{Chosen, Question, Sought};
use crate::hosting::{Activation, BoxTurn, Given, Held, StartError, TurnContext};
use crate::trace;
use crate::turn::{Failure, Rejection, contain};

/// Target of a call.
pub(crate) enum Place {
    /// To an activation on this silo (which may still have to be activated).
    Here(Held),
    /// To another silo. `placed`: the directory does not know the grain, this silo was chosen for
    /// it.
    There { peer: SiloAddress, placed: bool },
}

impl Hint {
    /// Tells the silos that remember the grain's location.
    pub(crate) fn tell(self, locations: &Locations, grain: &GrainId) {
        match self {
            Self::Keep => {}
            Self::Forget(silo) => locations.forget(grain, silo),
            Self::At(silo) => locations.set(grain, silo),
        }
    }
}

impl Calls {
    /// Finds a grain: on this silo, where it was last seen, where the directory says, or where
    /// placement puts it. With `asks_owner` the call may go to the silo that answers for the grain
    /// in the directory, which runs it or passes it on. One-way calls do not: later ones would
    /// overtake those that are passed on.
    pub(crate) async fn locate(
        &self,
        sought: Sought<'_>,
        avoid: &[SiloAddress],
        asks_owner: bool,
    ) -> Result<Place, Failure> {
        let Sought { grain: id, method, .. } = sought;
        if self.stopped.is_cancelled() {
            return Err(Failure::shutting_down());
        }
        // A fence that was shut for good never opens, but the call may go elsewhere.
        let shut = self.host.fence.opened(&self.clock).await.is_err();
        if let Some(activation) = self.host.catalog.get(id) {
            if shut {
                return Err(Failure::shutting_down());
            }
            // Another silo's worker does as well.
            if !activation.is_worker() || self.host.serves(id, method) {
                return Ok(Place::Here(activation));
            }
        }
        if self.is_worker(id) {
            return self.placed(sought, avoid).await;
        }
        if let Some(door) = self.door(id, method, None, avoid) {
            return Ok(Place::Here(door));
        }
        let usable = |peer: &SiloAddress| {
            *peer != self.address
                && !avoid.contains(peer)
                && !self.cluster.peers.pool.is_dead(*peer)
        };
        if let Some(peer) = self.cluster.locations.get(id).filter(usable) {
            return Ok(Place::There { peer, placed: false });
        }
        let directory = &self.cluster.directory;
        if let Whereabouts::KnownBy(owner) = directory.lookup_now(id)
            && asks_owner
            && usable(&owner)
            && self.goes_to_owner(sought, avoid, owner)
        {
            return Ok(Place::There { peer: owner, placed: true });
        }
        let found = if trace::is_traced() {
            Box::pin(trace::within(trace::directory("lookup"), directory.lookup(id))).await
        } else {
            directory.lookup(id).await
        };
        let found = found.map_err(|why| self.unavailable(why))?;
        if let Some(at) = found
            && at.silo != self.address
        {
            // Later calls go where this one goes.
            let known = self.cluster.locations.get(id).filter(usable);
            let peer = known.unwrap_or_else(|| {
                self.cluster.locations.set(id, at.silo);
                at.silo
            });
            return Ok(Place::There { peer, placed: false });
        }
        self.placed(sought, avoid).await
    }

    /// The activation of a grain that left for another silo a moment ago, for a call of the silo
    /// `asker` that can be served there. The call waits for those before it, and follows the grain.
    #[inline]
    pub(super) fn door(
        &self,
        grain: &GrainId,
        method: u32,
        asker: Option<SiloAddress>,
        avoid: &[SiloAddress],
    ) -> Option<Held> {
        let (door, to) = self.host.departures.door(grain, asker)?;
        let serves = self.cluster.placing.load.serves(&to, grain.grain_type(), method);
        let leads = serves && !avoid.contains(&to) && !self.cluster.peers.pool.is_dead(to);
        leads.then(|| door.into())
    }

    /// Finds the place that placement gives a grain. For a worker, all of which are busy, it may
    /// have to wait.
    pub(super) async fn placed(
        &self,
        sought: Sought<'_>,
        avoid: &[SiloAddress],
    ) -> Result<Place, Failure> {
        loop {
            if self.stopped.is_cancelled() {
                return Err(Failure::shutting_down());
            }
            let silo = self.choose(sought, avoid).await?;
            if let Some(place) = self.place_on(silo, sought.grain)? {
                return Ok(place);
            }
            match self.host.await_worker(sought.grain).await? {
                Some(Given::Seat(worker)) => return Ok(Place::Here(worker.into())),
                Some(Given::Place(mut place)) if self.accepts_activations() => {
                    let made = self.host.create_in(sought.grain, Some(&mut place))?;
                    if let Some(worker) = made {
                        return Ok(Place::Here(worker));
                    }
                }
                _ => {}
            }
        }
    }

    /// Like [`locate`](Self::locate) for a grain whose location is not known, without a wait: the
    /// answer of placement, when this silo alone knows that the grain is nowhere, and no director
    /// has to wait.
    pub(crate) fn place_now(&self, sought: Sought<'_>) -> Option<Result<Place, Failure>> {
        let id = sought.grain;
        if self.host.is_fenced() {
            return None;
        }
        if self.is_worker(id) {
            return self.place_at_once(sought);
        }
        let owner = match self.cluster.directory.lookup_now(id) {
            Whereabouts::At(silo) if silo != self.address => return None,
            Whereabouts::At(_) => return self.place_at_once(sought),
            Whereabouts::Nowhere => self.address,
            Whereabouts::KnownBy(owner) => owner,
            Whereabouts::Unsure => return None,
        };
        let is_here = owner == self.address;
        if is_here && !self.accepts_activations() || self.cluster.peers.pool.is_dead(owner) {
            return None;
        }
        if self.goes_to_owner(sought, &[], owner) {
            return self.place_on(owner, id).transpose();
        }
        if is_here { self.place_at_once(sought) } else { None }
    }

    /// [`Placing::goes_to_owner`](crate::cluster::Placing::goes_to_owner), within a span.
    fn goes_to_owner(&self, sought: Sought<'_>, avoid: &[SiloAddress], owner: SiloAddress) -> bool {
        // One-way calls before it go where the directory says, once it has said so.
        if self.lanes.has(sought.grain) {
            return false;
        }
        let placing = &self.cluster.placing;
        let goes = placing.goes_to_owner(sought, avoid, owner);
        if goes && trace::is_traced() {
            trace::chosen(&trace::placement(), owner);
        }
        goes
    }

    fn place_at_once(&self, sought: Sought<'_>) -> Option<Result<Place, Failure>> {
        match self.choose_now(sought, &[]) {
            Ok(Chosen::At(silo)) => self.place_on(silo, sought.grain).transpose(),
            Ok(Chosen::Ask(_)) => None,
            Err(failure) => Some(Err(failure)),
        }
    }

    fn unavailable(&self, why: FailReason) -> Failure {
        if self.stopped.is_cancelled() {
            return Failure::shutting_down();
        }
        if why == FailReason::TooManyPending {
            self.host.metrics.refused();
            return Failure::overloaded(format!(
                "{why} on this silo (the directory's pending_max)"
            ));
        }
        Failure::unreachable(None, false, why.to_string())
    }

    /// A grain on the silo that placement has chosen; none for a worker that the call has to wait
    /// for.
    fn place_on(&self, silo: SiloAddress, id: &GrainId) -> Result<Option<Place>, Failure> {
        if silo == self.address {
            return Ok(self.host.create_here(id)?.map(Place::Here));
        }
        Ok(Some(Place::There { peer: silo, placed: true }))
    }

    /// The silo that placement chooses for a grain.
    async fn choose(
        &self,
        sought: Sought<'_>,
        avoid: &[SiloAddress],
    ) -> Result<SiloAddress, Failure> {
        match self.choose_now(sought, avoid)? {
            Chosen::At(silo) => Ok(silo),
            // Rare, and larger than the rest of the call.
            Chosen::Ask(question) => Box::pin(self.ask_director(question, sought)).await,
        }
    }

    async fn ask_director(
        &self,
        question: Box<Question>,
        sought: Sought<'_>,
    ) -> Result<SiloAddress, Failure> {
        let Sought { grain, chain, .. } = sought;
        if chain.iter().any(|waits| waits.grain == *grain && !waits.free) {
            let grain = self.cluster.placing.load.title(grain);
            return Err(Failure::deadlock(format!(
                "{grain} waits for its director, which waits for {grain}"
            )));
        }
        let answer = tokio::select! {
            biased;
            answer = self.asked.ask(*question, self.asking(sought), &self.spawner) => answer,
            () = self.stopped.cancelled() => return Err(Failure::shutting_down()),
        };
        self.cluster.placing.count(answer.as_ref());
        answer.map_err(|why| not_placed(&why))
    }

    /// The context in which a director is asked about a call.
    #[cold]
    fn asking(&self, sought: Sought<'_>) -> TurnContext {
        let due = Due::after(self.response_timeout);
        TurnContext::director(sought.grain.clone(), sought.chain, due)
    }

    fn choose_now(&self, sought: Sought<'_>, avoid: &[SiloAddress]) -> Result<Chosen, Failure> {
        let leaves = !self.accepts_activations();
        let within = |own: &mut dyn FnMut()| {
            // No panic passes through a scope.
            let asked = TurnContext::scope(&mut Some(self.asking(sought)), || contain(own));
            if let Err(words) = asked {
                resume_unwind(Box::new(words));
            }
        };
        let choose = || self.cluster.placing.choose(sought, leaves, avoid, &within);
        let chosen = if trace::is_traced() { traced(choose) } else { contain(choose) };
        match chosen {
            Ok(Ok(chosen)) => Ok(chosen),
            Ok(Err(why)) => Err(not_placed(&why)),
            // A director may be the application's own.
            Err(words) => {
                let name = self.cluster.placing.strategy_name(sought.grain, sought.method);
                Err(not_placed(&PlaceError::Panicked(name, words)))
            }
        }
    }

    /// The silo where placement would put the grain of this activation now.
    pub(crate) async fn place_again(
        &self,
        activation: &Activation,
    ) -> Result<SiloAddress, Failure> {
        let (grain, method) = (activation.id(), activation.any_method());
        self.choose(Sought { grain, method, chain: &CallChain::EMPTY }, &[]).await
    }

    /// A turn for a call whose method the class of this activation lacks. It ends when the
    /// activation has ended, and the grain can move to a silo that has the method.
    pub(super) async fn step_aside(
        &self,
        activation: Held,
        sought: Sought<'_>,
        due: Due,
    ) -> Result<BoxTurn, Failure> {
        let to = self.choose(sought, &[]).await?;
        let turn = activation.step_aside(to, due, sought.chain.clone());
        turn.map_err(StartError::into_failure)
    }

    /// Returns true if `id` is a stateless worker, as far as this silo knows.
    pub(super) fn is_worker(&self, id: &GrainId) -> bool {
        match self.host.classes.get(&id.grain_type()) {
            Some(class) => class.workers_max().is_some(),
            None => self.cluster.placing.load.is_worker(id.grain_type()),
        }
    }

    /// Returns true if new activations may be made here.
    pub(crate) fn accepts_activations(&self) -> bool {
        self.cluster.is_active() && !self.host.catalog.is_closed()
    }

    /// Returns true if this silo may host the grain of a call that another silo sent here. A
    /// cordoned silo hosts it for want of another.
    pub(super) fn takes(&self, grain: &GrainId, method: u32) -> bool {
        self.accepts_activations()
            && self.host.may_activate(grain, method)
            && (!self.host.shortage.is_cordoned()
                || self.cluster.placing.may_be_here(grain, method))
    }
}

/// Chooses within a span.
#[cold]
fn traced(
    choose: impl FnOnce() -> Result<Chosen, PlaceError>,
) -> Result<Result<Chosen, PlaceError>, String> {
    let span = trace::placement();
    let _in_span = trace::enter(&span);
    let chosen = contain(choose);
    match &chosen {
        Ok(Ok(Chosen::At(silo))) => trace::chosen(&span, *silo),
        Ok(Ok(Chosen::Ask(_))) => {}
        Ok(Err(why)) => trace::failed(&span, why),
        Err(words) => trace::failed(&span, words),
    }
    chosen
}

/// Failure of a call for which no silo was chosen.
#[cold]
fn not_placed(why: &PlaceError) -> Failure {
    let detail = why.to_string();
    match why {
        // The next view may have one.
        PlaceError::NoCandidate
        | PlaceError::NoHostKnown
        | PlaceError::NoSiloOfRole(_)
        | PlaceError::NoSiloPasses(_) => Failure::unreachable(None, false, detail),
        PlaceError::NotHosted(_) => Failure::rejected(Rejection::NoSuchGrainType(detail)),
        PlaceError::NotServed { .. } => Failure::rejected(Rejection::NoSuchMethod(detail)),
        _ => Failure::refused(detail),
    }
}

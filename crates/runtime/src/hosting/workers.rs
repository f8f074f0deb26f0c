//! Stateless workers: a silo may have several activations of such a grain at once, and the
//! directory knows none of them (placement description, "Stateless worker placement").
//!
//! The workers of one grain are a crew. Each runs one call at a time. A call takes a seat: the
//! oldest free worker, or a new one up to the limit. Otherwise the call waits for the crew as a
//! whole, in order of arrival. A call that leaves its seat hands the worker to the first waiting
//! call. So no call waits for a busy worker while another one is free.
//!
//! A worker that ends leaves its place to the first that waits as well: that call, and no later
//! one, makes another. Where activations fail one after the other, calls that come meanwhile would
//! otherwise always be quicker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use emmer_core::GrainId;
use tokio::sync::oneshot;

/// A call that waits. When it is dropped unused, the call looks again. While any call waits no
/// worker is free: a call that leaves one hands it over at once.
type Waiting<S> = oneshot::Sender<Given<S>>;

/// Worker of a crew.
pub(super) trait Worker: Clone {
    fn id(&self) -> &GrainId;

    /// Its number on this silo.
    fn number(&self) -> u64;

    /// Returns true if a turn could begin now.
    fn is_free(&self) -> bool;
}

/// Receiver of unused places.
pub(super) trait Places: Send + Sync {
    /// A call makes no worker in the place that it was given: another one may.
    fn give_back(self: Arc<Self>, id: &GrainId);
}

/// The thing that is handed to the call which has waited longest.
pub(crate) enum Given<S> {
    /// The seat at the worker that another one has left.
    Seat(S),
    /// The place of a worker that has ended.
    Place(Place),
}

/// The right to make a worker of a grain. Dropped unused, it goes to the next call that waits.
pub(crate) struct Place {
    places: Arc<dyn Places>,
    id: GrainId,
    is_over: bool,
}

impl Place {
    /// The place is used, or is given up.
    pub(super) const fn end(&mut self) {
        self.is_over = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_over {
            self.places.clone().give_back(&self.id);
        }
    }
}

/// The crews of some grains.
pub(super) struct Workers<W, S>(BTreeMap<GrainId, Crew<W, S>>);

impl<W, S> Default for Workers<W, S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The workers of one grain.
struct Crew<W, S> {
    /// Number of workers that there may be.
    max: usize,
    /// The oldest first.
    workers: Vec<Member<W>>,
    /// The number of calls that have the right to make one more.
    places: usize,
    waiting: VecDeque<Waiting<S>>,
}

struct Member<W> {
    worker: W,
    /// True if a call has the seat.
    is_taken: bool,
}

/// Place of a call that may wait.
pub(crate) enum Queued<S> {
    /// A worker is free after all.
    Seat(S),
    /// It comes to a worker in its turn.
    Wait(oneshot::Receiver<Given<S>>),
    /// As many calls wait already as may.
    Full,
    /// There is no worker, or one more may be made.
    Nobody,
}

impl<W: Worker, S> Crew<W, S> {
    /// Takes the seat of the oldest worker that is free. One that ends is not.
    fn take(&mut self, seat: impl FnOnce(W) -> S) -> Option<S> {
        let free = |member: &&mut Member<W>| !member.is_taken && member.worker.is_free();
        let member = self.workers.iter_mut().find(free)?;
        member.is_taken = true;
        Some(seat(member.worker.clone()))
    }

    fn is_full(&self) -> bool {
        self.workers.len() + self.places >= self.max
    }

    /// Returns true if a call will have something to hand over.
    fn has_some(&self) -> bool {
        self.workers.len() + self.places > 0
    }

    /// Gives the places that are free to those that wait.
    fn give_places<P: Places + 'static>(&mut self, places: &Arc<P>, id: &GrainId) {
        while !self.is_full() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let place = Place { places: places.clone(), id: id.clone(), is_over: false };
            match waiting.send(Given::Place(place)) {
                Ok(()) => self.places += 1,
                // It was never counted.
                Err(Given::Place(mut place)) => place.end(),
                Err(Given::Seat(_)) => {}
            }
        }
    }

    /// Forgets the places of calls that have gone.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_closed());
    }
}

impl<W: Worker, S> Workers<W, S> {
    /// A seat for a call that need not wait; none when it has to, or when one more worker is to be
    /// made.
    pub(super) fn take(&mut self, id: &GrainId, seat: impl FnOnce(W) -> S) -> Option<S> {
        self.0.get_mut(id)?.take(seat)
    }

    /// Returns true if a call that has just come has to wait: the grain has its maximum of workers,
    /// or other calls wait.
    pub(super) fn is_full(&mut self, id: &GrainId) -> bool {
        let Some(crew) = self.0.get_mut(id) else { return false };
        if !crew.is_full() && !crew.waiting.is_empty() {
            crew.forget_gone();
        }
        crew.is_full() || (crew.has_some() && !crew.waiting.is_empty())
    }

    /// Returns true if the grain has any worker, or will have one.
    pub(super) fn has_some(&self, id: &GrainId) -> bool {
        self.0.get(id).is_some_and(Crew::has_some)
    }

    /// Adds a worker, of at most `max`, in this place if the call has one. Its seat is taken.
    pub(super) fn add(&mut self, worker: W, max: usize, place: Option<&mut Place>) {
        let new = || Crew { max, workers: Vec::new(), places: 0, waiting: VecDeque::new() };
        let crew = self.0.entry(worker.id().clone()).or_insert_with(new);
        if let Some(place) = place {
            place.end();
            crew.places -= 1;
        }
        crew.workers.push(Member { worker, is_taken: true });
    }

    /// A call leaves the place that it was given without making a worker. `others` may have the
    /// place.
    pub(super) fn leave_place<P: Places + 'static>(
        &mut self,
        places: &Arc<P>,
        id: &GrainId,
        others: bool,
    ) {
        let Some(crew) = self.0.get_mut(id) else { return };
        crew.places -= 1;
        if others {
            crew.give_places(places, id);
        }
        self.forget_empty(id);
    }

    /// Forgets the crew, if there is nothing in it. Calls that wait for nothing look again.
    fn forget_empty(&mut self, id: &GrainId) {
        if self.0.get(id).is_some_and(|crew| !crew.has_some()) {
            self.0.remove(id);
        }
    }

    /// A call waits for a seat, behind at most `waiting_max - 1` others.
    pub(super) fn queue(
        &mut self,
        id: &GrainId,
        waiting_max: usize,
        seat: impl FnOnce(W) -> S,
    ) -> Queued<S> {
        let Some(crew) = self.0.get_mut(id) else { return Queued::Nobody };
        if let Some(seat) = crew.take(seat) {
            return Queued::Seat(seat);
        }
        if crew.waiting.len() >= waiting_max {
            crew.forget_gone();
        }
        if crew.waiting.len() >= waiting_max {
            return Queued::Full;
        }
        let (waiting, turn) = oneshot::channel();
        crew.waiting.push_back(waiting);
        Queued::Wait(turn)
    }

    /// A call has left its worker: the first that waits gets it. The seat comes back when no call
    /// waits.
    pub(super) fn hand_over(&mut self, worker: &W, seat: impl FnOnce(W) -> S) -> Option<S> {
        let crew = self.0.get_mut(worker.id())?;
        let number = worker.number();
        let place = crew.workers.iter_mut().find(|member| member.worker.number() == number)?;
        place.is_taken = false;
        if crew.waiting.is_empty() || !worker.is_free() {
            return None;
        }
        let mut seat = seat(worker.clone());
        while let Some(waiting) = crew.waiting.pop_front() {
            match waiting.send(Given::Seat(seat)) {
                Ok(()) => {
                    place.is_taken = true;
                    return None;
                }
                Err(Given::Seat(back)) => seat = back,
                Err(Given::Place(_)) => return None,
            }
        }
        Some(seat)
    }

    /// Takes out the worker of this number, if it is there. The call that waits first makes another
    /// one.
    pub(super) fn remove<P: Places + 'static>(
        &mut self,
        places: &Arc<P>,
        id: &GrainId,
        number: u64,
    ) -> Option<W> {
        let crew = self.0.get_mut(id)?;
        let at = crew.workers.iter().position(|member| member.worker.number() == number)?;
        let gone = crew.workers.remove(at);
        crew.give_places(places, id);
        self.forget_empty(id);
        Some(gone.worker)
    }

    /// Every worker of every crew.
    pub(super) fn iter(&self) -> impl Iterator<Item = &W> {
        self.0.values().flat_map(|crew| &crew.workers).map(|member| &member.worker)
    }

    /// Number of calls that wait for each grain.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u32, &GrainId)> {
        let count = |crew: &Crew<W, S>| crew.waiting.iter().filter(|w| !w.is_closed()).count();
        self.0.iter().map(move |(id, crew)| (u32::try_from(count(crew)).unwrap_or(u32::MAX), id))
    }
}

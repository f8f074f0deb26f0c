//! Stateless workers: a silo may have several activations of such a grain at once, and the
//! directory knows none of them (placement description, "Stateless worker placement").
//!
//! The workers of one grain are a crew. Each runs one call at a time. A call takes a seat: the
//! oldest worker that is free. When none is, one more is made, up to as many as there may be. Then
//! the call waits for the crew as a whole, in the order in which calls came, and whoever leaves its
//! seat hands the worker to the first that waits. So no call waits for a busy worker while another
//! one is free.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use emmer_core::GrainId;
use tokio::sync::oneshot;

use super::RunActivation;
use super::seat::Seat;

/// Who waits for a seat. When it is dropped unused, the call looks anew. While anybody waits no
/// worker is free: whoever leaves one hands it over at once.
type Waiting = oneshot::Sender<Arc<Seat>>;

/// The crews of some grains.
#[derive(Default)]
pub(super) struct Workers(BTreeMap<GrainId, Crew>);

/// The workers of one grain.
struct Crew {
    /// How many there may be.
    max: usize,
    /// The oldest first; at least one.
    workers: Vec<Worker>,
    waiting: VecDeque<Waiting>,
}

struct Worker {
    activation: Arc<dyn RunActivation>,
    /// Somebody has the seat.
    is_taken: bool,
}

/// What a call finds that may wait.
pub(crate) enum Queued {
    /// A worker is free after all.
    Seat(Arc<Seat>),
    /// It comes to a worker in its turn.
    Wait(oneshot::Receiver<Arc<Seat>>),
    /// So many wait already.
    Full,
    /// There is no worker, or one more may be made.
    Nobody,
}

impl Crew {
    /// Takes the seat of the oldest worker that is free. One that ends is not.
    fn take(
        &mut self,
        seat: impl FnOnce(Arc<dyn RunActivation>) -> Arc<Seat>,
    ) -> Option<Arc<Seat>> {
        let free = |worker: &&mut Worker| !worker.is_taken && worker.activation.is_free();
        let worker = self.workers.iter_mut().find(free)?;
        worker.is_taken = true;
        Some(seat(worker.activation.clone()))
    }

    /// Those that wait for somebody who has gone are forgotten.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiting| !waiting.is_closed());
    }
}

impl Workers {
    /// A seat for a call that need not wait; none when it has to, or when one more worker is to be
    /// made.
    pub(super) fn take(
        &mut self,
        id: &GrainId,
        seat: impl FnOnce(Arc<dyn RunActivation>) -> Arc<Seat>,
    ) -> Option<Arc<Seat>> {
        self.0.get_mut(id)?.take(seat)
    }

    /// Whether the grain has as many workers as it may have.
    pub(super) fn is_full(&self, id: &GrainId) -> bool {
        self.0.get(id).is_some_and(|crew| crew.workers.len() >= crew.max)
    }

    /// Whether it has any.
    pub(super) fn has_some(&self, id: &GrainId) -> bool {
        self.0.contains_key(id)
    }

    /// One more worker, of which there may be `max`. Its seat is taken.
    pub(super) fn add(&mut self, activation: Arc<dyn RunActivation>, max: usize) {
        let new = || Crew { max, workers: Vec::new(), waiting: VecDeque::new() };
        let crew = self.0.entry(activation.id().clone()).or_insert_with(new);
        crew.workers.push(Worker { activation, is_taken: true });
    }

    /// A call waits for a seat, behind at most `waiting_max - 1` others.
    pub(super) fn queue(
        &mut self,
        id: &GrainId,
        waiting_max: usize,
        seat: impl FnOnce(Arc<dyn RunActivation>) -> Arc<Seat>,
    ) -> Queued {
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

    /// A call has left its worker: the first that waits gets it. The seat comes back when nobody
    /// waits any more.
    pub(super) fn hand_over(
        &mut self,
        worker: &Arc<dyn RunActivation>,
        seat: impl FnOnce(Arc<dyn RunActivation>) -> Arc<Seat>,
    ) -> Option<Arc<Seat>> {
        let crew = self.0.get_mut(worker.id())?;
        let number = worker.number();
        let place = crew.workers.iter_mut().find(|w| w.activation.number() == number)?;
        place.is_taken = false;
        if crew.waiting.is_empty() || !worker.is_free() {
            return None;
        }
        let mut seat = seat(worker.clone());
        while let Some(waiting) = crew.waiting.pop_front() {
            match waiting.send(seat) {
                Ok(()) => {
                    place.is_taken = true;
                    return None;
                }
                Err(back) => seat = back,
            }
        }
        Some(seat)
    }

    /// Takes out the worker of this number, if it is there. Whoever waits first makes another one;
    /// when it was the last one, all that wait look anew.
    pub(super) fn remove(&mut self, id: &GrainId, number: u64) -> Option<Arc<dyn RunActivation>> {
        let crew = self.0.get_mut(id)?;
        let at = crew.workers.iter().position(|worker| worker.activation.number() == number)?;
        let gone = crew.workers.remove(at);
        if crew.workers.is_empty() {
            self.0.remove(id);
        } else {
            crew.forget_gone();
            drop(crew.waiting.pop_front());
        }
        Some(gone.activation)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<dyn RunActivation>> {
        self.0.values().flat_map(|crew| &crew.workers).map(|worker| &worker.activation)
    }

    /// How many calls wait for each grain.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u32, &GrainId)> {
        let count = |crew: &Crew| crew.waiting.iter().filter(|w| !w.is_closed()).count();
        self.0.iter().map(move |(id, crew)| (u32::try_from(count(crew)).unwrap_or(u32::MAX), id))
    }
}

//! The places of connections: when all are taken, the oldest connection without a request makes
//! room for a new one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most connections at once. Each has a descriptor.
const CONNECTIONS_MAX: usize = 256;

/// The connections of an endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    /// By age: later connections have greater numbers.
    by_number: BTreeMap<u64, Arc<State>>,
    next: u64,
}

#[derive(Debug, Default)]
struct State {
    /// A request is being answered.
    is_busy: AtomicBool,
    gives_way: Notify,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    number: u64,
    state: Arc<State>,
}

/// A request under way: its connection keeps its place.
#[derive(Debug)]
pub(crate) struct Busy<'a>(&'a State);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing here panics half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection, if need be the place of the oldest connection without a
    /// request. None if every connection has a request.
    pub(crate) fn take(&self) -> Option<Place> {
        let mut taken = self.lock();
        if taken.by_number.len() >= CONNECTIONS_MAX {
            let idle = |(_, state): &(&u64, &Arc<State>)| !state.is_busy.load(Ordering::Acquire);
            let oldest = *taken.by_number.iter().find(idle)?.0;
            let state = taken.by_number.remove(&oldest)?;
            state.gives_way.notify_one();
        }
        let (number, state) = (taken.next, Arc::new(State::default()));
        taken.next += 1;
        taken.by_number.insert(number, state.clone());
        Some(Place { places: self.clone(), number, state })
    }
}

impl Place {
    /// Waits until the connection has to make room.
    pub(crate) async fn gives_way(&self) {
        self.state.gives_way.notified().await;
    }

    /// Keeps the place until the result is dropped.
    pub(crate) fn work(&self) -> Busy<'_> {
        self.state.is_busy.store(true, Ordering::Release);
        Busy(&self.state)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_makes_room() {
        let places = Places::default();
        let mut taken: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.take().unwrap()).collect();
        let busy = taken[0].work();
        let new = places.take().unwrap();
        taken[1].gives_way().await;
        drop(busy);
        let _newer = places.take().unwrap();
        taken[0].gives_way().await;
        assert_eq!(places.lock().by_number.len(), CONNECTIONS_MAX);
        // Places that made room are no longer counted.
        taken.truncate(2);
        taken.clear();
        drop(new);
        assert_eq!(places.lock().by_number.len(), 1);
    }

    #[test]
    fn a_connection_is_refused_when_all_others_have_requests() {
        let places = Places::default();
        let taken: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.take().unwrap()).collect();
        let busy: Vec<_> = taken.iter().map(Place::work).collect();
        assert!(places.take().is_none());
        drop(busy);
        assert!(places.take().is_some());
    }
}

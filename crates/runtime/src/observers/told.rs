//! The observers that a grain tells.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use emmer_net::warn_seldom;
use emmer_wire::codec;

use super::interface::ObserverInterface;
use super::reference::ObserverRef;
use crate::calls::Node;
use crate::streams::{Place, Set};
use crate::turn::contain;

/// The most observers of one grain, unless it says otherwise.
const OBSERVERS_MAX: u64 = 1_000_000;

/// The observers that a grain tells: a field of its class.
///
/// ```no_run
/// use emmer::prelude::*;
///
/// #[observer]
/// pub trait ChatEvents {
///     fn said(&self, line: String);
/// }
///
/// #[grain_interface(key = String)]
/// pub trait Room {
///     async fn join(&mut self, who: ObserverRef<dyn ChatEvents>) -> emmer::Result<()>;
///     async fn say(&mut self, line: String);
/// }
///
/// #[derive(Grain, Default)]
/// struct RoomGrain {
///     people: Observers<dyn ChatEvents>,
/// }
///
/// #[grain]
/// impl Room for RoomGrain {
///     async fn join(&mut self, who: ObserverRef<dyn ChatEvents>) -> emmer::Result<()> {
///         Ok(self.people.add(who)?)
///     }
///
///     async fn say(&mut self, line: String) {
///         self.people.tell(|people| people.said(line));
///     }
/// }
/// ```
///
/// An observer whose process has ended leaves by itself: at once if its gateway sees the end, after
/// 15 seconds otherwise. The observers of an activation end with it; each
/// [`Watch`](super::Watch) then joins again.
pub struct Observers<I: ?Sized> {
    set: OnceLock<(Arc<Set>, Place)>,
    max: u64,
    interface: PhantomData<fn() -> Box<I>>,
}

/// The reason why an observer was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserversError {
    /// There are as many as may be.
    #[error("the grain has {0} observers already, the most that it takes: raise `with_max`")]
    Full(u64),
    /// Observers are added in a turn of their grain.
    #[error("an observer is added outside a turn")]
    OutsideTurn,
}

impl<I: ?Sized> Default for Observers<I> {
    fn default() -> Self {
        Self::with_max(OBSERVERS_MAX)
    }
}

impl<I: ?Sized> Observers<I> {
    /// No observers, of which there may be this many. By default a million.
    pub const fn with_max(max: u64) -> Self {
        Self { set: OnceLock::new(), max, interface: PhantomData }
    }

    /// The number of observers.
    pub fn len(&self) -> u64 {
        self.set.get().map_or(0, |(set, _)| set.len())
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes an observer in. Taking it in again does no harm.
    ///
    /// # Errors
    /// [`ObserversError`].
    pub fn add(&self, observer: ObserverRef<I>) -> Result<(), ObserversError> {
        if self.len() >= self.max {
            return Err(ObserversError::Full(self.max));
        }
        let (set, here) = match self.set.get() {
            Some(known) => known,
            None => {
                let node = Node::of_turn().ok_or(ObserversError::OutsideTurn)?;
                let hub = node.streams().zip(node.place(None));
                let (hub, here) = hub.ok_or(ObserversError::OutsideTurn)?;
                self.set.get_or_init(|| (Set::new(hub.clone()), here))
            }
        };
        set.add(*here, observer.place, observer.id);
        Ok(())
    }

    /// Takes an observer out; true if it was in. Its [`Watch`](super::Watch) ends.
    pub fn remove(&self, observer: &ObserverRef<I>) -> bool {
        let known = self.set.get();
        known.is_some_and(|(set, here)| set.remove(*here, observer.place, observer.id))
    }
}

impl<I: ObserverInterface + ?Sized> Observers<I> {
    /// Tells every observer: `observers.tell(|to| to.said(line))`. It never waits. What does not
    /// fit is told to the observer as a [`Gap`](super::Gap). An event that cannot be encoded goes
    /// to no other process, and the log says so.
    pub fn tell(&self, what: impl FnOnce(&I::Tell) -> I::Event) {
        let Some((set, here)) = self.set.get() else { return };
        let event = what(&I::Tell::default());
        set.tell(
            *here,
            |hub, here, id| hub.inbox.take_local(here, id, &event as &(dyn Any + Send + Sync)),
            || {
                let mut out = BytesMut::new();
                let encoded = contain(|| codec::encode_into(&mut out, &event));
                let failed = match encoded {
                    Ok(Ok(())) => return Some(out.freeze()),
                    Ok(Err(error)) => error.to_string(),
                    Err(panic) => panic,
                };
                warn_seldom!(interface = I::NAME, error = failed, "an event was not told");
                None
            },
        );
    }
}

impl<I: ?Sized> Drop for Observers<I> {
    fn drop(&mut self) {
        if let Some((set, here)) = self.set.get() {
            set.end(*here);
        }
    }
}

impl<I: ?Sized> fmt::Debug for Observers<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("len", &self.len()).finish_non_exhaustive()
    }
}

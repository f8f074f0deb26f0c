//! An observer as data: it travels, and is stored, as the place of its process and its number.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use emmer_core::hash::name32;
use serde::de::{Deserializer, Error};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::interface::ObserverInterface;
use crate::streams::Place;

/// A reference to an observer: what a [`Watch`](super::Watch) gives to a grain, and a grain to its
/// [`Observers`](super::Observers).
pub struct ObserverRef<I: ?Sized> {
    pub(super) place: Place,
    pub(super) id: u64,
    interface: PhantomData<fn() -> Box<I>>,
}

#[derive(Serialize, Deserialize)]
struct Travelling {
    #[serde(rename = "p")]
    place: Place,
    #[serde(rename = "i")]
    id: u64,
    /// The number of the interface.
    #[serde(rename = "o")]
    interface: u32,
}

impl<I: ?Sized> ObserverRef<I> {
    pub(super) const fn new(place: Place, id: u64) -> Self {
        Self { place, id, interface: PhantomData }
    }
}

impl<I: ?Sized> Clone for ObserverRef<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: ?Sized> Copy for ObserverRef<I> {}

impl<I: ?Sized> PartialEq for ObserverRef<I> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<I: ?Sized> Eq for ObserverRef<I> {}

impl<I: ?Sized> Hash for ObserverRef<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<I: ?Sized> fmt::Debug for ObserverRef<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObserverRef({:016x} behind silo {})", self.id, self.place.silo)
    }
}

impl<I: ObserverInterface + ?Sized> Serialize for ObserverRef<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (place, id) = (self.place, self.id);
        Travelling { place, id, interface: name32(I::NAME) }.serialize(serializer)
    }
}

impl<'de, I: ObserverInterface + ?Sized> Deserialize<'de> for ObserverRef<I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = Travelling::deserialize(deserializer)?;
        if found.interface != name32(I::NAME) {
            let why = format!("a reference to an observer of another interface than {}", I::NAME);
            return Err(D::Error::custom(why));
        }
        Ok(Self::new(found.place, found.id))
    }
}

//! Links: the way of what grains tell observers. One stream leads from each silo to each process
//! that has observers of its grains. What a grain tells is written once on each link, however many
//! observers are at its end.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use emmer_net::world;
use emmer_streams::{Config, Reader, StreamId, Window, Writer};
use emmer_wire::codec;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::hub::Hub;
use super::post::{Outbox, Part, Place};
use super::write_end::{NotPut, WriteEnd};

/// The credit of a link. It has room for a crowd that joins at once.
const WINDOW: Window = Window { items: 64 << 10, bytes: 1 << 20 };

/// The settings of both ends of a link.
pub(super) const fn config(hub: &Hub) -> Config {
    Config { window: WINDOW, ..hub.config }
}

/// The number of the observers of one activation, drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SetId(pub(crate) u64);

/// One value on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Item {
    /// The observer of this number is in a set.
    #[serde(rename = "a")]
    Added(SetId, u64),
    /// The observer of this number was taken out of a set.
    #[serde(rename = "r")]
    Removed(SetId, u64),
    /// Something is told to all observers of a set: the encoded event.
    #[serde(rename = "t")]
    Tell(SetId, Bytes),
    /// As many events of a set did not fit on the link.
    #[serde(rename = "g")]
    Gap(SetId, u64),
    /// The set has ended with its activation.
    #[serde(rename = "e")]
    Ended(SetId),
}

impl Item {
    pub(crate) fn encoded(&self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        codec::encode_into(&mut out, self).ok().map(|()| out.freeze())
    }
}

/// The observers of one activation.
pub(crate) struct Set {
    id: SetId,
    hub: Arc<Hub>,
    members: Mutex<HashMap<Place, Arc<Member>>>,
    /// The number of all observers.
    count: AtomicU64,
}

/// The observers of a set in one process.
struct Member {
    /// The link there; None for the process of the grain.
    link: Option<Arc<Link>>,
    ids: Mutex<HashSet<u64>>,
    /// Events that did not fit, and were not told as a gap yet.
    missed: AtomicU64,
}

/// A link to one process.
pub(crate) struct Link {
    end: Arc<WriteEnd>,
    sets: Mutex<HashMap<SetId, Weak<Set>>>,
}

/// The links of a process to others.
#[derive(Default)]
pub(crate) struct Links {
    to: Mutex<HashMap<Place, Arc<Link>>>,
    /// Sets with observers in this process.
    own: Mutex<HashMap<SetId, Weak<Set>>>,
}

impl Links {
    /// The link to a process; begun if there is none.
    fn to(hub: &Arc<Hub>, here: Place, to: Place) -> Arc<Link> {
        let mut links = hub.links.to.lock();
        if let Some(link) = links.get(&to).filter(|link| !link.end.is_ended()) {
            return link.clone();
        }
        let stream = StreamId(world::random_bits());
        let credit = Reader::initial(WINDOW);
        let machine = Writer::arrived(hub.now(), stream, credit, config(hub));
        let end = WriteEnd::of_link(hub, stream, here, to, machine);
        let link = Arc::new(Link { end: end.clone(), sets: Mutex::default() });
        links.insert(to, link.clone());
        drop(links);
        let (hub_of_end, link_of_end) = (Arc::downgrade(hub), Arc::downgrade(&link));
        end.when_over(move || {
            if let Some((hub, link)) = hub_of_end.upgrade().zip(link_of_end.upgrade()) {
                link.over(&hub, to);
            }
        });
        let mut out = Outbox::default();
        out.put(here, to, Part::Link(stream));
        hub.post(out);
        link
    }

    /// An observer of this process is gone.
    pub(super) fn forget_own(&self, here: Place, set: SetId, id: u64) {
        let set = self.own.lock().get(&set).and_then(Weak::upgrade);
        if let Some(set) = set {
            set.forget(here, Some(id));
        }
    }

    /// The other end says that an observer, or all of its observers of a set, are gone.
    pub(super) fn forget(hub: &Hub, from: Place, set: SetId, id: Option<u64>) {
        let link = hub.links.to.lock().get(&from).cloned();
        let set = link.and_then(|link| link.sets.lock().get(&set).and_then(Weak::upgrade));
        if let Some(set) = set {
            set.forget(from, id);
        }
    }
}

impl Link {
    /// The stream is over: its process has ended, or does not listen.
    fn over(self: &Arc<Self>, hub: &Hub, to: Place) {
        let mut links = hub.links.to.lock();
        if links.get(&to).is_some_and(|link| Arc::ptr_eq(link, self)) {
            links.remove(&to);
        }
        drop(links);
        let sets = std::mem::take(&mut *self.sets.lock());
        for set in sets.values().filter_map(Weak::upgrade) {
            set.lose(to, self);
        }
    }
}

impl Set {
    pub(crate) fn new(hub: Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            id: SetId(world::random_bits()),
            hub,
            members: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// The number of observers.
    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes an observer in; false if it is in already. `here` is the place of this process.
    pub(crate) fn add(self: &Arc<Self>, here: Place, place: Place, id: u64) -> bool {
        let member = self.member(here, place);
        let is_new = member.ids.lock().insert(id);
        if is_new {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        match &member.link {
            None => {
                let gone = self.hub.inbox.take(here, None, Item::Added(self.id, id));
                if gone.is_some() {
                    self.forget(place, Some(id));
                }
            }
            Some(link) => {
                // Without room the observer asks again before long.
                if let Some(item) = Item::Added(self.id, id).encoded() {
                    let _ = link.end.put(&self.hub, &item);
                }
            }
        }
        is_new
    }

    fn member(self: &Arc<Self>, here: Place, place: Place) -> Arc<Member> {
        let known = self.members.lock().get(&place).cloned();
        let is_open =
            |member: &Arc<Member>| member.link.as_ref().is_none_or(|link| !link.end.is_ended());
        if let Some(member) = known.filter(is_open) {
            return member;
        }
        let link = (place != here).then(|| Links::to(&self.hub, here, place));
        let sets = link.as_ref().map_or(&self.hub.links.own, |link| &link.sets);
        sets.lock().insert(self.id, Arc::downgrade(self));
        let member = Arc::new(Member { link, ids: Mutex::default(), missed: AtomicU64::new(0) });
        let before = self.members.lock().insert(place, member.clone());
        self.uncount(before.as_deref());
        member
    }

    fn uncount(&self, member: Option<&Member>) {
        if let Some(member) = member {
            self.count.fetch_sub(member.ids.lock().len() as u64, Ordering::Relaxed);
        }
    }

    /// Takes an observer out; true if it was in.
    pub(crate) fn remove(&self, here: Place, place: Place, id: u64) -> bool {
        let member = self.members.lock().get(&place).cloned();
        let was_in = self.forget(place, Some(id));
        let item = Item::Removed(self.id, id);
        match member.filter(|_| was_in).map(|member| member.link.clone()) {
            None => {}
            Some(None) => {
                self.hub.inbox.take(here, None, item);
            }
            Some(Some(link)) => {
                if let Some(item) = item.encoded() {
                    let _ = link.end.put(&self.hub, &item);
                }
            }
        }
        was_in
    }

    /// Takes an observer out, or all of a process; true if there was one.
    fn forget(&self, place: Place, id: Option<u64>) -> bool {
        let mut members = self.members.lock();
        let Some(member) = members.get(&place).cloned() else { return false };
        let mut ids = member.ids.lock();
        let gone = match id {
            Some(id) => u64::from(ids.remove(&id)),
            None => std::mem::take(&mut *ids).len() as u64,
        };
        let is_empty = ids.is_empty();
        drop(ids);
        if is_empty {
            members.remove(&place);
        }
        drop(members);
        self.count.fetch_sub(gone, Ordering::Relaxed);
        if is_empty {
            let sets = member.link.as_ref().map_or(&self.hub.links.own, |link| &link.sets);
            sets.lock().remove(&self.id);
        }
        gone > 0
    }

    /// The link to a process is over.
    fn lose(&self, place: Place, link: &Arc<Link>) {
        let mut members = self.members.lock();
        let is_of =
            |member: &&Arc<Member>| member.link.as_ref().is_some_and(|of| Arc::ptr_eq(of, link));
        if members.get(&place).filter(is_of).is_none() {
            return;
        }
        let lost = members.remove(&place);
        drop(members);
        self.uncount(lost.as_deref());
    }

    /// Tells an event to every observer. `local` gives it to those in this process; `encode` is
    /// asked once, if there are others.
    pub(crate) fn tell(
        &self,
        here: Place,
        local: impl FnOnce(&Hub, Place, SetId),
        encode: impl FnOnce() -> Option<Bytes>,
    ) {
        let members: Vec<_> = self.members.lock().values().cloned().collect();
        let mut others = members.iter().filter_map(|member| Some((member, member.link.as_ref()?)));
        if members.iter().any(|member| member.link.is_none()) {
            local(&self.hub, here, self.id);
        }
        let Some(first) = others.next() else { return };
        let Some(event) = encode().and_then(|event| Item::Tell(self.id, event).encoded()) else {
            return;
        };
        for (member, link) in std::iter::once(first).chain(others) {
            self.write(member, link, &event);
        }
    }

    fn write(&self, member: &Member, link: &Link, event: &[u8]) {
        let missed = member.missed.load(Ordering::Relaxed);
        if missed > 0 {
            let gap = Item::Gap(self.id, missed).encoded();
            match gap.map(|gap| link.end.put(&self.hub, &gap)) {
                Some(Ok(())) => {
                    member.missed.fetch_sub(missed, Ordering::Relaxed);
                }
                _ => {
                    member.missed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        if let Err(NotPut::Full) = link.end.put(&self.hub, event) {
            member.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The activation has ended.
    pub(crate) fn end(&self, here: Place) {
        let members = std::mem::take(&mut *self.members.lock());
        let ended = Item::Ended(self.id);
        let encoded = ended.encoded();
        for member in members.into_values() {
            match &member.link {
                None => {
                    self.hub.links.own.lock().remove(&self.id);
                    self.hub.inbox.take(here, None, ended.clone());
                }
                Some(link) => {
                    link.sets.lock().remove(&self.id);
                    if let Some(ended) = &encoded {
                        let _ = link.end.put(&self.hub, ended);
                    }
                }
            }
        }
    }
}

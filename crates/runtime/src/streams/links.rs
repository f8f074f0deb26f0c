//! Links: the way of what grains tell observers. One stream leads from each silo to each process
//! that has observers of its grains. What a grain tells is written once on each link, however many
//! observers are at its end.

use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// The encoded event for all observers of a set.
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
    members: Mutex<BTreeMap<Place, Member>>,
    /// The number of all observers.
    count: AtomicU64,
}

/// The observers of a set in one process.
struct Member {
    /// The link there; None for the process of the grain.
    link: Option<Arc<Link>>,
    ids: HashSet<u64>,
    /// Events that did not fit, and were not told as a gap yet.
    missed: Arc<AtomicU64>,
}

impl Member {
    fn is_by(&self, link: Option<&Arc<Link>>) -> bool {
        self.link.as_ref().map(Arc::as_ptr) == link.map(Arc::as_ptr)
    }
}

/// A link to one process.
pub(crate) struct Link {
    end: Arc<WriteEnd>,
    sets: Mutex<BTreeMap<SetId, Weak<Set>>>,
}

/// The links of a process to others.
#[derive(Default)]
pub(crate) struct Links {
    to: Mutex<HashMap<Place, Arc<Link>>>,
    /// Sets with observers in this process.
    own: Mutex<BTreeMap<SetId, Weak<Set>>>,
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
            set.forget(here, id);
        }
    }

    /// The other end says that an observer is gone.
    pub(super) fn forget(hub: &Hub, from: Place, set: SetId, id: u64) {
        let link = hub.links.to.lock().get(&from).cloned();
        let set = link.and_then(|link| link.sets.lock().get(&set).and_then(Weak::upgrade));
        if let Some(set) = set {
            set.forget(from, id);
        }
    }
}

impl Link {
    /// Writes what an observer must not miss. A link that has no room for it breaks off, and its
    /// observers join again.
    fn write_surely(&self, hub: &Hub, item: &Item) {
        let written = item.encoded().is_some_and(|item| self.end.put(hub, &item).is_ok());
        if !written {
            self.end.close(hub, false);
        }
    }

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

    /// Takes an observer in. `here` is the place of this process.
    pub(crate) fn add(self: &Arc<Self>, here: Place, place: Place, id: u64) {
        let link = (place != here).then(|| Links::to(&self.hub, here, place));
        let mut members = self.members.lock();
        // Under the lock, as what follows: an observer that leaves now takes no other one along.
        if let Some(old) = members.get(&place).filter(|member| !member.is_by(link.as_ref())) {
            self.uncount(old);
            members.remove(&place);
        }
        self.sets(link.as_ref()).lock().insert(self.id, Arc::downgrade(self));
        let new = || Member { link: link.clone(), ids: HashSet::new(), missed: Arc::default() };
        if members.entry(place).or_insert_with(new).ids.insert(id) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        drop(members);
        let item = Item::Added(self.id, id);
        match link {
            None => {
                if self.hub.inbox.take(here, None, item).is_some() {
                    self.forget(place, id);
                }
            }
            Some(link) => {
                // Without room the observer asks again before long.
                if let Some(item) = item.encoded() {
                    let _ = link.end.put(&self.hub, &item);
                }
                // It may have ended before it had this set.
                if link.end.is_ended() {
                    self.lose(place, &link);
                }
            }
        }
    }

    /// The sets of a link, or of this process.
    fn sets<'a>(&'a self, link: Option<&'a Arc<Link>>) -> &'a Mutex<BTreeMap<SetId, Weak<Self>>> {
        link.map_or(&self.hub.links.own, |link| &link.sets)
    }

    fn uncount(&self, member: &Member) {
        self.count.fetch_sub(member.ids.len() as u64, Ordering::Relaxed);
    }

    /// Takes an observer out; true if it was in.
    pub(crate) fn remove(&self, here: Place, place: Place, id: u64) -> bool {
        let link = self.members.lock().get(&place).and_then(|member| member.link.clone());
        if !self.forget(place, id) {
            return false;
        }
        let item = Item::Removed(self.id, id);
        match link {
            None => {
                self.hub.inbox.take(here, None, item);
            }
            Some(link) => link.write_surely(&self.hub, &item),
        }
        true
    }

    /// Forgets an observer; true if it was in.
    fn forget(&self, place: Place, id: u64) -> bool {
        let mut members = self.members.lock();
        let Some(member) = members.get_mut(&place) else { return false };
        let was_in = member.ids.remove(&id);
        if was_in {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        if member.ids.is_empty()
            && let Some(member) = members.remove(&place)
        {
            self.sets(member.link.as_ref()).lock().remove(&self.id);
        }
        was_in
    }

    /// The link to a process is over.
    fn lose(&self, place: Place, link: &Arc<Link>) {
        let mut members = self.members.lock();
        if members.get(&place).is_some_and(|member| member.is_by(Some(link)))
            && let Some(lost) = members.remove(&place)
        {
            self.uncount(&lost);
        }
    }

    /// Tells an event to every observer. `local` gives it to those in this process; `encode` is
    /// asked once, if there are others.
    pub(crate) fn tell(
        &self,
        here: Place,
        local: impl FnOnce(&Hub, Place, SetId),
        encode: impl FnOnce() -> Option<Bytes>,
    ) {
        let (mut others, mut has_own) = (Vec::new(), false);
        for Member { link, missed, .. } in self.members.lock().values() {
            match link {
                Some(link) => others.push((missed.clone(), link.clone())),
                None => has_own = true,
            }
        }
        if has_own {
            local(&self.hub, here, self.id);
        }
        if others.is_empty() {
            return;
        }
        let Some(event) = encode().and_then(|event| Item::Tell(self.id, event).encoded()) else {
            return;
        };
        for (missed, link) in &others {
            self.write(missed, link, &event);
        }
    }

    fn write(&self, unsaid: &AtomicU64, link: &Link, event: &[u8]) {
        let missed = unsaid.load(Ordering::Relaxed);
        if missed > 0 {
            let gap = Item::Gap(self.id, missed).encoded();
            match gap.map(|gap| link.end.put(&self.hub, &gap)) {
                Some(Ok(())) => {
                    unsaid.fetch_sub(missed, Ordering::Relaxed);
                }
                _ => {
                    unsaid.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        if let Err(NotPut::Full) = link.end.put(&self.hub, event) {
            unsaid.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The activation has ended.
    pub(crate) fn end(&self, here: Place) {
        let members = std::mem::take(&mut *self.members.lock());
        let ended = Item::Ended(self.id);
        for member in members.into_values() {
            self.sets(member.link.as_ref()).lock().remove(&self.id);
            match &member.link {
                None => {
                    self.hub.inbox.take(here, None, ended.clone());
                }
                Some(link) => link.write_surely(&self.hub, &ended),
            }
        }
    }
}

//! The observers of this process, and the sets of grains that they are in.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::poll_fn;
use std::sync::{Arc, Weak};

use emmer_net::{warn_seldom, world};
use emmer_streams::{Reader, StreamId};
use emmer_wire::codec;
use parking_lot::Mutex;

use super::hub::Hub;
use super::links::{Item, SetId, config};
use super::post::{Outbox, Part, Place};
use super::read_end::{Next, ReadEnd};
use super::write_end::split_value;

/// One observer, whatever its events are.
pub(crate) trait Mailbox: Send + Sync {
    /// Takes an encoded event. `decoded` keeps it for the other observers of this process.
    fn take_encoded(&self, event: &[u8], decoded: &mut Option<Box<dyn Any + Send>>);

    /// Takes an event of this process.
    fn take(&self, event: &(dyn Any + Send + Sync));

    /// Events did not arrive: as many, if that is known.
    fn miss(&self, events: u64);

    /// A set has the observer.
    fn added(&self);

    /// A set that has had the observer has ended. `is_kept` is false if its grain has taken it out,
    /// and no other set has it.
    fn lost(&self, is_kept: bool);
}

/// A link to this process: its stream, and the place of this process that the silo knows.
pub(crate) type LinkHere = (StreamId, Place);

/// A set: the silo, the link (None: a grain of this process), and the number of the set.
type Key = (Place, Option<LinkHere>, SetId);

/// The observers of a process.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    observers: HashMap<u64, Observer>,
    sets: BTreeMap<Key, BTreeSet<u64>>,
}

struct Observer {
    mailbox: Arc<dyn Mailbox>,
    sets: HashSet<Key>,
}

impl Inbox {
    /// Makes an observer known. Its number is drawn.
    pub(crate) fn open(&self, mailbox: Arc<dyn Mailbox>) -> u64 {
        let id = world::random_bits();
        let observer = Observer { mailbox, sets: HashSet::new() };
        self.0.lock().observers.insert(id, observer);
        id
    }

    /// The observer is gone: the silos that have it hear of it.
    pub(crate) fn close(&self, hub: &Hub, id: u64) {
        let mut entries = self.0.lock();
        let Some(observer) = entries.observers.remove(&id) else { return };
        for key in &observer.sets {
            entries.leave(key, id);
        }
        drop(entries);
        let mut out = Outbox::default();
        for (silo, link, set) in observer.sets {
            match link {
                None => hub.links.forget_own(silo, set, id),
                Some((_, here)) => out.put(here, silo, Part::Forget(set, id)),
            }
        }
        hub.post(out);
    }

    /// Something on a link, or of a grain in this process. Returns what the other end shall forget:
    /// a reference to an observer is data, and may name one that is gone, or never was.
    pub(crate) fn take(
        &self,
        from: Place,
        link: Option<LinkHere>,
        item: Item,
    ) -> Option<(SetId, u64)> {
        match item {
            Item::Added(set, id) => {
                let key = (from, link, set);
                let mut entries = self.0.lock();
                let Some(observer) = entries.observers.get_mut(&id) else {
                    return Some((set, id));
                };
                observer.sets.insert(key);
                let mailbox = observer.mailbox.clone();
                entries.sets.entry(key).or_default().insert(id);
                drop(entries);
                mailbox.added();
            }
            Item::Removed(set, id) => self.lose(&(from, link, set), Some(id), false),
            Item::Ended(set) => self.lose(&(from, link, set), None, true),
            Item::Gap(set, events) => {
                self.mailboxes(&(from, link, set)).iter().for_each(|mailbox| mailbox.miss(events));
            }
            Item::Tell(set, event) => {
                let mut decoded = None;
                for mailbox in self.mailboxes(&(from, link, set)) {
                    mailbox.take_encoded(&event, &mut decoded);
                }
            }
        }
        None
    }

    /// An event of a grain in this process.
    pub(crate) fn take_local(&self, here: Place, set: SetId, event: &(dyn Any + Send + Sync)) {
        for mailbox in self.mailboxes(&(here, None, set)) {
            mailbox.take(event);
        }
    }

    fn mailboxes(&self, key: &Key) -> Vec<Arc<dyn Mailbox>> {
        let entries = self.0.lock();
        let Some(ids) = entries.sets.get(key) else { return Vec::new() };
        ids.iter().filter_map(|id| Some(entries.observers.get(id)?.mailbox.clone())).collect()
    }

    /// A set no longer has an observer, or any.
    fn lose(&self, key: &Key, only: Option<u64>, is_kept: bool) {
        let mut entries = self.0.lock();
        let ids: Vec<u64> = match only {
            Some(id) => vec![id],
            None => entries.sets.get(key).into_iter().flatten().copied().collect(),
        };
        let mut lost = Vec::new();
        for id in ids {
            entries.leave(key, id);
            // Taken out of one set of several, it stays in the others.
            if let Some(observer) = entries.observers.get_mut(&id)
                && observer.sets.remove(key)
                && (is_kept || observer.sets.is_empty())
            {
                lost.push(observer.mailbox.clone());
            }
        }
        drop(entries);
        lost.iter().for_each(|mailbox| mailbox.lost(is_kept));
    }

    /// A silo begins a link to this process.
    pub(super) fn begin(hub: &Hub, me: &Weak<Hub>, from: Place, here: Place, stream: StreamId) {
        let is_wanted = from.client.is_none() && hub.has_room_for(from);
        if !is_wanted || hub.inbox.0.lock().observers.is_empty() {
            return;
        }
        let machine = Reader::arrived(hub.now(), stream, config(hub));
        let end = ReadEnd::begin(hub, (Some(from), stream), here, machine);
        end.greet(hub);
        let me = me.clone();
        world::spawn(async move {
            loop {
                let next = poll_fn(|cx| end.poll_next(cx)).await;
                let Some(hub) = me.upgrade() else { return };
                match next {
                    Next::Values(block) => {
                        hub.inbox.take_all(&hub, from, (stream, here), &block.bytes);
                        end.taken(&hub, block.count.into(), block.bytes.len() as u64);
                    }
                    Next::End(_) => return hub.inbox.link_over(from, (stream, here)),
                }
            }
        });
    }

    fn take_all(&self, hub: &Hub, from: Place, link: LinkHere, mut values: &[u8]) {
        let mut out = Outbox::default();
        while let Some((value, rest)) = split_value(values) {
            values = rest;
            match codec::decode::<Item>(value) {
                Ok(item) => {
                    if let Some((set, id)) = self.take(from, Some(link), item) {
                        out.put(link.1, from, Part::Forget(set, id));
                    }
                }
                Err(error) => warn_seldom!(%error, "an unreadable message to observers"),
            }
        }
        hub.post(out);
    }

    /// A link is over: its sets are lost.
    fn link_over(&self, from: Place, over: LinkHere) {
        let keys: Vec<Key> = {
            let entries = self.0.lock();
            let of_link = |(place, link, _): &&Key| (*place, *link) == (from, Some(over));
            entries.sets.keys().filter(of_link).copied().collect()
        };
        for key in keys {
            self.lose(&key, None, true);
        }
    }
}

impl Entries {
    fn leave(&mut self, key: &Key, id: u64) {
        if let Some(ids) = self.sets.get_mut(key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.sets.remove(key);
            }
        }
    }
}

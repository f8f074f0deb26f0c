//! Lifelines: connections that carry nothing, so that the kernel of a process that ends always
//! closes them in good order.

use std::collections::BTreeSet;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;

use super::World;
use super::event::Event;
use crate::net::HostSet;

/// Making one takes this time if nothing is in the way.
const HANDSHAKE: Duration = Duration::from_millis(2);

/// The pause before the next attempt; doubles each time. As in the runtime.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest of them.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl World {
    /// The machine of the process `number` wants lifelines to these silos, and to no others.
    pub(super) fn watch(&mut self, number: u32, silos: &BTreeSet<SiloAddress>) {
        let wanted: HostSet = silos.iter().filter_map(|silo| self.process_of(silo)).collect();
        let process = &mut self.processes[number as usize];
        let before = std::mem::replace(&mut process.watched, wanted.clone());
        process.lifelines =
            process.lifelines.iter().filter(|peer| wanted.contains(*peer)).collect();
        for peer in wanted.iter().filter(|peer| !before.contains(*peer)) {
            let event = Event::Lifeline { process: number, peer, pause: PAUSE_MIN };
            self.queue.push(self.now + HANDSHAKE, event);
        }
    }

    /// The process `number` dials `peer` for a lifeline.
    pub(super) fn lifeline(&mut self, number: u32, peer: u32, pause: Duration) {
        let (watcher, watched) = (&self.processes[number as usize], &self.processes[peer as usize]);
        if !watcher.is_running()
            || !watched.is_running()
            || !watcher.watched.contains(peer)
            || watcher.lifelines.contains(peer)
        {
            return;
        }
        let (from, to) = (watcher.host, watched.host);
        let is_stopped = watcher.io_at(self.now) > self.now
            || watched.io_at(self.now) > self.now
            || self.network.is_cut(from, to, self.now)
            || self.network.is_cut(to, from, self.now)
            || (from != to && self.network.refuses(to));
        if is_stopped {
            let next = (pause * 2).min(PAUSE_MAX);
            let event = Event::Lifeline { process: number, peer, pause: next };
            self.queue.push(self.now + pause, event);
        } else {
            self.processes[number as usize].lifelines.insert(peer);
        }
    }

    /// Something on the way resets every lifeline from and to the process `number`: they are made
    /// again.
    pub(super) fn reset_lifelines(&mut self, number: u32) {
        let own = std::mem::take(&mut self.processes[number as usize].lifelines);
        let mut broken: Vec<(u32, u32)> = own.iter().map(|peer| (number, peer)).collect();
        for (watcher, process) in (0..).zip(&mut self.processes) {
            if process.lifelines.remove(number) {
                broken.push((watcher, number));
            }
        }
        for (process, peer) in broken {
            let event = Event::Lifeline { process, peer, pause: PAUSE_MIN };
            self.queue.push(self.now + PAUSE_MIN, event);
        }
    }

    /// The process `number` is over. Its lifelines end with it, `in_order` unless it said goodbye
    /// or its host is gone. Silos in `told` know it already.
    pub(super) fn end_lifelines(&mut self, number: u32, in_order: bool, told: &HostSet) {
        let process = &mut self.processes[number as usize];
        process.watched = HostSet::default();
        process.lifelines = HostSet::default();
        for watcher in 0..u32::try_from(self.processes.len()).unwrap_or(u32::MAX) {
            let process = &mut self.processes[watcher as usize];
            let had = process.lifelines.remove(number);
            if had && in_order && process.is_running() && !told.contains(watcher) {
                self.sometimes.reach("a lifeline ends in good order where a connection was reset");
                self.notify(watcher, number, ConnectionEvent::Closed);
            }
        }
    }
}

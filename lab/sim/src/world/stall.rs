//! IO that stands still: waiting work, in order, until it runs again.
//!
//! A stall ends with its fault. What waits then continues at once: else a silo would stand still,
//! and be declared dead, when the checks count on a world without faults.

use emmer_membership::{OpId, TableRequest};

use super::World;
use super::event::Event;
use crate::table::Author;
use crate::time::VirtualTime;

impl World {
    /// Time at which `process` can take an input that needs its IO; None when it does not run.
    pub(super) fn receptive_at(&self, process: u32) -> Option<VirtualTime> {
        let process = &self.processes[process as usize];
        process.is_running().then(|| process.io_at(self.now))
    }

    /// Keeps `event` until the IO of the process `number` runs, at `ready` or when the stall ends
    /// before that. What waits keeps its order.
    pub(super) fn wait_for_io(&mut self, number: u32, ready: VirtualTime, event: Event) {
        let waiting = self.waiting.entry(number).or_default();
        if waiting.is_empty() {
            self.queue.push(ready, Event::Resume { process: number });
        }
        waiting.push(event);
    }

    /// Events that waited for the IO of the process `number` continue, or find that they have to
    /// wait again.
    pub(super) fn resume(&mut self, number: u32) {
        for event in self.waiting.remove(&number).unwrap_or_default() {
            self.queue.push(self.now, event);
        }
    }

    /// A request leaves for the store.
    pub(super) fn ask(&mut self, author: Author, op: OpId, request: TableRequest) {
        let Some(ready) = self.receptive_at(author.process) else { return };
        if ready > self.now {
            self.wait_for_io(author.process, ready, Event::Ask { author, op, request });
            return;
        }
        let at = self.now + self.store.travel();
        self.queue.push(at, Event::Request { author, op, request, late: false });
    }
}

//! Reads the memory that the next events will touch, many at a time.
//!
//! In a large cluster each event touches another machine, and the processor waits for its memory:
//! one event after the other, several times each. Here it is read for a handful of events at once,
//! so that the processor waits for all of it together. Nothing is changed by that; a world runs the
//! same without.

use std::hint::black_box;

use super::World;
use super::event::Event;

/// For how many events memory is read at a time.
const EVENTS_AHEAD: usize = 16;

/// Below so many processes everything is at hand anyway.
const PROCESSES_MIN: usize = 256;

impl World {
    /// An event is about to be taken: reads ahead when the last events read for are over.
    pub(super) fn read_ahead(&mut self) {
        if self.read_for > 0 {
            self.read_for -= 1;
            return;
        }
        self.read_for = EVENTS_AHEAD - 1;
        if self.processes.len() >= PROCESSES_MIN {
            black_box(self.read_events());
        }
    }

    /// Three rounds, each of which needs what the one before has read: the events, their processes,
    /// the machines of these.
    fn read_events(&self) -> u64 {
        let mut pairs = [(0, 0); EVENTS_AHEAD];
        for (pair, event) in pairs.iter_mut().zip(self.queue.ahead()) {
            *pair = match event {
                Event::Deliver { from, to, .. } => (*to, *from),
                Event::Timer { process } => (*process, *process),
                _ => continue,
            };
        }
        let processes =
            |(to, from): (u32, u32)| (&self.processes[to as usize], &self.processes[from as usize]);
        let mut read = 0u64;
        for pair in pairs {
            let (to, from) = processes(pair);
            read = read.wrapping_add(to.read_ahead()).wrapping_add(from.read_ahead());
        }
        for pair in pairs {
            let (to, from) = processes(pair);
            let sets = [to.connections.contains(pair.1), to.answered.contains(pair.1)];
            read = read.wrapping_add(u64::from(sets[0]) + u64::from(sets[1]));
            read = read.wrapping_add(u64::from(self.hosts.is_up(from.host)));
            if let Some(machine) = &to.machine {
                read = read.wrapping_add(machine.read_ahead());
            }
        }
        read
    }
}

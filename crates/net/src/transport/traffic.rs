//! The traffic over the connections of a silo or a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Connection;
use super::pool::Pool;

/// The counts of connections that are gone.
#[derive(Debug, Default)]
pub struct Gone {
    messages_sent: AtomicU64,
    messages_received: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    one_ways_lost: AtomicU64,
}

impl Gone {
    /// A connection with these counts is gone.
    pub(super) fn add(&self, traffic: &Traffic) {
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.messages_sent, traffic.messages_sent);
        add(&self.messages_received, traffic.messages_received);
        add(&self.bytes_sent, traffic.bytes_sent);
        add(&self.bytes_received, traffic.bytes_received);
        add(&self.one_ways_lost, traffic.one_ways_lost);
    }
}

/// The counts since the start, and the connections now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames: of calls, answers, and what runtimes say to each other.
    pub messages_sent: u64,
    /// Messages that were received.
    pub messages_received: u64,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Bytes that were received.
    pub bytes_received: u64,
    /// One-way calls that the peer had perhaps not read when their connection broke.
    pub one_ways_lost: u64,
    /// Messages that wait to be written to connections.
    pub messages_waiting: u64,
    /// Bytes that wait to be sent.
    pub bytes_waiting: u64,
    /// Open connections to and from silos.
    pub silos: u64,
    /// Open connections of clients.
    pub clients: u64,
}

impl Traffic {
    /// The traffic of these connections and of those that are gone.
    pub fn of(open: &[Arc<Connection>], gone: &Gone) -> Self {
        // First the open ones: one that goes meanwhile counts twice for a moment, not never.
        let mut all = Self::default();
        for connection in open {
            let one = connection.traffic();
            all.messages_sent += one.messages_sent;
            all.messages_received += one.messages_received;
            all.bytes_sent += one.bytes_sent;
            all.bytes_received += one.bytes_received;
            all.one_ways_lost += one.one_ways_lost;
            all.messages_waiting += one.messages_waiting;
            all.bytes_waiting += one.bytes_waiting;
            all.silos += one.silos;
            all.clients += one.clients;
        }
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        all.messages_sent += get(&gone.messages_sent);
        all.messages_received += get(&gone.messages_received);
        all.bytes_sent += get(&gone.bytes_sent);
        all.bytes_received += get(&gone.bytes_received);
        all.one_ways_lost += get(&gone.one_ways_lost);
        all
    }
}

impl Pool {
    /// The traffic of all connections.
    pub fn traffic(&self) -> Traffic {
        Traffic::of(&self.open(), &self.greeting().gone)
    }
}

//! Large answers that are being written to clients, and which client has read nothing for longest.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Connection, FREE_BYTES, HeldBytes};
use crate::transport::Lost;

/// All of them on one silo.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    /// Connections and their bytes, by the moment at which the peer read last.
    by_read: BTreeMap<u64, (Weak<Connection>, usize)>,
    /// The number of the next moment.
    next: u64,
    /// Bytes of connections that are ending for what they hold.
    leaving: usize,
}

impl Answers {
    /// Notes that the peer has read, or begins to.
    fn insert(&mut self, connection: Weak<Connection>, bytes: usize) -> u64 {
        let moment = self.next;
        self.next += 1;
        self.by_read.insert(moment, (connection, bytes));
        moment
    }
}

/// A large answer that is being written: counted until it is dropped.
pub(in crate::transport) struct Written {
    held: Arc<HeldBytes>,
    connection: Arc<Connection>,
    bytes: usize,
    moment: u64,
}

impl Written {
    /// Counts what a driver has taken to write; none of a silo's, and of few bytes.
    pub(in crate::transport) fn begin(connection: &Arc<Connection>, bytes: usize) -> Option<Self> {
        let held = connection.held.as_ref().filter(|_| bytes > FREE_BYTES)?.clone();
        held.queued.fetch_add(bytes, Ordering::Relaxed);
        connection.holds.writing.store(bytes, Ordering::Relaxed);
        let moment = held.unread.0.lock().insert(Arc::downgrade(connection), bytes);
        Some(Self { held, connection: connection.clone(), bytes, moment })
    }

    /// The peer has read some of it.
    pub(in crate::transport) fn moves(&mut self) {
        let mut answers = self.held.unread.0.lock();
        if let Some((connection, bytes)) = answers.by_read.remove(&self.moment) {
            self.moment = answers.insert(connection, bytes);
        }
    }

    /// Ends the connections whose peers have read nothing for longest, while clients hold more than
    /// their limit. Takes the locks of connections.
    pub(in crate::transport) fn make_room(&self) {
        let mut slow = Vec::new();
        {
            let mut answers = self.held.unread.0.lock();
            let queued = self.held.queued.load(Ordering::Relaxed);
            let mut over = queued.saturating_sub(self.held.unread_max() + answers.leaving);
            while over > 0
                && let Some((moment, (connection, bytes))) = answers.by_read.pop_first()
            {
                if moment == self.moment {
                    // An answer that is larger than all that may wait is written all the same.
                    answers.by_read.insert(moment, (connection, bytes));
                    break;
                }
                answers.leaving += bytes;
                over = over.saturating_sub(bytes);
                slow.push(connection);
            }
        }
        for connection in slow.iter().filter_map(Weak::upgrade) {
            let why = "the client reads too slowly, and clients have too much to read";
            connection.reset(Lost::Broken(why.to_owned()));
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let mut answers = self.held.unread.0.lock();
        if answers.by_read.remove(&self.moment).is_none() {
            answers.leaving -= self.bytes;
        }
        drop(answers);
        self.connection.holds.writing.store(0, Ordering::Relaxed);
        self.held.queued.fetch_sub(self.bytes, Ordering::Relaxed);
        self.connection.note_room();
    }
}

//! Large answers that are being written to clients, and which client has read nothing for longest.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Account, FREE_BYTES, HeldBytes};
use crate::Lost;

/// A connection that can be ended for the sake of others.
pub trait Cut: Send + Sync {
    /// Ends the connection at once.
    fn cut(&self, why: Lost);
}

/// All of them on one silo.
#[derive(Default)]
pub(super) struct Unread(Mutex<Answers>);

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unread").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Answers {
    /// Connections and their bytes, by the moment at which the peer read last.
    by_read: BTreeMap<u64, (Weak<dyn Cut>, usize)>,
    /// The number of the next moment.
    next: u64,
    /// Bytes of connections that are ending for what they hold.
    leaving: usize,
}

impl Answers {
    /// Notes that the peer has read, or begins to.
    fn insert(&mut self, connection: Weak<dyn Cut>, bytes: usize) -> u64 {
        let moment = self.next;
        self.next += 1;
        self.by_read.insert(moment, (connection, bytes));
        moment
    }
}

/// A large answer that is being written: counted until this is dropped.
pub struct Written {
    held: Arc<HeldBytes>,
    account: Arc<Account>,
    bytes: usize,
    moment: u64,
}

impl Written {
    /// Counts what a writer has taken; none of a silo's, and of few bytes. `connection` is ended if
    /// clients hold too much and this one has read nothing for longest.
    pub fn begin(
        account: &Arc<Account>,
        bytes: usize,
        connection: impl FnOnce() -> Weak<dyn Cut>,
    ) -> Option<Self> {
        let held = account.held.as_ref().filter(|_| bytes > FREE_BYTES)?.clone();
        held.queued.fetch_add(bytes, Ordering::Relaxed);
        account.writing.store(bytes, Ordering::Relaxed);
        let moment = held.unread.0.lock().insert(connection(), bytes);
        Some(Self { held, account: account.clone(), bytes, moment })
    }

    /// The peer has read some of it.
    pub fn moves(&mut self) {
        let mut answers = self.held.unread.0.lock();
        if let Some((connection, bytes)) = answers.by_read.remove(&self.moment) {
            self.moment = answers.insert(connection, bytes);
        }
    }

    /// Ends the connections whose peers have read nothing for longest, while clients hold more than
    /// their limit. Takes the locks of connections.
    pub fn make_room(&self) {
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
            connection.cut(Lost::Broken(why.to_owned()));
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
        self.account.writing.store(0, Ordering::Relaxed);
        self.held.queued.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

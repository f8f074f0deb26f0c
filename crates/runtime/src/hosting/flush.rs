//! Questions of other silos for their calls to a grain that was here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::SiloAddress;
use tokio::time::timeout;

use super::activation::Life;
use super::departures::Door;
use super::{Activation, Closed, Host};
use crate::cluster::moves::Flush;

/// The longest wait of a question for the calls before it.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Number of questions that wait at once; one more is not answered.
const FLUSHES_MAX: usize = 16_384;

impl Door for Arc<Activation> {
    fn is_waited_for(&self) -> bool {
        self.gate.line().waiting() > 0
    }
}

impl Host {
    /// The silo `from` passes on another silo's question for its calls to a grain. The question
    /// follows the grain behind those calls.
    pub(crate) fn flush(self: &Arc<Self>, from: SiloAddress, mut flush: Flush) {
        let left = self.departures.door(&flush.grain, Some(from)).map(|(door, _)| door);
        let here = self.catalog.get(&flush.grain);
        // One that has no registration yet may be told that the grain is elsewhere.
        let unsure = here.as_ref().map(|here| here.activation());
        let unsure = unsure.filter(|here| !here.is_registered()).cloned();
        let door = left.or(unsure);
        let Some(door) = door.filter(|_| flush.passes > 0) else {
            return self.answer_flush(&flush, here.is_some());
        };
        let Some(room) = Flushing::begin(self) else { return };
        flush.passes -= 1;
        let host = self.clone();
        self.spawner.spawn(async move {
            let _room = room;
            let Ok(after_all) = timeout(FLUSH_MAX, door.lock_exclusive()).await else { return };
            match &after_all.life {
                Life::Gone(why) => match &**why {
                    Closed::Elsewhere(to) => host.moves.pass(to.silo, flush),
                    Closed::Gone | Closed::Failed(_) => host.answer_flush(&flush, false),
                },
                Life::New | Life::Active | Life::Closing => host.answer_flush(&flush, true),
            }
        });
    }

    fn answer_flush(&self, flush: &Flush, here: bool) {
        if flush.asker == self.address {
            self.moves.flushed(flush.id, here.then_some(self.address));
        } else {
            self.moves.tell_flushed(flush, here);
        }
    }
}

/// Room for a question that waits.
struct Flushing(Arc<Host>);

impl Flushing {
    fn begin(host: &Arc<Host>) -> Option<Self> {
        let waiting = host.flushes.fetch_add(1, Ordering::Relaxed);
        let room = Self(host.clone());
        (waiting < FLUSHES_MAX).then_some(room)
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.0.flushes.fetch_sub(1, Ordering::Relaxed);
    }
}

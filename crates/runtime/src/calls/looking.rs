//! The look of a silo at the calls that wait in a circle.

use std::collections::BTreeMap;

use emmer_net::clock::CoarseInstant;
use emmer_wire::channel;

use super::Calls;
use crate::waits::{Chase, REACHED_MAX};

impl Calls {
    /// A tick of the clock for the calls that wait in a circle.
    pub(crate) fn look_at_waits(&self, now: CoarseInstant) {
        let gates = || self.host.queues.lock().clone();
        let tell = |to, message: &_| self.cluster.peers.post(to, channel::WAITS, message);
        let chases = self.waits.look(self.address, now, gates, tell);
        self.send_on(&chases);
    }

    /// Asks every silo that has a call of one of the turns reached. On the connection that has the
    /// call: should the call be given up, the silo hears of it before it hears of this.
    fn send_on(&self, chases: &[Chase]) {
        if chases.is_empty() {
            return;
        }
        let mut by_turn: BTreeMap<u64, Vec<&Chase>> = BTreeMap::new();
        for chase in chases {
            if let Some(turn) = chase.turn() {
                by_turn.entry(turn).or_default().push(chase);
            }
        }
        for connection in self
            .cluster
            .peers
            .pool
            .open()
            .into_iter()
            .filter(|connection| connection.silo().is_some())
        {
            let mut callers = connection.callers(|turn| by_turn.contains_key(&turn));
            callers.sort_unstable();
            callers.dedup();
            for chase in
                callers.iter().take(REACHED_MAX).filter_map(|turn| by_turn.get(turn)).flatten()
            {
                if let Err(error) = connection.system(channel::WAITS, &chase.probe()) {
                    tracing::debug!(?error, "a question about waiting calls was not sent");
                }
            }
        }
    }
}

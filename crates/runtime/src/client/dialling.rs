//! Dialling gateways: side by side, those that are likely alive first.
//!
//! A gateway whose machine is gone answers nothing, and costs a dial's whole time. So no dial waits
//! for another one longer than a moment, and the list is read again while dials are under way.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_core::rng::SeededRng;
use emmer_wire::GoodbyeCode;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::gateways::ClientCore;
use super::listing::Listed;
use crate::net::dial;
use crate::world;

/// The next gateway is dialled when this time has passed without an answer of the last one.
const NEXT_AFTER: Duration = Duration::from_millis(50);

/// The most dials of a client that are under way at once.
const DIALS_MAX: usize = 64;

/// With one gateway connected, the others have this time to answer before a client counts as
/// connected.
const GRACE: Duration = Duration::from_millis(100);

/// While dials are under way and nothing is connected, the list is read again after this time.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Silos touch their rows in half a minute at the longest. A row that is older than the newest one
/// by more than this is likely that of a silo which is gone.
const FRESH: Duration = Duration::from_secs(90);

/// The dials of a client.
#[derive(Debug, Default)]
pub(super) struct Dials {
    under_way: HashSet<SocketAddr>,
    /// The reason why the last one failed.
    failed: Option<String>,
}

/// What a client waits for after it has begun to dial.
pub(super) enum Settled {
    /// A gateway is connected.
    Connected,
    /// No dial is under way any more, and nothing is connected; the reason of the last.
    Failed(Option<String>),
    /// Dials are still under way: the list may name others by now.
    ReadAgain,
}

impl ClientCore {
    /// Dials those of `listed` that are neither connected nor being dialled, as long as more
    /// gateways are wanted.
    pub(super) fn dial_others(self: &Arc<Self>, mut listed: Vec<Listed>) {
        if !self.wants_more() {
            return;
        }
        SeededRng::new(world::random_bits()).shuffle(&mut listed);
        freshest_first(&mut listed);
        let chosen: Vec<_> = {
            let mut dials = self.dials.lock();
            let room = DIALS_MAX.saturating_sub(dials.under_way.len());
            let fresh = listed.into_iter().filter(|one| !self.has(one));
            fresh.filter(|one| dials.under_way.insert(one.endpoint)).take(room).collect()
        };
        if !chosen.is_empty() {
            world::spawn(self.clone().dial_all(chosen));
        }
    }

    async fn dial_all(self: Arc<Self>, chosen: Vec<Listed>) {
        let begun =
            Begun { core: &self, endpoints: chosen.iter().map(|one| one.endpoint).collect() };
        let mut rest = chosen.into_iter();
        let mut under_way = FuturesUnordered::new();
        while self.wants_more() {
            let next = rest.next();
            let is_last = next.is_none();
            under_way.extend(next.map(|one| self.dial_one(one)));
            if under_way.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = self.closed.cancelled() => break,
                _ = under_way.next() => {}
                () = tokio::time::sleep(NEXT_AFTER), if !is_last => {}
            }
        }
        drop(under_way);
        drop(begun);
        self.note_change();
    }

    async fn dial_one(self: &Arc<Self>, Listed { endpoint, silo, .. }: Listed) {
        match dial(endpoint, silo, &self.greeting).await {
            // A list may name a gateway twice.
            Ok((connection, silo, _)) if self.connected().contains(&silo) => {
                connection.goodbye(GoodbyeCode::Idle, "this gateway is connected already");
            }
            Ok((connection, silo, input)) => {
                self.take_in(silo, endpoint, Arc::new(connection), input);
            }
            Err(error) => self.dials.lock().failed = Some(error.to_string()),
        }
        // Not before: the client is either connected or dialling until the last dial has failed.
        self.dials.lock().under_way.remove(&endpoint);
        self.note_change();
    }

    /// Waits for what the dials under way come to.
    pub(super) async fn settled(&self) -> Settled {
        let connected = async {
            self.changed
                .until(|_| (self.is_connected() || !self.is_dialling()).then_some(()))
                .await;
            if self.is_connected() {
                let all = self.changed.until(|_| (!self.is_dialling()).then_some(()));
                let _ = tokio::time::timeout(GRACE, all).await;
            }
        };
        let in_time = tokio::time::timeout(READ_AGAIN, connected).await.is_ok();
        if self.is_connected() {
            Settled::Connected
        } else if in_time {
            Settled::Failed(self.dials.lock().failed.take())
        } else {
            Settled::ReadAgain
        }
    }

    pub(super) fn is_dialling(&self) -> bool {
        !self.dials.lock().under_way.is_empty()
    }
}

/// The dials that a task has begun: they have ended when it has, in whatever way.
struct Begun<'a> {
    core: &'a ClientCore,
    endpoints: Vec<SocketAddr>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut dials = self.core.dials.lock();
        self.endpoints.iter().for_each(|endpoint| {
            dials.under_way.remove(endpoint);
        });
    }
}

/// Puts those whose silos have lately said that they are alive in front, in the order in which they
/// are, and behind them the others, the freshest first. The times are compared with each other and
/// not with this host's clock.
fn freshest_first(listed: &mut [Listed]) {
    let newest = listed.iter().filter_map(|one| one.alive).max();
    let Some(newest) = newest else { return };
    let age = |one: &Listed| {
        let age = newest.saturating_since(one.alive.unwrap_or(Timestamp::from_millis(0)));
        if age <= FRESH { Duration::ZERO } else { age }
    };
    listed.sort_by_key(age);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_likely_alive_come_first() {
        let at = |seconds: i64| Timestamp::from_millis(1_000_000 + seconds * 1_000);
        let listed = |port: u16, alive| Listed {
            endpoint: SocketAddr::from(([127, 0, 0, 1], port)),
            silo: None,
            alive: Some(at(alive)),
        };
        let mut all =
            vec![listed(1, -10_000), listed(2, -80), listed(3, -91), listed(4, 0), listed(5, -100)];
        freshest_first(&mut all);
        let ports: Vec<_> = all.iter().map(|one| one.endpoint.port()).collect();
        assert_eq!(ports, [2, 4, 3, 5, 1]);
    }
}

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
use emmer_net::transport::dial;
use emmer_net::world;
use emmer_wire::GoodbyeCode;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::core::ClientCore;
use super::listing::Listed;

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

/// The end of the wait of a client that has begun to dial.
pub(crate) enum Settled {
    /// A gateway is connected.
    Connected,
    /// No dial is under way, and nothing is connected; the reason of the last.
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
        let fresh = listed.into_iter().filter(|one| !self.has(one));
        let chosen: Vec<_> =
            fresh.filter_map(|one| Some((one, self.begin(one.endpoint)?))).collect();
        if !chosen.is_empty() {
            world::spawn(self.clone().dial_all(chosen));
        }
    }

    /// A dial of this gateway. None if one is under way, or the limit of dials is reached.
    fn begin(self: &Arc<Self>, endpoint: SocketAddr) -> Option<UnderWay> {
        let mut dials = self.dials.lock();
        let has_room = dials.under_way.len() < DIALS_MAX;
        let begins = has_room && dials.under_way.insert(endpoint);
        begins.then(|| UnderWay { core: self.clone(), endpoint })
    }

    async fn dial_all(self: Arc<Self>, chosen: Vec<(Listed, UnderWay)>) {
        let mut rest = chosen.into_iter();
        let mut under_way = FuturesUnordered::new();
        while self.wants_more() {
            let next = rest.next();
            let is_last = next.is_none();
            under_way.extend(next.map(|(one, dial)| self.dial_one(one, dial)));
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
    }

    /// Until the last dial has failed the client is either connected or dialling: `_under_way` ends
    /// after all else here.
    async fn dial_one(
        self: &Arc<Self>,
        Listed { endpoint, silo, .. }: Listed,
        _under_way: UnderWay,
    ) {
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
    }

    /// Waits for what the dials under way come to.
    pub(crate) async fn settled(&self) -> Settled {
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

    pub(crate) fn is_dialling(&self) -> bool {
        !self.dials.lock().under_way.is_empty()
    }
}

/// A dial that is under way, or waits for its turn. It has ended when this is dropped.
struct UnderWay {
    core: Arc<ClientCore>,
    endpoint: SocketAddr,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.core.dials.lock().under_way.remove(&self.endpoint);
        self.core.note_change();
    }
}

/// Sorts gateways whose silos were alive lately to the front, in their given order, and the others
/// behind them, the freshest first. It compares the times with each other, not with this host's
/// clock.
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
    use super::super::listing::Listing;
    use super::*;
    use crate::filters::Filters;
    use crate::options::ClientOptions;
    use emmer_net::transport::Security;

    /// The gateways `from..to`, where nothing listens.
    fn nobody(from: u8, to: u8) -> Vec<Listed> {
        let endpoint = |host| SocketAddr::from(([127, 0, 1, host], 9));
        (from..to)
            .map(|host| Listed { endpoint: endpoint(host), silo: None, alive: None })
            .collect()
    }

    #[tokio::test]
    async fn no_more_gateways_are_dialled_at_once_than_may_be() {
        let listing = Listing::of(vec!["127.0.1.1:9".to_owned()]).unwrap();
        let core = Arc::new(ClientCore::new(
            ClientOptions::default(),
            Filters::default(),
            listing,
            Security::default(),
            None,
        ));
        core.dial_others(nobody(0, 40));
        assert_eq!(core.dials.lock().under_way.len(), 40);
        // Gateways that are being dialled are not dialled twice. Of the others as many are dialled
        // as there is room for.
        core.dial_others(nobody(0, 200));
        assert_eq!(core.dials.lock().under_way.len(), DIALS_MAX);
        core.changed.until(|_| (!core.is_dialling()).then_some(())).await;
        assert!(matches!(core.settled().await, Settled::Failed(Some(_))));
        core.close();
    }

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

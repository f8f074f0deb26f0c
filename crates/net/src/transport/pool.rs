//! The connections of one silo or client, by peer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_link::Place;
use emmer_wire::{GoodbyeCode, PeerKind};
use parking_lot::{Mutex, RwLock};

use super::driver::{Handler, drive};
use super::handshake::{DialError, Greeting, dial};
use super::{Connection, Lost};
use crate::warn_seldom;
use crate::world::{self, Watched};

/// Dials under way at once; one more is refused.
const DIALS_MAX: usize = 1024;

/// Time for which a silo that is dead in the view still gets messages: the answers to its
/// questions, and the view itself.
const FAREWELL: Duration = Duration::from_secs(2);

/// A connection is kept for this time after another one has taken its place: calls that wait on it
/// may still be answered.
const RETIRED: Duration = Duration::from_secs(60);

/// Maximum such connections to one silo. A silo whose answers come late now and then must not use
/// up the room that its peer has for this silo's connections.
const RETIRED_MAX: usize = 4;

/// Longest time to write the goodbye that follows.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Number of silos with other options that are remembered, and warned of.
const STRANGERS_MAX: usize = 1024;

/// End of a dial, for all that wait for it.
type Dialed = Option<Result<Arc<Connection>, DialError>>;

/// Driver of the connections that are dialled: a [`Handler`] whose type the pool need not know.
trait Drives: Send + Sync {
    /// Drives `connection` until it ends.
    fn drive(
        self: Arc<Self>,
        connection: Arc<Connection>,
        input: BytesMut,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl<H: Handler> Drives for H {
    fn drive(
        self: Arc<Self>,
        connection: Arc<Connection>,
        input: BytesMut,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(drive(connection, self, input))
    }
}

/// Tells all waiting callers how a dial ended. If it is dropped before, they hear that the dial was
/// given up.
struct Tell(Arc<Watched<Dialed>>, SiloAddress);

impl Drop for Tell {
    fn drop(&mut self) {
        let given_up = || Err(DialError::Broken(self.1.endpoint(), "the process ends".to_owned()));
        if self.0.borrow().is_none() {
            self.0.set(Some(given_up()));
        }
    }
}

/// The connections, and who must not be connected to.
pub struct Pool {
    greeting: Greeting,
    /// Weak: it holds the pool.
    handler: OnceLock<Weak<dyn Drives>>,
    silos: RwLock<HashMap<SiloAddress, Arc<Connection>>>,
    /// The newest connection of each client, by the number that the client has drawn.
    clients: RwLock<HashMap<u64, Arc<Connection>>>,
    /// Every open connection, clients' included; ended ones are swept out.
    all: Mutex<Vec<Weak<Connection>>>,
    /// Dials under way, each in a task of its own, because a caller that asked for one may give it
    /// up.
    dialing: Mutex<HashMap<SiloAddress, Arc<Watched<Dialed>>>>,
    /// Silos the membership view calls Dead.
    dead: RwLock<HashSet<SiloAddress>>,
    /// Connections over which some of them are still told of their death.
    farewells: Mutex<HashMap<SiloAddress, Arc<Connection>>>,
    /// Silos whose options differ from this one's.
    strangers: Mutex<BTreeSet<SiloAddress>>,
    /// Calls of others are no longer served, on any connection.
    draining: AtomicBool,
}

impl Pool {
    /// An empty pool whose connections use this handshake.
    pub fn new(greeting: Greeting) -> Self {
        Self {
            greeting,
            handler: OnceLock::new(),
            silos: RwLock::default(),
            clients: RwLock::default(),
            all: Mutex::default(),
            dialing: Mutex::default(),
            dead: RwLock::default(),
            farewells: Mutex::default(),
            strangers: Mutex::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// Sets the handler of dialled connections, once; nothing is dialled before. It must live as
    /// long as the pool is used.
    pub fn handled_by<H: Handler>(&self, handler: &Arc<H>) {
        let handler: Weak<H> = Arc::downgrade(handler);
        let first = self.handler.set(handler).is_ok();
        debug_assert!(first, "a pool has one handler");
    }

    /// Handshake of this side.
    pub const fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The open connection to `silo`, if there is one.
    pub fn get(&self, silo: SiloAddress) -> Option<Arc<Connection>> {
        self.silos.read().get(&silo).cloned()
    }

    /// The newest connection of the client that has drawn this number.
    pub fn client(&self, number: u64) -> Option<Arc<Connection>> {
        self.clients.read().get(&number).cloned()
    }

    /// Returns true if the membership view calls `silo` Dead.
    pub fn is_dead(&self, silo: SiloAddress) -> bool {
        self.dead.read().contains(&silo)
    }

    /// Returns true if a silo that is dead in the view is still talked to.
    pub(crate) fn has_farewell(&self, silo: SiloAddress) -> bool {
        self.farewells.lock().contains_key(&silo)
    }

    /// The open connection for what the runtime itself says to `silo`, dead or alive.
    pub fn get_for_runtime(&self, silo: SiloAddress) -> Option<Arc<Connection>> {
        self.get(silo).or_else(|| self.farewells.lock().get(&silo).cloned())
    }

    /// The connection to `silo`, made if there is none; concurrent callers share one dial.
    pub async fn connect(
        self: &Arc<Self>,
        silo: SiloAddress,
    ) -> Result<Arc<Connection>, DialError> {
        if let Some(connection) = self.get(silo) {
            return Ok(connection);
        }
        if self.is_dead(silo) {
            return Err(DialError::Dead(silo));
        }
        let connection = self.connect_for_runtime(silo).await?;
        if connection.is_parting() { Err(DialError::Dead(silo)) } else { Ok(connection) }
    }

    /// As [`connect`](Self::connect), for what the runtime itself says to `silo`, dead or alive.
    pub async fn connect_for_runtime(
        self: &Arc<Self>,
        silo: SiloAddress,
    ) -> Result<Arc<Connection>, DialError> {
        if let Some(connection) = self.get_for_runtime(silo) {
            return Ok(connection);
        }
        let dialed = {
            let mut dialing = self.dialing.lock();
            match dialing.get(&silo) {
                Some(under_way) => under_way.clone(),
                None if dialing.len() >= DIALS_MAX => return Err(DialError::TooMany),
                None => {
                    let dialed = Arc::new(Watched::new(None));
                    dialing.insert(silo, dialed.clone());
                    let tell = Tell(dialed.clone(), silo);
                    world::spawn(self.clone().dial_apart(silo, tell));
                    dialed
                }
            }
        };
        dialed.until(Clone::clone).await
    }

    /// Dials, and tells every caller that still waits for it.
    async fn dial_apart(self: Arc<Self>, silo: SiloAddress, tell: Tell) {
        let result = match self.get_for_runtime(silo) {
            Some(connection) => Ok(connection),
            None => self.dial_now(silo).await,
        };
        self.dialing.lock().remove(&silo);
        tell.0.set(Some(result));
    }

    /// Number of dials under way.
    #[cfg(test)]
    pub(super) fn dialing(&self) -> usize {
        self.dialing.lock().len()
    }

    async fn dial_now(self: &Arc<Self>, silo: SiloAddress) -> Result<Arc<Connection>, DialError> {
        let Some(handler) = self.handler.get().and_then(Weak::upgrade) else {
            return Err(DialError::Broken(silo.endpoint(), "this silo has ended".to_owned()));
        };
        let (connection, _, input) = dial(silo.endpoint(), Some(silo), &self.greeting).await?;
        let connection = Arc::new(connection);
        self.adopt(&connection);
        let (pool, driven) = (self.clone(), connection.clone());
        world::spawn(async move {
            handler.drive(driven.clone(), input).await;
            pool.forget(&driven);
        });
        Ok(connection)
    }

    /// Takes in a connection that was accepted, and drives it until it ends.
    pub(super) async fn drive_accepted(
        self: Arc<Self>,
        connection: Arc<Connection>,
        input: BytesMut,
    ) {
        let Some(handler) = self.handler.get().and_then(Weak::upgrade) else { return };
        self.adopt(&connection);
        handler.drive(connection.clone(), input).await;
        self.forget(&connection);
    }

    /// Takes in a connection that was made or accepted. The first one to a silo carries the calls
    /// to it.
    pub fn adopt(self: &Arc<Self>, connection: &Arc<Connection>) {
        {
            let mut all = self.all.lock();
            if all.len() == all.capacity() {
                all.retain(|c| c.strong_count() > 0);
            }
            all.push(Arc::downgrade(connection));
        }
        // After it is in the list: a pool that stops now finds it there.
        if self.draining.load(Ordering::SeqCst) {
            connection.stop_serving();
        }
        if let PeerKind::Client(number) = connection.peer {
            self.clients.write().insert(number, connection.clone());
        }
        if let Some(silo) = connection.silo() {
            self.silos.write().entry(silo).or_insert_with(|| connection.clone());
            self.compare_options(silo, connection.peer_options);
            // After it is in both lists: a view that comes now finds it there.
            if self.is_dead(silo) {
                self.part(silo, connection);
            }
        }
    }

    /// Dials `silo` although there is a connection to it, and replaces that one on both sides.
    /// Calls that wait on the old one may still be answered.
    pub async fn renew(self: &Arc<Self>, silo: SiloAddress) -> Result<(), DialError> {
        if self.is_dead(silo) {
            return Err(DialError::Dead(silo));
        }
        let retired = |c: &Arc<Connection>| c.silo() == Some(silo) && c.is_retired();
        if self.open().iter().filter(|c| retired(c)).count() >= RETIRED_MAX {
            return Err(DialError::TooMany);
        }
        let before = self.get(silo);
        let fresh = self.dial_now(silo).await?;
        let same = |now: &Arc<Connection>| {
            Arc::ptr_eq(now, &fresh) || before.as_ref().is_some_and(|b| Arc::ptr_eq(now, b))
        };
        if self.get(silo).is_some_and(|now| !same(&now)) {
            // The peer was faster, and its connection has replaced the earlier one.
            Self::retire(&fresh);
            return Ok(());
        }
        fresh.propose(before.map(|before| before.rank()).unwrap_or_default(), self.is_lower(silo));
        self.prefer(&fresh);
        Ok(())
    }

    /// The peer has dialled `connection` to replace the earlier one: [`Link::hear_proposal`].
    ///
    /// Returns the silo if this was news: messages on the earlier connection may be lost.
    ///
    /// [`Link::hear_proposal`]: emmer_link::Link::hear_proposal
    pub fn proposed(self: &Arc<Self>, connection: &Arc<Connection>) -> Option<SiloAddress> {
        let silo = connection.silo()?;
        let mine = self.get(silo).filter(|mine| !Arc::ptr_eq(mine, connection));
        match connection.hear_proposal(mine.map(|mine| mine.rank()), self.is_lower(silo))? {
            Place::Yields => Self::retire(connection),
            Place::Takes => self.prefer(connection),
        }
        Some(silo)
    }

    /// Returns true if this silo has a lower address than `silo`.
    fn is_lower(&self, silo: SiloAddress) -> bool {
        matches!(self.greeting.me, PeerKind::Silo(me) if me < silo)
    }

    /// From now on `connection` carries this side's messages to its silo; the earlier one is
    /// retired.
    fn prefer(self: &Arc<Self>, connection: &Arc<Connection>) {
        let Some(silo) = connection.silo().filter(|_| !connection.is_retired()) else { return };
        if connection.is_lost() || connection.is_parting() {
            return;
        }
        let before = self.silos.write().insert(silo, connection.clone());
        // It may have ended in between: it has to be taken out here.
        if connection.is_lost() {
            self.forget(connection);
        }
        let Some(before) = before.filter(|before| !Arc::ptr_eq(before, connection)) else { return };
        warn_seldom!(%silo, "a connection did not answer, and its silo takes new ones: another one \
            takes its place (it was lost on the way, or one of the two silos is busy)");
        Self::retire(&before);
    }

    /// Another connection takes the place of this one. What waits on it may still be answered.
    fn retire(connection: &Arc<Connection>) {
        let connection = connection.clone();
        connection.retire();
        world::spawn(async move {
            tokio::time::sleep(RETIRED).await;
            connection.goodbye(GoodbyeCode::Idle, "another connection has taken its place");
            tokio::time::sleep(LAST_WORD).await;
            connection.reset(Lost::Replaced);
        });
    }

    /// Warns once of a silo whose options differ from this one's.
    fn compare_options(&self, silo: SiloAddress, theirs: u64) {
        let ours = self.greeting.options;
        if theirs == 0 || ours == 0 || theirs == ours {
            return;
        }
        let mut strangers = self.strangers.lock();
        if strangers.len() < STRANGERS_MAX && strangers.insert(silo) {
            warn_seldom!(
                peer = %silo,
                "another silo of the cluster has other options than this one; while they differ, a \
                 grain may run twice and a silo that lives be declared dead (fence, votes, probes, \
                 time limits of the table, points_per_silo)"
            );
        }
    }

    /// Silos whose options differ from this one's.
    #[cfg(test)]
    pub(super) fn strangers(&self) -> Vec<SiloAddress> {
        self.strangers.lock().iter().copied().collect()
    }

    /// Lets an ended connection go.
    pub fn forget(&self, connection: &Arc<Connection>) {
        if let PeerKind::Client(number) = connection.peer {
            let mut clients = self.clients.write();
            if clients.get(&number).is_some_and(|c| Arc::ptr_eq(c, connection)) {
                clients.remove(&number);
            }
        }
        if let Some(silo) = connection.silo() {
            let mut silos = self.silos.write();
            if silos.get(&silo).is_some_and(|c| Arc::ptr_eq(c, connection)) {
                silos.remove(&silo);
            }
            drop(silos);
            let mut farewells = self.farewells.lock();
            if farewells.get(&silo).is_some_and(|c| Arc::ptr_eq(c, connection)) {
                farewells.remove(&silo);
            }
        }
    }

    /// Takes the connection to a silo that is dead in the view from the calls, and ends it when the
    /// silo has had the time to be told.
    fn part(self: &Arc<Self>, silo: SiloAddress, connection: &Arc<Connection>) {
        connection.part();
        self.forget(connection);
        self.farewells.lock().insert(silo, connection.clone());
        let (pool, connection) = (self.clone(), connection.clone());
        world::spawn(async move {
            tokio::time::sleep(FAREWELL).await;
            pool.forget(&connection);
            connection.goodbye(GoodbyeCode::Dead, "this silo was declared dead");
            tokio::time::sleep(LAST_WORD).await;
            connection.reset(Lost::PeerDead);
        });
    }

    /// Replaces the list of dead silos. Calls that wait for one of them fail now.
    pub fn set_dead(self: &Arc<Self>, dead: impl Iterator<Item = SiloAddress>) {
        let dead: HashSet<_> = dead.collect();
        let before = std::mem::replace(&mut *self.dead.write(), dead.clone());
        let newly: HashSet<_> = dead.difference(&before).copied().collect();
        if newly.is_empty() {
            return;
        }
        self.strangers.lock().retain(|silo| !newly.contains(silo));
        for connection in self.open() {
            if let Some(silo) = connection.silo().filter(|silo| newly.contains(silo)) {
                self.part(silo, &connection);
            }
        }
    }

    /// Every open connection.
    pub fn open(&self) -> Vec<Arc<Connection>> {
        self.all.lock().iter().filter_map(Weak::upgrade).filter(|c| !c.is_lost()).collect()
    }

    /// The calls that wait for the answers of other silos.
    pub fn calls_in_flight(&self) -> u64 {
        self.silos.read().values().map(|silo| u64::from(silo.waiting())).sum()
    }

    /// Stops serving calls of others: begun calls are answered, then the peers hear that no other
    /// call has run.
    pub fn stop_serving(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.open().iter().for_each(|c| c.stop_serving());
    }

    /// Returns true if every peer was told so.
    pub fn has_stopped_serving(&self) -> bool {
        self.open().iter().all(|c| c.has_stopped_serving())
    }

    /// Returns true if every peer has read it.
    pub fn all_know_of_the_end(&self) -> bool {
        self.open().iter().all(|c| c.knows_of_the_end())
    }

    /// Ends every connection in good order.
    pub fn goodbye(&self, code: GoodbyeCode, text: &str) {
        self.open().iter().for_each(|c| c.goodbye(code, text));
    }
}

//! The connections of one silo or client, by peer.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use emmer_core::SiloAddress;
use emmer_wire::{GoodbyeCode, PeerKind};
use parking_lot::{Mutex, RwLock};

use super::driver::{Handler, drive};
use super::handshake::{DialError, Greeting, dial};
use super::{Connection, Lost};
use crate::clock::CoarseInstant;

/// Dials under way at once; one more is refused.
const DIALS_MAX: usize = 1024;

/// The connections, and who must not be connected to.
pub(crate) struct Pool {
    greeting: Greeting,
    silos: RwLock<HashMap<SiloAddress, Arc<Connection>>>,
    /// Every open connection, clients' included; ended ones are swept out.
    all: Mutex<Vec<Weak<Connection>>>,
    dialing: Mutex<HashMap<SiloAddress, Arc<tokio::sync::Mutex<()>>>>,
    /// Silos the membership view calls Dead.
    dead: RwLock<std::collections::HashSet<SiloAddress>>,
}

impl Pool {
    pub(crate) fn new(greeting: Greeting) -> Self {
        Self {
            greeting,
            silos: RwLock::default(),
            all: Mutex::default(),
            dialing: Mutex::default(),
            dead: RwLock::default(),
        }
    }

    pub(crate) const fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The open connection to `silo`, if there is one.
    pub(crate) fn get(&self, silo: SiloAddress) -> Option<Arc<Connection>> {
        self.silos.read().get(&silo).cloned()
    }

    /// Whether the membership view calls `silo` Dead.
    pub(crate) fn is_dead(&self, silo: SiloAddress) -> bool {
        self.dead.read().contains(&silo)
    }

    /// The connection to `silo`, made if there is none; concurrent callers share one dial.
    pub(crate) async fn connect<H: Handler>(
        self: &Arc<Self>,
        silo: SiloAddress,
        handler: &Arc<H>,
    ) -> Result<Arc<Connection>, DialError> {
        if let Some(connection) = self.get(silo) {
            return Ok(connection);
        }
        let turn = {
            let mut dialing = self.dialing.lock();
            if dialing.len() >= DIALS_MAX && !dialing.contains_key(&silo) {
                return Err(DialError::TooMany);
            }
            dialing.entry(silo).or_default().clone()
        };
        let guard = turn.lock().await;
        let result = match self.get(silo) {
            Some(connection) => Ok(connection),
            None if self.is_dead(silo) => Err(DialError::Dead(silo)),
            None => self.dial_now(silo, handler).await,
        };
        drop(guard);
        self.dialing.lock().remove(&silo);
        result
    }

    async fn dial_now<H: Handler>(
        self: &Arc<Self>,
        silo: SiloAddress,
        handler: &Arc<H>,
    ) -> Result<Arc<Connection>, DialError> {
        let (connection, _, input) = dial(silo.endpoint(), Some(silo), &self.greeting).await?;
        let connection = Arc::new(connection);
        self.adopt(&connection);
        let (pool, driven, handler) = (self.clone(), connection.clone(), handler.clone());
        tokio::spawn(async move {
            drive(driven.clone(), handler, input).await;
            pool.forget(&driven);
        });
        Ok(connection)
    }

    /// Takes in a connection that was made or accepted. The first one to a silo carries the calls to it.
    pub(crate) fn adopt(&self, connection: &Arc<Connection>) {
        if let PeerKind::Silo(silo) = connection.peer {
            self.silos.write().entry(silo).or_insert_with(|| connection.clone());
        }
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|c| c.strong_count() > 0);
        }
        all.push(Arc::downgrade(connection));
    }

    /// Lets an ended connection go.
    pub(crate) fn forget(&self, connection: &Arc<Connection>) {
        if let PeerKind::Silo(silo) = connection.peer {
            let mut silos = self.silos.write();
            if silos.get(&silo).is_some_and(|c| Arc::ptr_eq(c, connection)) {
                silos.remove(&silo);
            }
        }
    }

    /// Replaces what is known about dead silos; calls waiting for one of them fail now.
    pub(crate) fn set_dead(&self, dead: impl Iterator<Item = SiloAddress>) {
        let dead: std::collections::HashSet<_> = dead.collect();
        let gone: Vec<_> =
            self.silos.read().iter().filter(|(s, _)| dead.contains(s)).map(|(_, c)| c.clone()).collect();
        *self.dead.write() = dead;
        for connection in gone {
            connection.lose(Lost::PeerDead);
            self.forget(&connection);
        }
    }

    /// Every open connection.
    pub(crate) fn open(&self) -> Vec<Arc<Connection>> {
        self.all.lock().iter().filter_map(Weak::upgrade).filter(|c| !c.is_lost()).collect()
    }

    /// Ends the calls whose deadline has passed, on every connection.
    pub(crate) fn expire(&self, now: CoarseInstant) {
        let connections: Vec<_> = {
            let mut all = self.all.lock();
            all.retain(|c| c.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        connections.iter().for_each(|c| c.expire(now));
    }

    /// Ends every connection in good order.
    pub(crate) fn goodbye(&self, code: GoodbyeCode, text: &str) {
        self.open().iter().for_each(|c| c.goodbye(code, text));
    }
}

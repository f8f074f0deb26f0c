//! The silo's part in the cluster: the shells of its machines, when turns may run, the way to its
//! peers, where grains are.

mod choice;
pub(crate) mod directory;
mod fence;
pub(crate) mod followers;
mod history;
mod lateness;
pub(crate) mod load;
pub(crate) mod locations;
pub(crate) mod membership;
pub(crate) mod moves;
mod peers;
mod placing;
mod pulse;
pub(crate) mod talks;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use emmer_core::{Instant, SiloAddress, SiloStatus};
use emmer_membership::View;
use emmer_net::clock::Clock;
use emmer_net::transport::{Connection, Greeting};
use emmer_net::warn_seldom;
use emmer_net::world::{self, Watched};
use emmer_wire::{PeerKind, codec};
use parking_lot::Mutex;

use self::directory::DirectoryService;
pub(crate) use self::fence::{Fence, Shut};
pub(crate) use self::history::History;
use self::lateness::Lateness;
use self::locations::Locations;
use self::membership::{Input, MembershipHandle, MembershipStatistics};
pub(crate) use self::peers::Peers;
pub(crate) use self::placing::{Chosen, Placing, Question, Sought};
pub(crate) use self::pulse::{Hears, Pulse};

/// The silo's knowledge of the cluster, and its connections.
pub(crate) struct Cluster {
    /// This silo.
    pub(crate) me: SiloAddress,
    pub(crate) clock: Clock,
    pub(crate) membership: MembershipHandle,
    /// Last statistics of the membership machine.
    pub(crate) membership_statistics: Mutex<MembershipStatistics>,
    pub(crate) directory: Arc<DirectoryService>,
    pub(crate) locations: Arc<Locations>,
    /// Chooser of silos for new activations.
    pub(crate) placing: Placing,
    pub(crate) peers: Arc<Peers>,
    /// The way of the membership of its own.
    pub(crate) pulse: Pulse,
    /// The changes that this silo has committed, until they are recorded.
    pub(crate) history: History,
    lateness: Lateness,
    /// The view in force.
    pub(crate) views: Watched<Arc<View>>,
    /// The silo's own status, as it last published it.
    pub(crate) status: Watched<SiloStatus>,
    /// The version of the view in `views`, for the hot path.
    view_version: AtomicU64,
}

/// Hands what comes over connections of the membership to it.
pub(crate) struct MembershipEar(pub(crate) Weak<Cluster>);

impl Hears for MembershipEar {
    fn message(&self, silo: SiloAddress, payload: &Bytes) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.hear(silo, payload);
        }
    }

    fn heard(&self, connection: &Connection, silo: SiloAddress) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.heard(connection, silo);
        }
    }
}

impl Cluster {
    /// Nothing is known yet.
    pub(crate) fn new(
        me: SiloAddress,
        clock: Clock,
        membership: MembershipHandle,
        directory: Arc<DirectoryService>,
        locations: Arc<Locations>,
        placing: Placing,
        (peers, pulse): (Arc<Peers>, Pulse),
    ) -> Self {
        Self {
            me,
            clock,
            membership,
            membership_statistics: Mutex::default(),
            directory,
            locations,
            placing,
            peers,
            pulse,
            history: History::default(),
            lateness: Lateness::default(),
            views: Watched::new(Arc::new(View::empty())),
            status: Watched::new(SiloStatus::Created),
            view_version: AtomicU64::new(0),
        }
    }

    /// The view in force.
    pub(crate) fn view(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    /// The lateness of this silo's tasks, if it is too busy.
    pub(crate) fn busy(&self) -> Option<Duration> {
        self.lateness.busy(self.clock.now(), world::seldom(membership::HEALTH_EVERY))
    }

    /// Its version.
    pub(crate) fn view_version(&self) -> u64 {
        self.view_version.load(Ordering::Acquire)
    }

    /// Returns true if the view in force names `silo`.
    pub(crate) fn knows(&self, silo: SiloAddress) -> bool {
        self.views.borrow().status_of(&silo).is_some()
    }

    /// Returns true if this silo is Active, as it last published it.
    pub(crate) fn is_active(&self) -> bool {
        *self.status.borrow() == SiloStatus::Active
    }

    /// Greeting of this silo when it only asks who is there.
    pub(crate) fn probe_greeting(&self) -> Greeting {
        Greeting { me: PeerKind::Probe(self.me), options: 0, ..self.peers.pool.greeting().clone() }
    }

    /// Introduces this silo as one that wants to see when the other process ends.
    fn watch_greeting(&self) -> Greeting {
        Greeting { me: PeerKind::Watch(self.me), ..self.probe_greeting() }
    }

    /// Takes up a message of another silo's membership.
    pub(crate) fn hear(&self, from: SiloAddress, payload: &[u8]) {
        match codec::decode(payload) {
            Ok(message) if self.knows(from) => {
                self.membership.send(Input::Message(from, message));
            }
            // The machine takes from it what a join needs.
            Ok(message) => self.membership.send_of_stranger(Input::Message(from, message)),
            Err(e) => warn_seldom!(%from, error = %e, "an unreadable membership message"),
        }
    }

    /// Bytes came from another silo.
    pub(crate) fn heard(&self, connection: &Connection, silo: SiloAddress) {
        let now = self.clock.now();
        if connection.note_heard(now) && self.knows(silo) {
            self.membership.heard(silo, now);
        }
    }

    /// Returns true if the silo's tasks do not run. A stuck silo must not say that it lives.
    pub(crate) fn is_stuck(&self) -> bool {
        self.lateness.is_stuck(self.clock.now(), world::seldom(membership::HEALTH_EVERY))
    }

    /// Takes up a new view, in the order in which the parts depend on it. The connections to the
    /// dead are cut already.
    pub(crate) fn install(
        &self,
        view: Arc<View>,
        status: SiloStatus,
        fading: &[(SiloAddress, Instant)],
    ) {
        let status_of = |silo| view.status_of(&silo);
        self.locations
            .forget_silos(|silo| matches!(status_of(silo), None | Some(SiloStatus::Dead)));
        self.membership.retain(&view);
        self.directory.install(&view, fading);
        // A task that waits for the status acts on the view: it must be there first.
        self.placing.load.install(&view);
        self.view_version.store(view.version(), Ordering::Release);
        self.views.set(view);
        self.status.set(status);
    }
}

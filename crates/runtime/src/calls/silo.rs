//! A silo as calls see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_core::limits::Limits;
use emmer_net::clock::Clock;
use emmer_net::world::Spawner;
use tokio_util::sync::CancellationToken;

use super::asking::Open;
use super::lanes::Lanes;
use super::rules::Rules;
use super::shedding::Shedding;
use crate::cluster::Cluster;
use crate::filters::Filters;
use crate::hosting::Host;
use crate::waits::Waits;

/// A silo as the calls see it that are made on it or come to it.
pub(crate) struct Calls {
    pub(crate) address: SiloAddress,
    pub(crate) clock: Clock,
    pub(crate) spawner: Spawner,
    /// Where turns run.
    pub(crate) host: Arc<Host>,
    /// Where grains are that are not here.
    pub(crate) cluster: Arc<Cluster>,
    /// Calls that nobody waits for, whose grains are looked for.
    pub(crate) lanes: Arc<Lanes>,
    /// The placement directors that are asked just now.
    pub(crate) asked: Open,
    /// The filters around calls that are made here.
    pub(crate) outgoing: Filters,
    /// Who waits for whom.
    pub(crate) waits: Arc<Waits>,
    /// One-way calls of this process that are under way.
    pub(crate) one_ways: Arc<AtomicUsize>,
    /// Calls of others that are under way here.
    pub(crate) serving: AtomicUsize,
    /// How long a call waits for its answer when nobody says.
    pub(crate) response_timeout: Duration,
    pub(crate) limits: Limits,
    /// The rules about calls of clients.
    pub(crate) rules: Rules,
    /// Decides which calls of clients are refused.
    pub(crate) shedding: Arc<Shedding>,
    /// Fires when the silo has ended.
    pub(crate) stopped: CancellationToken,
}

impl Calls {
    /// How many calls of others are under way here.
    pub(crate) fn serving(&self) -> u64 {
        self.serving.load(Ordering::Relaxed) as u64
    }
}

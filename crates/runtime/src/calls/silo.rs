//! A silo as calls see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_core::limits::Limits;
use emmer_net::clock::Clock;
use emmer_net::world::Spawner;
use emmer_wire::{PeerKind, RequestHeader};
use tokio_util::sync::CancellationToken;

use super::asking::Open;
use super::lanes::Lanes;
use super::rules::Rules;
use super::shedding::Shedding;
use super::target::{Found, Target};
use crate::cluster::Cluster;
use crate::cluster::talks::Talks;
use crate::filters::Filters;
use crate::hosting::{Host, TurnContext};
use crate::streams::Hub;
use crate::waits::Waits;

/// Parts of a silo that calls use, whether made here or arriving.
pub(crate) struct Calls {
    pub(crate) address: SiloAddress,
    pub(crate) clock: Clock,
    pub(crate) spawner: Spawner,
    /// The activations of this silo.
    pub(crate) host: Arc<Host>,
    /// The view, the locations of grains and the ways to other silos.
    pub(crate) cluster: Arc<Cluster>,
    /// One-way calls whose grains are being located.
    pub(crate) lanes: Arc<Lanes>,
    /// The placement directors that are asked just now.
    pub(crate) asked: Open,
    /// The filters around calls that are made here.
    pub(crate) outgoing: Filters,
    /// Samples of the calls between grains, if they move to silos that they talk with.
    pub(crate) talks: Option<Talks>,
    /// Turns of this silo that wait for calls.
    pub(crate) waits: Arc<Waits>,
    /// One-way calls of this process that are under way.
    pub(crate) one_ways: Arc<AtomicUsize>,
    /// True once this silo has made a one-way call.
    pub(crate) sends_one_way: AtomicBool,
    /// Calls of others that are under way here.
    pub(crate) serving: AtomicUsize,
    /// Ends of streams in this process.
    pub(crate) streams: Arc<Hub>,
    /// Timeout of a call that sets none and inherits none.
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
    /// A grain of this silo may be about to make this call: the call may be a sample.
    #[inline]
    pub(crate) fn note_talk(&self, target: &Target) {
        if let Some(talks) = &self.talks
            && talks.is_drawn()
        {
            self.note_drawn_talk(talks, target);
        }
    }

    #[cold]
    fn note_drawn_talk(&self, talks: &Talks, target: &Target) {
        let Some(own) = TurnContext::own_grain() else { return };
        let at = match target.any_route() {
            Found::There(lane) => lane.connection.silo(),
            Found::Here(_) => Some(self.address),
            Found::Nothing | Found::Nowhere if self.is_worker(&target.id) => None,
            Found::Nothing | Found::Nowhere if self.host.catalog.get(&target.id).is_some() => {
                Some(self.address)
            }
            // Of a grain that is not found yet the next sample knows more.
            Found::Nothing | Found::Nowhere => self.cluster.locations.get(&target.id),
        };
        if let Some(at) = at {
            talks.note(&own, &target.id, at);
        }
    }

    /// A call has come from another silo: it may be a sample.
    #[inline]
    pub(crate) fn note_talk_from(&self, peer: PeerKind, header: &RequestHeader) {
        if let (Some(talks), PeerKind::Silo(from)) = (&self.talks, peer)
            && header.forwards == 0
            && let Some(caller) = header.chain.last()
            && talks.is_drawn()
        {
            talks.note(&header.target, &caller.grain, from);
        }
    }

    /// Number of changes of the ways of calls.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.cluster.locations.changes().number()
    }

    /// Number of calls of other processes that run here.
    pub(crate) fn serving(&self) -> u64 {
        self.serving.load(Ordering::Relaxed) as u64
    }
}

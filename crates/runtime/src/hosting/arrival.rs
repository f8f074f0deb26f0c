//! The way of a grain to another silo, on the silo where it arrives.
//!
//! Everything that can fail by itself comes first: the class, the room, the memory's fields. Then
//! the owner of the grain's range decides whether this registration replaces the old one. Calls
//! that come meanwhile wait.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_directory::{Outcome, Registration, Word};
use emmer_net::clock::Due;
use emmer_net::warn_seldom;

use super::activation::{Home, Life};
use super::catalog::NotMade;
use super::gate::{Alone, Purpose};
use super::lifecycle::{Roused, in_turn};
use super::{Activation, Closed, Host, TurnContext};
use crate::cluster::Shut;
use crate::cluster::followers::Followed;
use crate::cluster::moves::{Arrival, Memory, UnderWay};
use crate::turn::{contain, contained};

/// The longest wait for the grain's registration. Its old silo has taken it back by then.
const REGISTRATION_MAX: Duration = Duration::from_secs(10);

/// The longest wait for calls that follow the grain. They are forwarded at once.
const FOLLOWERS_MAX: Duration = Duration::from_secs(2);

/// The activation of a grain that comes, the room for its memory, and its followers.
type Seat = (Arc<Activation>, UnderWay, Option<Followed>);

impl Host {
    /// A grain comes from the silo `from`.
    pub(crate) fn arrive(self: &Arc<Self>, from: SiloAddress, arrival: Arrival) {
        let id = arrival.id;
        match self.seat(from, &arrival) {
            Ok((activation, room, followed)) => {
                self.spawner.spawn(activation.arrive(from, arrival, room, followed));
            }
            Err((word, why)) => {
                tracing::debug!(grain = %arrival.grain, %from, why, "a grain was not taken");
                self.moves.answer(from, id, word);
            }
        }
    }

    /// An activation for a grain that comes, which no call can enter yet.
    fn seat(
        self: &Arc<Self>,
        from: SiloAddress,
        arrival: &Arrival,
    ) -> Result<Seat, (Word, String)> {
        if self.departures.door(&arrival.grain, None).is_some() {
            let why = "calls are still on their way after the grain, which was here";
            return Err((Word::TooSoon, why.to_owned()));
        }
        self.seat_now(from, arrival).map_err(|why| (Word::Refused, why))
    }

    fn seat_now(self: &Arc<Self>, from: SiloAddress, arrival: &Arrival) -> Result<Seat, String> {
        let class = self.class_of(&arrival.grain).map_err(|failure| failure.to_string())?;
        if class.info.stays || class.workers_max().is_some() {
            return Err("no grain of its class moves".to_owned());
        }
        let (own, its) = (class.data_version(), arrival.memory.data_version);
        if own != its {
            return Err(format!("its data has version {its}, and this silo has version {own}"));
        }
        if self.is_alone() || self.is_fenced() {
            return Err("this silo runs no turns".to_owned());
        }
        if self.shortage.is_cordoned() {
            return Err("this silo is cordoned".to_owned());
        }
        let room = self.moves.room_to_arrive(&arrival.memory);
        let room = room.ok_or("too many grains come at once")?;
        let (max, mut followed) = (self.limits.activations_max, None);
        let made = self.catalog.insert(&arrival.grain, max, |number| {
            let made = class.clone().create(self.clone(), arrival.grain.clone(), number);
            made.gate.line().take_mover_place(true);
            // Before a call of this silo finds the grain here.
            followed = Some(self.moves.followers.expect(&arrival.grain, (from, arrival.id)));
            self.moves.locations.changes().note();
            made
        });
        match made {
            Ok(Some(made)) => Ok((made, room, followed)),
            Ok(None) => Err("the grain has an activation here".to_owned()),
            Err(NotMade::Full) => Err("this silo has too many activations".to_owned()),
            Err(NotMade::Closed) => Err("this silo leaves".to_owned()),
        }
    }
}

impl Activation {
    /// Takes the grain in, and lets one-way calls of this silo wait until earlier ones have
    /// followed the grain.
    async fn arrive(
        self: Arc<Self>,
        from: SiloAddress,
        arrival: Arrival,
        room: UnderWay,
        followed: Option<Followed>,
    ) {
        let grain = arrival.grain.clone();
        if self.come_from(from, arrival, room).await
            && let Some(followed) = followed
        {
            let all_here = async {
                followed.sent().await;
                self.host.moves.flush_way(self.host.address, from, &grain).await;
            };
            let _ = tokio::time::timeout(FOLLOWERS_MAX, all_here).await;
        }
    }

    /// Takes the grain in, and tells the silo that it comes from. Returns true if the grain is
    /// here.
    async fn come_from(
        self: &Arc<Self>,
        from: SiloAddress,
        arrival: Arrival,
        _room: UnderWay,
    ) -> bool {
        let Arrival { id, number, view, memory, .. } = arrival;
        let (mut lock, purpose) = self.gate.closing().await;
        let filled = match purpose {
            Purpose::Move => self.fill(&mut lock, &memory),
            Purpose::End(reason) => Err(reason.to_string()),
        };
        if let Err(why) = filled {
            tracing::debug!(grain = %self.title(), %from, why, "a grain was not taken");
            self.let_go(&mut lock.room);
            self.go(&mut lock, Closed::Gone);
            self.host.moves.answer(from, id, Word::Refused);
            return false;
        }
        let instead = (Registration { silo: from, activation: number }, view);
        let replacing = self.host.directory.replace(self.registrant(), instead);
        let outcome = tokio::time::timeout(REGISTRATION_MAX, replacing).await;
        if outcome != Ok(Outcome::Registered) {
            self.let_go(&mut lock.room);
            self.go(&mut lock, Closed::Gone);
            self.host.moves.answer(from, id, Word::Failed);
            return false;
        }
        self.host.moves.answer(from, id, Word::Arrived);
        self.settle_in(lock, memory).await;
        true
    }

    /// Makes the grain and gives it its memory.
    fn fill(self: &Arc<Self>, lock: &mut Alone<'_, Home>, memory: &Memory) -> Result<(), String> {
        let (host, room) = (&self.host, &mut lock.room);
        let made = contain(|| self.class.make(self, &host.services, room));
        made?.map_err(|error| error.to_string())?;
        contain(|| room.unpack(self, &memory.fields))?
    }

    /// Runs the hook of the arrival. The grain is here.
    async fn settle_in(self: &Arc<Self>, mut lock: Alone<'_, Home>, memory: Memory) {
        let host = &self.host;
        if memory.kept_ms > 0 {
            self.keep_for(Duration::from_millis(memory.kept_ms));
        }
        self.note_use(host.clock.now());
        if memory.settled_ms > 0 {
            let left = Duration::from_millis(memory.settled_ms);
            self.settle(Some(host.clock.now().after(left)));
        }
        host.timers.expect(self.number, memory.timers);
        let arrived = {
            let mut roused = Roused::of(self, &mut lock.room);
            let arrived = self.run_arrival(&mut roused).await;
            roused.is_awake = arrived.is_ok();
            arrived
        };
        for method in host.timers.arrived(self.number) {
            warn_seldom!(grain = %self.title(), method, "the hook of an arrival did not start a \
                timer again");
        }
        match arrived {
            Ok(()) => {
                self.class.lives.arrived();
                lock.life = Life::Active;
            }
            Err(closed) => {
                self.class.lives.failed();
                let _ = self.fail(&mut lock, closed).await;
            }
        }
    }

    async fn run_arrival(self: &Arc<Self>, grain: &mut Roused<'_>) -> Result<(), Closed> {
        if !self.class.info.has_hooks {
            return Ok(());
        }
        let limit = self.host.activation_timeout;
        let context = TurnContext::hook(self.clone().into(), Due::after(limit));
        let _waking = self.waking();
        let hook = contained(async { grain.room.arrive(self.clone()).await });
        let hook = self.host.fence.guard(&self.host.clock, in_turn(context, hook));
        match tokio::time::timeout(limit, hook).await {
            Ok(Ok(Ok(Ok(())))) => Ok(()),
            Ok(Ok(Ok(Err(error)))) => {
                let title = self.title();
                Err(Closed::Failed(format!("{title} refused its arrival: {error}")))
            }
            Ok(Ok(Err(panic))) => Err(self.panicked(&panic)),
            Ok(Err(Shut)) => Err(Closed::Gone),
            Err(_) => {
                let title = self.title();
                Err(Closed::Failed(format!("{title} did not arrive within {limit:?}")))
            }
        }
    }
}

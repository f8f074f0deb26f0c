//! The way of a grain to another silo, on the silo that it leaves.
//!
//! The mover takes the closer's place before all calls that wait. Under the grain's lock it packs
//! the memory and sends it. From then on no turn runs here, until the grain is there or here again
//! (`Departure` in `emmer-directory` decides). Calls that wait follow the grain.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_core::limits::GRAIN_MEMORY_BYTES_MAX;
use emmer_directory::{
    Departure, DepartureEffect, DepartureEnd, FailReason, Outcome, Registration, Word,
};
use emmer_net::warn_seldom;

use super::activation::{Home, Life};
use super::gate::{Alone, Purpose};
use super::stays::Stays;
use super::{Activation, Closed};
use crate::cluster::moves::{Arrival, Memory};
use crate::turn::contain;

/// Time for which running turns may hold up a move. Then it is given up: calls waited behind it.
const TURNS_MAX: Duration = Duration::from_millis(100);

/// The longest silence of the silo that a grain goes to.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest wait for the directory to give a grain back. Then its memory is lost.
const RECLAIM_MAX: Duration = Duration::from_secs(20);

/// First pause between two tries to move a busy grain; each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(25);

/// Pause before another try to move a grain back to a silo that it has left a moment ago.
const TOO_SOON_PAUSE: Duration = Duration::from_millis(250);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest wait for the calls of a grain that cannot stay.
const BEHIND_MAX: Duration = Duration::from_secs(5);

/// Time for which a grain that asked to move is tried.
const REQUESTED_MAX: Duration = Duration::from_secs(30);

/// Manner in which a mover waits for turns that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Before all that wait, and for a moment.
    First,
    /// Behind those that wait now, for this time.
    Behind(Duration),
}

impl Activation {
    /// Moves the grain to `to`, once the turns that run have ended. It is tried for `patience`. If
    /// it fails, the grain stays as it is, or ends as by a death.
    ///
    /// # Errors
    /// The reason why it is not on `to`.
    pub(crate) async fn move_within(
        self: &Arc<Self>,
        to: SiloAddress,
        patience: Duration,
    ) -> Result<(), Stays> {
        let until = self.host.clock.mono() + patience;
        let mut pause = PAUSE_MIN;
        loop {
            let moved = self.move_to(to, Manner::First).await;
            let pause_now = match moved {
                Err(Stays::Busy) => pause,
                Err(Stays::TooSoon) => TOO_SOON_PAUSE,
                moved => return moved,
            };
            if self.host.clock.mono() + pause_now > until {
                return moved;
            }
            tokio::time::sleep(pause_now).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// As [`move_within`](Self::move_within), for a grain that cannot stay: the calls that wait now
    /// run first if they must, and later ones wait.
    ///
    /// # Errors
    /// The reason why it is not on `to`.
    pub(crate) async fn move_away(
        self: &Arc<Self>,
        to: SiloAddress,
        patience: Duration,
    ) -> Result<(), Stays> {
        match self.move_to(to, Manner::First).await {
            Err(Stays::Busy) => self.move_to(to, Manner::Behind(patience.min(BEHIND_MAX))).await,
            moved => moved,
        }
    }

    async fn move_to(self: &Arc<Self>, to: SiloAddress, manner: Manner) -> Result<(), Stays> {
        if self.is_worker() || self.class.info.stays || to == self.host.address {
            return Err(Stays::Class);
        }
        if !self.host.moves.reaches(to).await {
            return Err(Stays::Refused);
        }
        let line = self.gate.line();
        if self.host.kept.has_turns(self.number) || !line.take_mover_place(manner == Manner::First)
        {
            return Err(Stays::Busy);
        }
        let limit = match manner {
            Manner::First => TURNS_MAX,
            Manner::Behind(limit) => limit,
        };
        let entered = match tokio::time::timeout(limit, self.gate.closing()).await {
            Ok(entered) => entered,
            Err(_) if line.give_mover_place_back() => return Err(Stays::Busy),
            // It is to end meanwhile.
            Err(_) => self.gate.closing().await,
        };
        match entered {
            (mut lock, Purpose::Move) => {
                let began = self.host.clock.mono();
                let moved = self.leave_for(to, &mut lock).await;
                drop(lock);
                if let Ok(id) = moved {
                    let took = self.host.clock.mono().saturating_since(began);
                    self.class.lives.left(took);
                    tracing::debug!(grain = %self.title(), %to, ?took, "a grain has moved");
                    // Behind all that waited.
                    let _ = tokio::time::timeout(PATIENCE, self.lock_exclusive()).await;
                    self.host.moves.all_follow(to, id, self.id.clone());
                }
                moved.map(|_id| ())
            }
            (lock, Purpose::End(reason)) => {
                self.close(lock, reason).await;
                Err(Stays::Gone)
            }
        }
    }

    /// Begins to move the grain to the silo that `to` chooses, once the running turns are over. A
    /// grain that has asked for a move already gets no second one.
    pub(crate) fn begin_move(
        self: &Arc<Self>,
        to: impl Future<Output = Option<SiloAddress>> + Send + 'static,
    ) {
        if self.asked_to_move.swap(true, Ordering::AcqRel) {
            return;
        }
        let activation = self.clone();
        self.host.spawner.spawn(async move {
            if let Some(to) = to.await
                && let Err(why) = activation.move_within(to, REQUESTED_MAX).await
            {
                tracing::debug!(grain = %activation.title(), %to, %why, "a grain did not move");
            }
            activation.asked_to_move.store(false, Ordering::Release);
        });
    }

    /// Packs the grain's memory, if it may move.
    fn pack(&self, lock: &mut Alone<'_, Home>) -> Result<Memory, Stays> {
        if !matches!(lock.life, Life::Active) {
            return Err(Stays::Gone);
        }
        if self.host.is_fenced() || self.host.kept.has_turns(self.number) {
            return Err(Stays::Busy);
        }
        let room = &mut lock.room;
        let may = contain(|| room.may_move()).unwrap_or_else(|panic| {
            warn_seldom!(grain = %self.title(), panic, "a grain panicked when it was to move");
            false
        });
        if !may {
            return Err(Stays::Grain);
        }
        let timers = self.host.timers.pack(self.number, self.host.clock.mono())?;
        let fields = contain(|| room.pack()).unwrap_or_else(Err).map_err(Stays::Unpackable)?;
        let kept = self.host.kept.left(self.number, self.host.clock.now());
        let kept_ms = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        let settled = self.host.kept.settled_for(self.number, self.host.clock.now());
        let settled_ms = u64::try_from(settled.as_millis()).unwrap_or(u64::MAX);
        let data_version = self.class.data_version();
        let memory = Memory { data_version, fields, timers, kept_ms, settled_ms };
        match memory.bytes() {
            bytes if bytes > GRAIN_MEMORY_BYTES_MAX => Err(Stays::TooLarge(bytes)),
            _ => Ok(memory),
        }
    }

    /// Sends the grain to `to`, and waits for what becomes of it. Returns the number of the move.
    async fn leave_for(
        self: &Arc<Self>,
        to: SiloAddress,
        lock: &mut Alone<'_, Home>,
    ) -> Result<u64, Stays> {
        let host = &self.host;
        let memory = self.pack(lock)?;
        let _room = host.moves.room_to_leave(&memory).ok_or(Stays::Busy)?;
        let (number, round) = (self.registration(), self.round.load(Ordering::Acquire));
        let next = round.checked_add(1).ok_or(Stays::Class)?;
        let view = host.directory.withhold(self.registrant()).ok_or(Stays::Gone)?;
        let instead = (Registration { silo: host.address, activation: number }, view);
        let fresh = self.registration_of(next);
        let mut departure = Departure::new(host.clock.mono(), to, instead, fresh, PATIENCE);
        let grain = self.id.clone();
        let mut sent = host.moves.send(to, Arrival { id: 0, grain, number, view, memory });
        let mut refused = Stays::Refused;
        let end = loop {
            match departure.poll_effect() {
                Some(DepartureEffect::End(end)) => break end,
                Some(DepartureEffect::Reclaim { activation }) => {
                    if activation == fresh {
                        self.round.store(next, Ordering::Release);
                    }
                    let reclaiming = host.directory.replace(self.registrant(), instead);
                    let outcome = tokio::time::timeout(RECLAIM_MAX, reclaiming).await;
                    let late = Outcome::Failed(FailReason::TimedOut);
                    departure.handle_outcome(outcome.unwrap_or(late));
                }
                None => {
                    let due = departure.poll_timeout();
                    tokio::select! {
                        biased;
                        word = sent.word() => {
                            if word == Word::TooSoon {
                                refused = Stays::TooSoon;
                            }
                            departure.handle_word(word);
                        }
                        () = host.clock.sleep_until(due) => {
                            departure.handle_timeout(host.clock.mono());
                        }
                    }
                }
            }
        };
        let (closed, moved) = match end {
            DepartureEnd::Here(_) => {
                self.class.lives.not_moved(false);
                return Err(refused);
            }
            DepartureEnd::There(silo) => (Closed::Elsewhere(silo.into()), Ok(sent.id())),
            DepartureEnd::Nowhere => {
                self.class.lives.not_moved(true);
                host.directory.withdraw(&self.id, number);
                (Closed::Gone, Err(Stays::Lost))
            }
        };
        self.let_go(&mut lock.room);
        self.go(lock, closed);
        moved
    }
}

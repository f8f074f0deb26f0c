//! Samples of the calls between grains, for the repartition: the shell of its machine.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::Clock;
use emmer_placement::repartition::{Effect, Ground, Message, RepartitionConfig, Repartitioner};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Samples of a period. With more the silo takes a sample half as often, with a quarter of them
/// twice as often.
const SAMPLES: u32 = 20_000;

/// One in this many calls is a sample at the beginning.
const EVERY: u32 = 16;

/// One in this many calls is a sample at least.
const EVERY_MAX: u32 = 1 << 16;

/// Messages of other silos that wait. One more is lost, as on a connection that breaks.
const INBOX_MAX: usize = 16;

thread_local! {
    /// Calls until the next sample, and the state of the numbers that spread them.
    static UNTIL: Cell<(u32, u32)> = const { Cell::new((0, 1)) };
}

/// The calls between the grains of one silo and others.
pub(crate) struct Talks {
    clock: Clock,
    machine: Mutex<Repartitioner>,
    inbox: Mutex<VecDeque<(SiloAddress, Message)>>,
    came: Notify,
    /// One in this many calls is a sample.
    every: AtomicU32,
    /// Samples since the last look.
    samples: AtomicU32,
}

impl Talks {
    pub(crate) fn new(me: SiloAddress, clock: Clock, config: RepartitionConfig) -> Self {
        // The seed only spreads the silos' times.
        let seed = me.stable_hash(0);
        Self {
            machine: Mutex::new(Repartitioner::new(me, seed, clock.mono(), config)),
            clock,
            inbox: Mutex::default(),
            came: Notify::new(),
            every: AtomicU32::new(EVERY),
            samples: AtomicU32::new(0),
        }
    }

    /// Returns true if this call is a sample. Calls are drawn at uneven distances: grains that make
    /// always the same number of calls in a turn would have the same one drawn each time.
    #[inline]
    pub(crate) fn is_drawn(&self) -> bool {
        let (left, state) = UNTIL.get();
        if left > 0 {
            UNTIL.set((left - 1, state));
            return false;
        }
        self.draw(state);
        true
    }

    fn draw(&self, state: u32) {
        let state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let every = self.every.load(Ordering::Relaxed);
        UNTIL.set(((state >> 15) % (2 * every - 1), state));
    }

    /// A drawn call between a grain of this silo and a grain on `at`. It is left out while another
    /// thread writes.
    pub(crate) fn note(&self, own: &GrainId, other: &GrainId, at: SiloAddress) {
        let every = self.every.load(Ordering::Relaxed);
        let Some(mut machine) = self.machine.try_lock() else { return };
        machine.handle_sample(own, other, at, every.into());
        if self.samples.fetch_add(1, Ordering::Relaxed) >= SAMPLES {
            self.samples.store(0, Ordering::Relaxed);
            self.every.store((every * 2).min(EVERY_MAX), Ordering::Relaxed);
        }
    }

    /// A message of another silo, for the next [`step`](Self::step).
    pub(crate) fn receive(&self, from: SiloAddress, message: Message) {
        let mut inbox = self.inbox.lock();
        if inbox.len() < INBOX_MAX {
            inbox.push_back((from, message));
            self.came.notify_one();
        }
    }

    /// Waits until there is something to decide.
    pub(crate) async fn until_due(&self) {
        let due = self.machine.lock().poll_timeout();
        tokio::select! {
            biased;
            () = self.came.notified() => {}
            () = self.clock.sleep_until(Some(due)) => {}
        }
    }

    /// Decides what is due. Returns the effects.
    pub(crate) fn step(&self, ground: &impl Ground) -> Vec<Effect> {
        let now = self.clock.mono();
        let inbox = std::mem::take(&mut *self.inbox.lock());
        let mut machine = self.machine.lock();
        for (from, message) in inbox {
            machine.handle_message(now, from, message, ground);
        }
        if machine.poll_timeout() <= now {
            machine.handle_timeout(now, ground);
            if self.samples.swap(0, Ordering::Relaxed) < SAMPLES / 4 {
                let every = self.every.load(Ordering::Relaxed);
                self.every.store((every / 2).max(1), Ordering::Relaxed);
            }
        }
        std::iter::from_fn(|| machine.poll_effect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    struct Alone;

    impl Ground for Alone {
        fn loads(&self) -> Vec<(SiloAddress, u32)> {
            Vec::new()
        }

        fn may_go(&self, _: &GrainId, _: SiloAddress) -> bool {
            false
        }
    }

    fn silo(n: u8) -> SiloAddress {
        format!("10.0.0.{n}:1:1").parse().unwrap()
    }

    #[tokio::test]
    async fn samples_are_rare_where_calls_are_many_and_messages_that_wait_are_bounded() {
        let config = RepartitionConfig::default();
        let talks = Talks::new(silo(1), Clock::new(), config);
        let grain = |n: u64| GrainId::new(GrainTypeId::of("g"), n);
        let drawn = |calls: u32| (0..calls).filter(|_| talks.is_drawn()).count();
        let some = drawn(160_000);
        assert!((9_000..11_000).contains(&some), "{some} of 160,000, one in sixteen");
        (0..u64::from(2 * SAMPLES)).for_each(|n| talks.note(&grain(n % 7), &grain(9), silo(2)));
        let fewer = drawn(160_000);
        assert!(fewer < some / 2, "{fewer} after {some}");
        for _ in 0..100 {
            talks.receive(silo(2), Message::Take(vec![0; 1_000]));
        }
        assert_eq!(talks.inbox.lock().len(), INBOX_MAX);
        // An answer to no offer does nothing, and silos that are not known are offered nothing.
        assert_eq!(talks.step(&Alone), []);
        let wishes = Message::Offer(Vec::new());
        talks.receive(silo(2), wishes);
        let declined = Effect::Send { to: silo(2), message: Message::Take(Vec::new()) };
        assert_eq!(talks.step(&Alone), [declined]);
    }
}

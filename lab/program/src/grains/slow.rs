//! The slow grain: it takes its time to activate, and its turns sleep. Each piece of its code is in
//! the [turn log](super::turn_log).

use std::time::Duration;

use emmer::{
    ActivationError, Ctx, DeactivationReason, Grain, GrainKey, Lifecycle, grain, grain_interface,
};

use super::turn_log::{Kind, Watched, now, number};

/// Time that an activation takes at least, in milliseconds.
const ACTIVATE_MIN_MS: u64 = 50;
/// Milliseconds that it may take longer.
const ACTIVATE_MORE_MS: u64 = 250;
/// In how many steps.
const ACTIVATE_STEPS: u32 = 3;
/// Time that the hook at the end takes.
const DEACTIVATE: Duration = Duration::from_millis(10);

/// Something that takes its time.
#[grain_interface(key = u64, grain = "emmer-slow")]
pub(crate) trait Slow {
    /// A turn that cannot suspend.
    async fn quick(&mut self);
    /// Sleeps for the milliseconds of each step, alone on its grain.
    async fn work(&mut self, steps: Vec<u32>);
    /// Sleeps for the milliseconds of each step, while others may look.
    async fn look(&self, steps: Vec<u32>);
    /// Lets another grain work meanwhile. True when that came to its end.
    async fn ask(&mut self, other: u64, steps: Vec<u32>) -> bool;
    /// Asks for its own deactivation.
    async fn leave(&mut self);
}

/// See the module.
#[derive(Grain)]
pub(crate) struct SlowGrain {
    #[context]
    ctx: Ctx,
    #[carry]
    key: u64,
    activation: u64,
    turns: u64,
}

impl SlowGrain {
    fn watched(&self, kind: Kind) -> Watched {
        Watched::new(self.key, self.activation, kind)
    }
}

/// Sleeps step by step.
async fn sleep(steps: &[u32]) {
    for ms in steps {
        tokio::time::sleep(Duration::from_millis(u64::from(*ms))).await;
    }
}

impl Lifecycle for SlowGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        let number = number();
        self.key = match ctx.key() {
            GrainKey::Uint(key) => *key,
            other => return Err(ActivationError::new(format!("the key {other} is no number"))),
        };
        self.activation = number;
        // Another time for each, without a source of randomness.
        let more = (self.key ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let whole = Duration::from_millis(ACTIVATE_MIN_MS + more % ACTIVATE_MORE_MS);
        let sleeps = async {
            for _ in 0..ACTIVATE_STEPS {
                tokio::time::sleep(whole / ACTIVATE_STEPS).await;
            }
        };
        self.watched(Kind::Activate).run(sleeps).await;
        Ok(())
    }

    async fn arrive(&mut self, _ctx: &Ctx) -> Result<(), ActivationError> {
        let begin = now();
        self.activation = number();
        self.watched(Kind::Arrive).note(begin);
        Ok(())
    }

    async fn deactivate(&mut self, _ctx: &Ctx, _reason: DeactivationReason) {
        self.watched(Kind::Deactivate).run(tokio::time::sleep(DEACTIVATE)).await;
    }
}

#[grain]
impl Slow for SlowGrain {
    async fn quick(&mut self) {
        let begin = now();
        self.turns += 1;
        self.watched(Kind::Instant).note(begin);
    }

    async fn work(&mut self, steps: Vec<u32>) {
        self.turns += 1;
        self.watched(Kind::Alone).run(sleep(&steps)).await;
    }

    async fn look(&self, steps: Vec<u32>) {
        self.watched(Kind::Shared).run(sleep(&steps)).await;
    }

    async fn ask(&mut self, other: u64, steps: Vec<u32>) -> bool {
        self.turns += 1;
        let other = self.ctx.grains().grain::<dyn Slow>(other);
        self.watched(Kind::Nested).run(async { other.work(steps).await.is_ok() }).await
    }

    async fn leave(&mut self) {
        let begin = now();
        self.ctx.deactivate_on_idle();
        self.watched(Kind::Instant).note(begin);
    }
}

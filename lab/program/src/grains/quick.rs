//! The quick grain: it keeps nothing, and its turns cannot suspend, except a turn that calls
//! another grain. Each piece of its code is in the [turn log](super::turn_log).

use emmer::{
    ActivationError, Ctx, DeactivationReason, Grain, GrainKey, Lifecycle, grain, grain_interface,
};

use super::turn_log::{Kind, Watched, now, number};

/// Something that answers at once.
#[grain_interface(key = u64, grain = "emmer-quick")]
pub(crate) trait Quick {
    /// A turn that cannot suspend.
    async fn turn(&mut self);

    /// A turn that calls another such grain and waits for its answer. When that call fails: whether
    /// it may have run, and the words.
    async fn pass(&mut self, to: u64) -> Option<(bool, String)>;
}

/// See the module.
#[derive(Grain)]
pub(crate) struct QuickGrain {
    #[context]
    ctx: Ctx,
    #[carry]
    key: u64,
    activation: u64,
}

impl QuickGrain {
    fn note(&self, kind: Kind, begin: u64) {
        Watched::new(self.key, self.activation, kind).note(begin);
    }
}

impl Lifecycle for QuickGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        let begin = now();
        self.activation = number();
        self.key = match ctx.key() {
            GrainKey::Uint(key) => *key,
            other => return Err(ActivationError::new(format!("the key {other} is no number"))),
        };
        self.note(Kind::Activate, begin);
        Ok(())
    }

    async fn arrive(&mut self, _ctx: &Ctx) -> Result<(), ActivationError> {
        let begin = now();
        self.activation = number();
        self.note(Kind::Arrive, begin);
        Ok(())
    }

    async fn deactivate(&mut self, _ctx: &Ctx, _reason: DeactivationReason) {
        self.note(Kind::Deactivate, now());
    }
}

#[grain]
impl Quick for QuickGrain {
    async fn turn(&mut self) {
        self.note(Kind::Instant, now());
    }

    async fn pass(&mut self, to: u64) -> Option<(bool, String)> {
        self.note(Kind::Instant, now());
        let other = self.ctx.grains().grain::<dyn Quick>(to);
        other.turn().await.err().map(|error| (error.maybe_executed(), error.to_string()))
    }
}

use emmer::prelude::*;

#[grain_interface(key = String)]
trait Heating {
    async fn start(&mut self);
}

#[derive(Grain)]
struct Thermostat {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Heating for Thermostat {
    async fn start(&mut self) {
        let _ = self.ctx.remind("dew").after(secs(1)).await;
    }
}

#[grain]
impl Thermostat {
    #[reminder("due")]
    async fn on_due(&mut self, tick: Tick) {
        let _ = (self.ctx.remind("due").after(secs(1)).await, tick);
    }
}

fn main() {}

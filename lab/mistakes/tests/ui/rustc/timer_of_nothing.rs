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
        self.ctx.timer(secs(1)).run(Self::sample);
    }
}

impl Thermostat {
    async fn sample(&mut self, degrees: u8) {
        let _ = degrees;
    }
}

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
trait Heating {
    async fn start(&mut self);
}

#[derive(Grain, Default)]
struct Thermostat;

#[grain]
impl Heating for Thermostat {
    async fn start(&mut self) {}

    #[reminder("due")]
    async fn on_due(&mut self, tick: Tick) {}
}

#[grain]
impl Thermostat {
    #[reminder]
    async fn without_name(&mut self, tick: Tick) {}

    #[reminder("look")]
    async fn without_tick(&self) {}
}

fn main() {}

use emmer::prelude::*;

#[derive(Grain)]
struct Thermostat;

impl Thermostat {
    #[reminder("due")]
    async fn on_due(&mut self, _tick: Tick) {}
}

fn main() {}

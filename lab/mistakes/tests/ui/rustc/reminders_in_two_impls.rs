use emmer::prelude::*;

#[derive(Grain)]
struct Clock {}

#[grain]
impl Clock {
    #[reminder("noon")]
    async fn noon(&mut self, _: Tick) {}
}

#[grain]
impl Clock {
    #[reminder("midnight")]
    async fn midnight(&mut self, _: Tick) {}
}

fn main() {}

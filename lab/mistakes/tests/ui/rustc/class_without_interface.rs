use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn total(&self) -> u64;
}

#[derive(Grain)]
struct CounterGrain {
    total: u64,
}

fn main() {
    let _ = Silo::builder().host::<dyn Counter, CounterGrain>();
}

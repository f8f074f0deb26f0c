use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    type Total;
    const STEP: u64;
    async fn total(&self) -> u64;
}

fn main() {}

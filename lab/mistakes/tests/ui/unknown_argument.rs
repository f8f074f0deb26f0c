use emmer::prelude::*;

#[grain_interface(key = String, name = "tally")]
pub trait Counter {
    async fn total(&self) -> u64;
}

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn add(n: u64) -> u64;
}

fn main() {}

use emmer::prelude::*;

#[grain_interface]
pub trait Counter {
    async fn total(&self) -> u64;
}

fn main() {}

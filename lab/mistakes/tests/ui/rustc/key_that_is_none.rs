use emmer::prelude::*;

#[grain_interface(key = f64)]
pub trait Counter {
    async fn total(&self) -> u64;
}

fn main() {}

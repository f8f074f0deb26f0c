use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn finish(self) -> u64;
}

fn main() {}

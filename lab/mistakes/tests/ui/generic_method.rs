use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn add<T: Into<u64>>(&mut self, n: T) -> u64;
}

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn add(&mut self, n: u64) -> u64;

    async fn increment(&mut self) -> u64 {
        self.add(1).await
    }
}

fn main() {}

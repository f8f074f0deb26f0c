use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter<T> {
    async fn total(&self) -> u64;
}

fn main() {}

use emmer::prelude::*;

type Answer<T> = Result<T, String>;

#[grain_interface(key = u64)]
pub trait Counter {
    async fn total(&self) -> Answer<u64>;
}

fn main() {}

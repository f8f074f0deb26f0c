use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn total(&self) -> u64;
}

struct CounterGrain {
    total: u64,
}

#[grain]
impl Counter for CounterGrain {
    async fn total(&self) -> u64 {
        self.total
    }
}

fn main() {}

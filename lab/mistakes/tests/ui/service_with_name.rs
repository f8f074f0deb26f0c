use emmer::prelude::*;
use std::sync::Arc;

#[derive(Grain)]
struct CounterGrain {
    #[service("pool")]
    pool: Arc<u64>,
}

fn main() {}

use emmer::prelude::*;

#[derive(Grain)]
struct CounterGrain {
    total: Persistent<u64>,
}

fn main() {}

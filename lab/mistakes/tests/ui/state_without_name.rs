use emmer::prelude::*;

#[derive(Grain)]
struct CounterGrain {
    #[state]
    total: Persistent<u64>,
}

fn main() {}

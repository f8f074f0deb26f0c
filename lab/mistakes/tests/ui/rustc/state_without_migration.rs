use emmer::prelude::*;

#[derive(Grain)]
struct CounterGrain {
    #[state("total", version = 2)]
    total: Persistent<u64>,
}

fn main() {}

use emmer::prelude::*;

#[derive(Grain)]
#[placement(local)]
struct CounterGrain {
    total: u64,
}

fn main() {}

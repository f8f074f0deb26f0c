use emmer::prelude::*;

#[derive(Grain)]
struct CounterGrain {
    #[state("total", table = "t")]
    total: Persistent<u64>,
    #[state("sum", version = 0)]
    sum: Persistent<u64>,
}

fn main() {}

use emmer::prelude::*;

#[derive(Grain)]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
    #[state("total")]
    average: Persistent<f64>,
}

fn main() {}

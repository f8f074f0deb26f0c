use emmer::prelude::*;

#[derive(Grain)]
#[grain(idle = "10 minutes")]
struct CounterGrain {
    total: u64,
}

fn main() {}

use emmer::prelude::*;

struct Pool(u8);

#[derive(Grain)]
struct CounterGrain {
    pool: Pool,
}

fn main() {}

use emmer::prelude::*;

struct Pool(u8);

#[derive(Grain)]
struct CounterGrain {
    #[service]
    pool: Pool,
}

fn main() {}

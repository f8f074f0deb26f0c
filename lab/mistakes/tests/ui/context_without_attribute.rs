use emmer::prelude::*;

#[derive(Grain)]
struct CounterGrain {
    ctx: Ctx,
}

fn main() {}

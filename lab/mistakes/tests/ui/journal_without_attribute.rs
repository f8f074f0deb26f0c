
use emmer::prelude::*;

#[derive(Grain)]
struct AccountGrain {
    booked: Journal<u64, u64>,
}

fn main() {}

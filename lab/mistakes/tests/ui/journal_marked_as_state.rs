
use emmer::prelude::*;

#[derive(Grain)]
struct AccountGrain {
    #[state("booked")]
    booked: Journal<u64, u64>,
    #[journal("owner")]
    owner: Persistent<String>,
}

fn main() {}

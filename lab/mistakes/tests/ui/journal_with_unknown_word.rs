
use emmer::prelude::*;

#[derive(Grain)]
struct AccountGrain {
    #[journal("booked", every = 5)]
    booked: Journal<u64, u64>,
    #[journal("other", keep = 0)]
    other: Journal<u64, u64>,
    #[journal("same")]
    same: Journal<u64, u64>,
    #[state("same")]
    again: Persistent<u64>,
}

fn main() {}

use emmer::prelude::*;

#[derive(Grain)]
struct AccountGrain {
    #[journal("booked")]
    booked: Journal<u64, String>,
}

fn main() {}

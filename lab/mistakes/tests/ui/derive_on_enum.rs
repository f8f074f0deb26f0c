use emmer::prelude::*;

#[derive(Grain)]
enum Light {
    Red,
    Green,
}

fn main() {}

use emmer::prelude::*;

#[derive(Grain)]
#[placement(random, require(zone = "a"))]
struct SensorGrain;

#[derive(Grain)]
#[placement(require = "zone")]
struct OtherGrain;

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Plotter {
    async fn plot(&mut self, (x, y): (f64, f64));
}

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Converter {
    async fn into(&self, unit: String) -> u64;
}

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait TwoSinks {
    async fn both(&self, one: Sink<u64>, other: Sink<String>);
}

#[grain_interface(key = String)]
pub trait Borrowed {
    async fn lines(&self, lines: &Sink<u64>);
}

fn main() {}

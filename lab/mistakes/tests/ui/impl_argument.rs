use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Journal {
    async fn note(&mut self, line: impl Into<String>);
}

fn main() {}

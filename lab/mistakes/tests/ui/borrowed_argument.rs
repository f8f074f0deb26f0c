use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Journal {
    async fn note(&mut self, line: &str, tags: &[String]);
}

fn main() {}

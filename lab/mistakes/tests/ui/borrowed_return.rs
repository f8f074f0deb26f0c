use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Journal {
    async fn last_line(&self) -> Option<&str>;
}

fn main() {}

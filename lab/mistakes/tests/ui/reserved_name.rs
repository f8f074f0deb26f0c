use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Locker {
    async fn grain_id(&self) -> u64;
    async fn key(&self) -> String;
}

fn main() {}

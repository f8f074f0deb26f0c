#![deny(unused_must_use)]
use emmer::prelude::*;

#[grain_interface(key = u64)]
pub trait Counter {
    async fn add(&mut self, n: u64);
}

fn add(counter: &CounterRef) {
    counter.add(1);
}

fn main() {}

use std::rc::Rc;

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn total(&self) -> u64;
}

#[derive(Grain)]
struct CounterGrain {
    total: u64,
}

#[grain]
impl Counter for CounterGrain {
    async fn total(&self) -> u64 {
        let total = Rc::new(self.total);
        std::future::ready(()).await;
        *total
    }
}

fn main() {}

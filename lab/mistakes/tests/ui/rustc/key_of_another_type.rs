use emmer::prelude::*;

#[grain_interface(key = u64)]
pub trait Counter {
    async fn total(&self) -> u64;
}

fn counters(client: &Client) {
    let _works = client.grain::<dyn Counter>(1);
    let _text = client.grain::<dyn Counter>("one");
}

fn main() {}

use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Counter {
    async fn total(&self) -> u64;
}

async fn total(client: &Client) -> u64 {
    client.grain::<dyn Counter>(7u64).total().await.unwrap_or_default()
}

fn main() {}

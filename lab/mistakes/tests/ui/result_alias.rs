use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Archive {
    async fn size(&self) -> std::io::Result<u64>;
}

fn main() {}

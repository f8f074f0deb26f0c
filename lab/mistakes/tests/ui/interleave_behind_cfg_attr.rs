use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Pool {
    #[cfg_attr(feature = "wide", always_interleave)]
    async fn take(&self) -> u64;
}

fn main() {}

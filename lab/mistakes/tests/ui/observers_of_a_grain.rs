use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Room {
    async fn join(&mut self, who: ObserverRef<dyn Room>);
}

fn main() {}

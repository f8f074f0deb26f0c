use emmer::prelude::*;
use std::rc::Rc;

#[derive(Grain)]
struct CounterGrain {
    shared: Rc<u8>,
}

fn main() {}

use emmer::prelude::*;

#[observer]
pub trait Answering {
    fn said(&self, line: String) -> bool;
}

#[observer]
pub trait Waiting {
    async fn said(&self, line: String);
}

#[observer]
pub trait Borrowing {
    fn said(&self, line: &str);
}

#[observer]
pub trait Changing {
    fn said(&mut self, line: String);
}

#[observer(key = String)]
pub trait Keyed {
    fn said(&self, line: String);
}

fn main() {}

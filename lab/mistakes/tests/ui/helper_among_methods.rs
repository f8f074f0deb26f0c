use emmer::prelude::*;

#[grain_interface(key = String)]
trait Hello {
    async fn hello(&self) -> String;
}

#[derive(Grain)]
struct HelloGrain;

#[grain]
impl Hello for HelloGrain {
    async fn hello(&self) -> String {
        self.helper()
    }

    fn helper(&self) -> String {
        "hello".to_owned()
    }
}

fn main() {}

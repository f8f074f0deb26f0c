use emmer::GrainError;

#[derive(GrainError)]
enum ShopError {
    SoldOut,
}

fn main() {}

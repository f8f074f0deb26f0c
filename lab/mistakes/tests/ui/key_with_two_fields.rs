use emmer::GrainKey;

#[derive(GrainKey)]
struct OrderId(u64, u64);

fn main() {}

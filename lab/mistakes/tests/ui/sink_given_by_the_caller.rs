use emmer::prelude::*;

#[grain_interface(key = String)]
pub trait Log {
    async fn lines(&self, from: u64, lines: Sink<u64>);
    async fn import(&self, lines: Source<u64>);
}

async fn call(client: Client, sink: Sink<u64>) -> emmer::Result<()> {
    let log = client.grain::<dyn Log>("1");
    log.lines(1, sink);
    log.lines(1).await?;
    log.import(7).await?;
    Ok(())
}

fn main() {}

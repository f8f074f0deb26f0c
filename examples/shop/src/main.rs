//! A silo of the shop: `cargo run -p emmer-example-shop -- http://127.0.0.1:8080`, with the address
//! of a server that answers `GET /prices/tea` with a number.

use std::sync::Arc;

use emmer::Silo;
use emmer_example_shop::{PriceServer, Prices, shop};

#[tokio::main]
async fn main() -> std::process::ExitCode {
    emmer::exit(serve().await)
}

async fn serve() -> emmer::Result<()> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let prices: Arc<dyn Prices> = Arc::new(PriceServer::at(server));
    let silo = shop(Silo::builder())
        .shared_service(prices)
        .store("sqlite://shop.db")
        .gateway("127.0.0.1:30000")
        .start()
        .await?;
    println!("the shop is open: clients find it by the store sqlite://shop.db");
    silo.run_until_stopped().await?;
    Ok(())
}

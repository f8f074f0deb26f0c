//! A silo of the shop: `docs/shop.md` says how it is run.

use std::sync::Arc;

use clap::Parser;
use emmer::config::SiloFlags;
use emmer_example_shop::{PriceServer, Prices, shop};

/// A silo of the shop.
#[derive(Parser)]
struct Args {
    /// The server of prices: it answers `GET /prices/tea` with a number
    #[arg(default_value = "http://127.0.0.1:8080")]
    prices: String,
    #[command(flatten)]
    silo: SiloFlags,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    emmer::exit(serve(Args::parse()).await)
}

async fn serve(args: Args) -> emmer::Result<()> {
    let settings = args.silo.settings(Vec::new())?;
    let prices: Arc<dyn Prices> = Arc::new(PriceServer::at(args.prices));
    let describe = |silo| {
        shop(silo).shared_service(prices).on_start(|_| async {
            println!("the shop is open");
            Ok(())
        })
    };
    emmer::run(&settings, describe).await
}

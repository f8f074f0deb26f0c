//! The grains of a shop, and their services: prices over HTTP, a filter that logs.

mod cart;
mod log;
mod order;
mod prices;
mod stock;

pub use cart::CartGrain;
pub use log::Log;
pub use order::OrderGrain;
pub use prices::{Price, PriceError, PriceServer, Prices};
pub use stock::StockGrain;

use emmer_example_shop_api::{Cart, Order, Stock};

/// Everything of a silo that a test wants too; the prices are its own.
pub fn shop(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.filter_incoming(Log)
        .host::<dyn Cart, CartGrain>()
        .host::<dyn Order, OrderGrain>()
        .host::<dyn Stock, StockGrain>()
}

//! The cart: what a customer wants to buy.

use std::sync::Arc;

use emmer::prelude::*;
use emmer_example_shop_api::{Cart, Line, Order, OrderRef, ShopError, StockRef};
use serde::{Deserialize, Serialize};

use crate::Prices;

/// The stored part of a cart.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    lines: Vec<Line>,
    /// How many orders were made of it.
    orders: u64,
}

/// See [`Cart`].
#[derive(Grain)]
pub struct CartGrain {
    #[service]
    prices: Arc<dyn Prices>,
    #[state("cart")]
    kept: Persistent<Kept>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Cart for CartGrain {
    async fn add(&mut self, article: StockRef, pieces: u32) -> Result<u64, ShopError> {
        let number = article.key().0;
        let price = self.prices.price(&number).await?.ok_or(ShopError::NotSold(number))?;
        let cents = price * u64::from(pieces);
        self.kept.lines.push(Line { article, pieces, cents });
        self.kept.write().await?;
        Ok(self.kept.lines.iter().map(|line| line.cents).sum())
    }

    async fn lines(&self) -> Vec<Line> {
        self.kept.lines.clone()
    }

    async fn buy(&mut self) -> Result<OrderRef, ShopError> {
        if self.kept.lines.is_empty() {
            return Err(ShopError::Empty);
        }
        // The same order if this is tried again: it places itself once.
        let key = (self.ctx.me::<dyn Cart>().key().to_owned(), self.kept.orders);
        let order = self.ctx.grains().grain::<dyn Order>(key);
        order.place(self.kept.lines.clone()).await?;
        self.kept.lines.clear();
        self.kept.orders += 1;
        self.kept.write().await?;
        Ok(order)
    }
}

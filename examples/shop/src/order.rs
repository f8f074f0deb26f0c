//! The order: what a customer has bought.

use emmer::prelude::*;
use emmer_example_shop_api::{CUSTOMER, Line, Order, Receipt, ShopError};

/// See [`Order`].
#[derive(Grain)]
pub struct OrderGrain {
    #[state("receipt")]
    receipt: Persistent<Receipt>,
}

#[grain]
impl Order for OrderGrain {
    async fn place(&mut self, lines: Vec<Line>) -> Result<(), ShopError> {
        if !self.receipt.lines.is_empty() {
            return Ok(());
        }
        for (at, line) in lines.iter().enumerate() {
            if let Err(short) = line.article.take(line.pieces).await {
                for taken in lines.iter().take(at) {
                    taken.article.deliver(taken.pieces).await?;
                }
                return Err(short.into());
            }
        }
        // Nobody on the way from the request to here knows of the customer.
        self.receipt.set(Receipt { customer: CUSTOMER.get(), lines });
        self.receipt.write().await?;
        Ok(())
    }

    async fn receipt(&self) -> Option<Receipt> {
        (!self.receipt.lines.is_empty()).then(|| self.receipt.clone())
    }
}

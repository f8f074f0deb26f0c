//! One article in the warehouse.

use emmer::prelude::*;
use emmer_example_shop_api::{Stock, StockError};

/// See [`Stock`].
#[derive(Grain)]
pub struct StockGrain {
    #[state("pieces")]
    pieces: Persistent<u32>,
}

#[grain]
impl Stock for StockGrain {
    async fn deliver(&mut self, pieces: u32) -> Result<u32, StockError> {
        *self.pieces += pieces;
        self.pieces.write().await?;
        Ok(*self.pieces)
    }

    async fn take(&mut self, pieces: u32) -> Result<u32, StockError> {
        let left = self.pieces.checked_sub(pieces).ok_or(StockError::Few(*self.pieces))?;
        *self.pieces = left;
        self.pieces.write().await?;
        Ok(left)
    }

    async fn left(&self) -> u32 {
        *self.pieces
    }
}

//! The interfaces and values of a shop. A front end needs this crate alone, and links none of the
//! code behind it.

use emmer::calls::ContextKey;
use emmer::prelude::*;
use serde::{Deserialize, Serialize};

/// The customer for whom something is done: goes along with every call that a request leads to.
pub static CUSTOMER: ContextKey<String> = ContextKey::new("customer");

/// The number of an article: the key of its stock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, GrainKey)]
pub struct Article(pub String);

/// One article in the warehouse.
#[grain_interface(key = Article)]
pub trait Stock {
    /// Pieces arrive. Returns how many there are now.
    async fn deliver(&mut self, pieces: u32) -> Result<u32, StockError>;
    /// Pieces leave. Returns how many are left.
    async fn take(&mut self, pieces: u32) -> Result<u32, StockError>;
    /// Returns how many there are.
    async fn left(&self) -> u32;
}

/// What one customer wants to buy.
#[grain_interface(key = String)]
pub trait Cart {
    /// Puts pieces of an article in, and returns what the cart costs now, in cents.
    async fn add(&mut self, article: StockRef, pieces: u32) -> Result<u64, ShopError>;
    /// The lines of the cart.
    async fn lines(&self) -> Vec<Line>;
    /// Buys it, and empties it.
    async fn buy(&mut self) -> Result<OrderRef, ShopError>;
}

/// An order. Its key: the cart's key, and the number of orders before.
#[grain_interface(key = (String, u64))]
pub trait Order {
    /// Takes the articles out of the warehouse, once.
    async fn place(&mut self, lines: Vec<Line>) -> Result<(), ShopError>;
    /// Who has bought, and what.
    async fn receipt(&self) -> Option<Receipt>;
}

/// A line of a cart or of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The article: a reference is data, here in a state and in a result.
    pub article: StockRef,
    /// How many of it.
    pub pieces: u32,
    /// What all of them cost, in cents.
    pub cents: u64,
}

/// What an order says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The customer, if the request named one.
    pub customer: Option<String>,
    /// The bought lines.
    pub lines: Vec<Line>,
}

/// The warehouse cannot do it.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
pub enum StockError {
    /// Too few pieces.
    #[error("only {0} left")]
    Few(u32),
    /// Something else.
    #[error("{0}")]
    #[other]
    Other(emmer::Error),
}

/// The shop cannot do it.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
pub enum ShopError {
    /// No price is known for an article.
    #[error("the shop does not sell {0}")]
    NotSold(String),
    /// There is nothing to buy.
    #[error("the cart is empty")]
    Empty,
    /// The warehouse cannot do it.
    #[error(transparent)]
    Stock(#[from] StockError),
    /// Something else.
    #[error("{0}")]
    #[other]
    Other(emmer::Error),
}

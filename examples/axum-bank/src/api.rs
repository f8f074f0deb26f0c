//! What can be asked of the bank's grains.

use std::fmt;

use emmer::prelude::*;
use serde::{Deserialize, Serialize};

/// An account, by its number.
#[grain_interface(key = String)]
pub trait Account {
    /// Opens it with this much money. If it is open already, nothing changes.
    async fn open(&mut self, cents: u64) -> Result<(), BankError>;
    /// Returns the money on it, in cents; None if it is not open.
    async fn balance(&self) -> Option<u64>;
    /// Takes money for a transfer. A repeated request gets the same answer and takes nothing.
    async fn withdraw(&mut self, transfer: String, cents: u64) -> Result<Withdrawal, BankError>;
    /// Adds the money of a transfer. A repeated request adds nothing.
    async fn deposit(&mut self, transfer: String, cents: u64) -> Result<(), BankError>;
}

/// A transfer, by an identifier that the customer chose.
#[grain_interface(key = String)]
pub trait Transfer {
    /// Moves the money, once. A repeated request continues the transfer, or returns its end.
    async fn make(&mut self, order: Order) -> Result<Ending, BankError>;
    /// Returns the transfer's progress; None if it was never asked for.
    async fn progress(&self) -> Option<Progress>;
}

/// Money to be moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The account it is taken from.
    pub from: String,
    /// The account it goes to.
    pub to: String,
    /// How much, in cents.
    pub cents: u64,
}

/// The answer of the account that pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withdrawal {
    /// The money is off the account.
    Taken,
    /// There was too little on it, or it is not open. That stands for this transfer, also if more
    /// money arrives.
    Refused,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The money has moved.
    Done,
    /// No money has moved.
    Refused,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// It is written down; the first account may have been asked.
    Asked,
    /// The money is off the first account; the second may have it.
    Taken,
    /// It is over.
    Over(Ending),
}

/// The bank does not do it.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
pub enum BankError {
    /// Something is wrong with the order; nothing has happened.
    #[error("{0}")]
    Order(Mistake),
    /// It did not work now: ask again.
    #[error("{0}")]
    #[other]
    Other(emmer::Error),
}

/// A mistake in an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mistake {
    /// No money, or so much that sums could overflow.
    Cents(u64),
    /// Both accounts are the same one.
    SameAccount,
    /// The account that the money goes to is not open.
    NoAccount(String),
    /// The identifier belongs to a transfer of something else.
    OtherTransfer,
}

/// More than any one order or deposit, in cents: ten billion of them fit into a balance.
pub const CENTS_MAX: u64 = 1_000_000_000;

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cents(cents) => write!(f, "{cents} cents: it takes 1 to {CENTS_MAX}"),
            Self::SameAccount => f.write_str("from and to are the same account"),
            Self::NoAccount(number) => write!(f, "the account {number:?} is not open"),
            Self::OtherTransfer => {
                f.write_str("this identifier belongs to a transfer with other accounts or cents")
            }
        }
    }
}

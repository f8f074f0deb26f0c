//! An account.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer::prelude::*;
use emmer::tables::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{Account, BankError, Withdrawal};

/// Time for which an account remembers a transfer. A later request would count as a new transfer,
/// so it is far longer than any request is on its way: a call's deadline is seconds.
const REMEMBERED: Duration = Duration::from_secs(600);

/// See [`Account`].
#[derive(Grain)]
pub struct AccountGrain {
    #[context]
    ctx: Ctx,
    #[state("ledger")]
    ledger: Persistent<Ledger>,
}

/// The money and the transfers are one state: they are stored together or not at all.
#[derive(Default, Serialize, Deserialize)]
struct Ledger {
    cents: Option<u64>,
    /// By transfer: the answer and its time. An account is the first or the second of a transfer,
    /// never both.
    answered: BTreeMap<String, (Withdrawal, Timestamp)>,
}

impl Ledger {
    fn answer(&mut self, transfer: String, answer: Withdrawal, now: Timestamp) {
        self.answered.retain(|_, (_, at)| *at + REMEMBERED > now);
        self.answered.insert(transfer, (answer, now));
    }
}

#[grain]
impl Account for AccountGrain {
    async fn open(&mut self, cents: u64) -> Result<(), BankError> {
        if self.ledger.cents.is_none() {
            self.ledger.cents = Some(cents);
            self.ledger.write().await?;
        }
        Ok(())
    }

    async fn balance(&self) -> Option<u64> {
        self.ledger.cents
    }

    async fn withdraw(&mut self, transfer: String, cents: u64) -> Result<Withdrawal, BankError> {
        if let Some((answer, _)) = self.ledger.answered.get(&transfer) {
            return Ok(*answer);
        }
        let left = self.ledger.cents.and_then(|all| all.checked_sub(cents));
        let answer = if left.is_some() { Withdrawal::Taken } else { Withdrawal::Refused };
        self.ledger.cents = left.or(self.ledger.cents);
        // A refusal is written down as well: the same request may come twice, and the answers must
        // not differ when money has arrived in between.
        let now = self.ctx.now();
        self.ledger.answer(transfer, answer, now);
        self.ledger.write().await?;
        Ok(answer)
    }

    async fn deposit(&mut self, transfer: String, cents: u64) -> Result<(), BankError> {
        if self.ledger.answered.contains_key(&transfer) {
            return Ok(());
        }
        let before =
            self.ledger.cents.ok_or_else(|| emmer::Error::new("the account is not open"))?;
        self.ledger.cents = Some(before + cents);
        let now = self.ctx.now();
        self.ledger.answer(transfer, Withdrawal::Taken, now);
        self.ledger.write().await?;
        Ok(())
    }
}

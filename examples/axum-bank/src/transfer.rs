//! A transfer: two accounts, one after the other. Each is asked until it has answered.
//!
//! Each step is written down when it is known to have happened. If the silo dies, the next
//! activation repeats at most the step under way, and an account does a step once. So it does not
//! matter when a silo dies.

use emmer::prelude::*;
use emmer::reminders::ReminderError;
use serde::{Deserialize, Serialize};

use crate::api::{
    Account, AccountRef, BankError, CENTS_MAX, Ending, Mistake, Order, Progress, Transfer,
    Withdrawal,
};

/// See [`Transfer`].
#[derive(Grain)]
pub struct TransferGrain {
    #[context]
    ctx: Ctx,
    #[state("record")]
    record: Persistent<Option<Record>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Record {
    order: Order,
    progress: Progress,
}

#[grain]
impl Transfer for TransferGrain {
    async fn make(&mut self, order: Order) -> Result<Ending, BankError> {
        match &*self.record {
            Some(known) if known.order != order => {
                return Err(BankError::Order(Mistake::OtherTransfer));
            }
            Some(_) => {}
            None => {
                self.check(&order).await?;
                // The reminder first: if the silo dies between the two, a tick finds nothing to do.
                self.ctx.remind("go on").after(secs(5)).every(secs(5)).await?;
                self.step(order, Progress::Asked).await?;
            }
        }
        self.go_on().await
    }

    async fn progress(&self) -> Option<Progress> {
        self.record.as_ref().map(|record| record.progress)
    }
}

#[grain]
impl TransferGrain {
    /// Nobody else asks again: the customer has gone, or the silo has died.
    #[reminder("go on")]
    async fn on_tick(&mut self, _tick: Tick) -> Result<(), BankError> {
        if self.record.is_some() {
            self.go_on().await?;
        } else {
            self.forget_reminder().await?;
        }
        Ok(())
    }
}

impl TransferGrain {
    async fn check(&self, order: &Order) -> Result<(), BankError> {
        let wrong = |mistake| Err(BankError::Order(mistake));
        if !(1..=CENTS_MAX).contains(&order.cents) {
            return wrong(Mistake::Cents(order.cents));
        }
        if order.from == order.to {
            return wrong(Mistake::SameAccount);
        }
        // Accounts are never closed, so this stays true.
        if self.account(&order.to).balance().await?.is_none() {
            return wrong(Mistake::NoAccount(order.to.clone()));
        }
        Ok(())
    }

    async fn go_on(&mut self) -> Result<Ending, BankError> {
        let id = self.ctx.me::<dyn Transfer>().key().to_owned();
        loop {
            let Some(Record { order, progress }) = self.record.clone() else {
                return Err(emmer::Error::new("there is no such transfer").into());
            };
            let next = match progress {
                Progress::Asked => {
                    let from = self.account(&order.from);
                    match from.withdraw(id.clone(), order.cents).await? {
                        Withdrawal::Taken => Progress::Taken,
                        Withdrawal::Refused => Progress::Over(Ending::Refused),
                    }
                }
                Progress::Taken => {
                    self.account(&order.to).deposit(id.clone(), order.cents).await?;
                    Progress::Over(Ending::Done)
                }
                Progress::Over(ending) => {
                    self.forget_reminder().await?;
                    return Ok(ending);
                }
            };
            self.step(order, next).await?;
        }
    }

    async fn step(&mut self, order: Order, progress: Progress) -> Result<(), StateError> {
        self.record.set(Some(Record { order, progress }));
        self.record.write().await
    }

    async fn forget_reminder(&self) -> Result<(), ReminderError> {
        self.ctx.remove_reminder("go on").await?;
        Ok(())
    }

    fn account(&self, number: &str) -> AccountRef {
        self.ctx.grains().grain::<dyn Account>(number)
    }
}

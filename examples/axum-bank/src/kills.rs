//! Kills silos under a bank at work, one after the other, and counts the money afterwards.
//!
//! Customers move money over HTTP and ask again until they are answered. Some give up, and leave
//! their transfers to the reminders. In the end each account has to have its opening money plus the
//! sum of its finished transfers.

mod customer;
mod silos;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use self::customer::{Bank, Customer, Made};
use self::silos::Silos;
use crate::api::{Ending, Progress};
use crate::web;

const SILOS: usize = 3;
const ACCOUNTS: u64 = 20;
const CUSTOMERS: u64 = 16;
/// What each account is opened with, in cents. Little: some transfers are refused.
const OPENED: u32 = 10_000;
/// The time between two kills is up to this long: silos are killed at work, and while they start.
const PAUSE_MAX_MS: u64 = 1_200;
/// Everything comes to its end within this time after the last kill, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

/// The arguments of the command `kills`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The number of silos that are killed, one after the other
    #[arg(default_value_t = 20)]
    kills: u32,
    /// Which silo is killed when, and who pays whom: the same number makes the same choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the bank, kills, and compares.
///
/// # Errors
/// Money was made or lost, a transfer has no end, or a process could not be started.
pub async fn run(Args { kills, seed }: Args) -> emmer::Result<()> {
    let dir = tempfile::tempdir()?;
    let store = format!("sqlite://{}?mode=rwc", dir.path().join("bank.db").display());
    let mut silos = Silos::start(SILOS, &store, dir.path()).await?;
    let client = Client::connect(store.as_str(), "bank").await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let bank = Bank::at(listener.local_addr()?);
    let server = axum::serve(listener, web::routes(client));
    let server = tokio::spawn(server.into_future());
    for account in 0..ACCOUNTS {
        bank.open(account, OPENED).await;
    }

    println!("{SILOS} silos, {ACCOUNTS} accounts, {CUSTOMERS} customers, seed {seed}");
    let is_over = Arc::new(AtomicBool::new(false));
    let customers: Vec<_> = (0..CUSTOMERS)
        .map(|number| Customer::new(number, seed, ACCOUNTS, bank.clone(), Arc::clone(&is_over)))
        .map(|customer| tokio::spawn(customer.shop()))
        .collect();
    let mut rng = StdRng::seed_from_u64(seed);
    for killed in 1..=kills {
        sleep(Duration::from_millis(rng.random_range(0..PAUSE_MAX_MS))).await;
        silos.kill_and_start(rng.random_range(0..SILOS)).await?;
        if killed % 20 == 0 || killed == kills {
            println!("{killed} kills");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let mut made = Vec::new();
    for customer in customers {
        made.extend(customer.await?);
    }
    let report = count(&bank, made).await?;
    server.abort();
    println!("{report}");
    Ok(())
}

/// Waits until every transfer is over, and compares each account with its expected money.
async fn count(bank: &Bank, made: Vec<Made>) -> emmer::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let opened = (0..ACCOUNTS).map(|account| (account, i64::from(OPENED)));
    // An account may be below zero for a moment: transfers are not added in their order.
    let mut expected: BTreeMap<u64, i64> = opened.collect();
    let (mut done, mut refused, mut left) = (0_u64, 0_u64, 0_u64);
    for Made { id, from, to, cents, told } in &made {
        left += u64::from(told.is_none());
        let ending = match told {
            Some(ending) => *ending,
            None => loop {
                match bank.progress(id).await {
                    Some(Progress::Over(ending)) => break ending,
                    // The bank knows the transfer: a reminder has to finish it.
                    Some(_) if Instant::now() < deadline => {
                        sleep(Duration::from_millis(200)).await;
                    }
                    Some(progress) => {
                        let text = format!("the transfer {id} has no end: it is {progress:?}");
                        return Err(emmer::Error::new(text));
                    }
                    // The bank has never heard of it. The request may still be on its way, so the
                    // customer repeats it.
                    None => break bank.transfer(id, *from, *to, *cents).await,
                }
            },
        };
        match ending {
            Ending::Refused => refused += 1,
            Ending::Done => {
                done += 1;
                *expected.entry(*to).or_default() += i64::from(*cents);
                *expected.entry(*from).or_default() -= i64::from(*cents);
            }
        }
    }
    let mut wrong = Vec::new();
    let mut total = 0;
    for (account, cents) in &expected {
        let has = bank.balance(*account).await;
        total += has;
        if i64::try_from(has) != Ok(*cents) {
            wrong.push(format!("account {account} has {has} cents and should have {cents}"));
        }
    }
    let before = ACCOUNTS * u64::from(OPENED);
    if total != before || !wrong.is_empty() {
        let text = format!("{before} cents before, {total} after; {}", wrong.join(", "));
        return Err(emmer::Error::new(text));
    }
    let count = made.len();
    Ok(format!(
        "{count} transfers: {done} done, {refused} refused; {left} were given up by their customers\n\
         {before} cents before, {total} after, and each account has what its transfers add up to"
    ))
}

//! The promises of the bank, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test")]

use emmer::prelude::*;
use emmer::test::World;
use emmer_example_axum_bank::api::{
    Account, BankError, CENTS_MAX, Ending, Mistake, Order, Progress, Transfer, Withdrawal,
};
use emmer_example_axum_bank::bank;

fn order(from: &str, to: &str, cents: u64) -> Order {
    Order { from: from.to_owned(), to: to.to_owned(), cents }
}

#[emmer::test]
async fn a_transfer_moves_its_money_once(world: World) {
    let cluster = world.cluster(2, bank).await;
    let client = cluster.client().await;
    let account = |number: &str| client.grain::<dyn Account>(number);
    let transfer = |id: &str| client.grain::<dyn Transfer>(id);
    account("ann").open(100).await.unwrap();
    account("bob").open(0).await.unwrap();
    assert_eq!(transfer("1").progress().await.unwrap(), None);
    for _ in 0..3 {
        let ending = transfer("1").make(order("ann", "bob", 70)).await.unwrap();
        assert_eq!(ending, Ending::Done);
    }
    assert_eq!(account("ann").balance().await.unwrap(), Some(30));
    assert_eq!(account("bob").balance().await.unwrap(), Some(70));
    // An account that is opened again keeps its money.
    account("ann").open(1_000).await.unwrap();
    assert_eq!(account("ann").balance().await.unwrap(), Some(30));
}

/// A request that arrives twice must not get two answers.
#[emmer::test]
async fn a_refusal_stands_when_money_has_arrived(world: World) {
    let cluster = world.cluster(2, bank).await;
    let client = cluster.client().await;
    let ann = client.grain::<dyn Account>("ann");
    ann.open(10).await.unwrap();
    assert_eq!(ann.withdraw("1".to_owned(), 50).await.unwrap(), Withdrawal::Refused);
    ann.deposit("2".to_owned(), 100).await.unwrap();
    assert_eq!(ann.withdraw("1".to_owned(), 50).await.unwrap(), Withdrawal::Refused);
    assert_eq!(ann.balance().await.unwrap(), Some(110));
}

#[emmer::test]
async fn mistakes_move_nothing(world: World) {
    let cluster = world.cluster(2, bank).await;
    let client = cluster.client().await;
    let ann = client.grain::<dyn Account>("ann");
    ann.open(100).await.unwrap();
    for (wrong, expected) in [
        (order("ann", "bob", 0), Mistake::Cents(0)),
        (order("ann", "bob", u64::MAX), Mistake::Cents(u64::MAX)),
        (order("ann", "bob", CENTS_MAX + 1), Mistake::Cents(CENTS_MAX + 1)),
        (order("ann", "ann", 1), Mistake::SameAccount),
        (order("ann", "bob", 1), Mistake::NoAccount("bob".to_owned())),
    ] {
        let answer = client.grain::<dyn Transfer>("1").make(wrong).await;
        let Err(CallError::App(BankError::Order(mistake))) = answer else { panic!("{answer:?}") };
        assert_eq!(mistake, expected);
    }
    client.grain::<dyn Account>("bob").open(0).await.unwrap();
    client.grain::<dyn Transfer>("1").make(order("ann", "bob", 40)).await.unwrap();
    let answer = client.grain::<dyn Transfer>("1").make(order("ann", "bob", 41)).await;
    let Err(CallError::App(BankError::Order(mistake))) = answer else { panic!("{answer:?}") };
    assert_eq!(mistake, Mistake::OtherTransfer);
    assert_eq!(ann.balance().await.unwrap(), Some(60));
}

/// The customer asks once and goes away; silos die at any moment of the transfer.
#[emmer::test(seeds = 8)]
async fn a_transfer_whose_customer_has_gone_comes_to_its_end(world: World) {
    let mut cluster = world.cluster(3, bank).await;
    let client = cluster.client().await;
    let (ann, bob) = (client.grain::<dyn Account>("ann"), client.grain::<dyn Account>("bob"));
    ann.open(1_000).await.unwrap();
    bob.open(0).await.unwrap();
    for n in 0..12_u64 {
        let transfer = client.grain::<dyn Transfer>(n.to_string());
        let patience = millis(1 + 3 * n);
        // The answer is ignored: the transfer was asked for, and no client repeats it.
        let _ = transfer.make(order("ann", "bob", 10)).timeout(patience).await;
        let victim = usize::try_from(n % 3).unwrap();
        cluster.kill(victim);
        cluster.restart(victim).await;
    }
    world.advance(secs(120)).await;
    let mut moved = 0;
    for n in 0..12_u64 {
        match client.grain::<dyn Transfer>(n.to_string()).progress().await.unwrap() {
            Some(Progress::Over(Ending::Done)) => moved += 10,
            None => {}
            other => panic!("transfer {n}: {other:?}"),
        }
    }
    assert!(moved > 0, "no request has arrived: the patience is too short");
    assert_eq!(ann.balance().await.unwrap(), Some(1_000 - moved));
    assert_eq!(bob.balance().await.unwrap(), Some(moved));
}

//! Calls in virtual time that a test counts, delays and lets fail.

use emmer::prelude::*;
use emmer::test::{CallFault, Cluster, World};

#[grain_interface(key = String)]
trait Account {
    async fn deposit(&mut self, n: u64) -> u64;
    async fn total(&self) -> u64;
}

#[derive(Grain)]
struct AccountGrain {
    total: u64,
}

#[grain]
impl Account for AccountGrain {
    async fn deposit(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }

    async fn total(&self) -> u64 {
        self.total
    }
}

/// A grain that calls another one.
#[grain_interface(key = String)]
trait Teller {
    async fn deposit(&mut self, n: u64) -> Result<u64, String>;
    async fn post(&mut self, n: u64) -> bool;
}

#[derive(Grain)]
struct TellerGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Teller for TellerGrain {
    async fn deposit(&mut self, n: u64) -> Result<u64, String> {
        let account = self.ctx.grains().grain::<dyn Account>("a");
        account.deposit(n).await.map_err(|e| e.code().to_owned())
    }

    async fn post(&mut self, n: u64) -> bool {
        self.ctx.grains().grain::<dyn Account>("a").deposit(n).send().is_ok()
    }
}

async fn bank(world: &World, silos: usize) -> (Cluster, AccountRef, TellerRef) {
    let host = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Account, AccountGrain>().host::<dyn Teller, TellerGrain>()
    };
    let cluster = world.cluster(silos, host).await;
    let client = cluster.client().await;
    (cluster, client.grain::<dyn Account>("a"), client.grain::<dyn Teller>("t"))
}

#[emmer::test(seeds = 3)]
async fn calls_of_clients_and_of_grains_are_counted_once_each(world: World) {
    let (_cluster, account, teller) = bank(&world, 3).await;
    account.deposit(1).await.unwrap();
    teller.deposit(1).await.unwrap();
    account.total().await.unwrap();
    assert_eq!(world.calls("account.deposit").count(), 2);
    assert_eq!(world.calls("account").count(), 3);
    assert_eq!(world.calls("teller.deposit").count(), 1);
    assert_eq!((world.calls("acc").count(), world.calls("account.dep").count()), (0, 0));
}

#[emmer::test]
async fn a_delayed_call_takes_longer_and_its_deadline_does_not_wait(world: World) {
    let (_cluster, account, _) = bank(&world, 1).await;
    account.deposit(1).await.unwrap();
    let deposit = world.calls("account.deposit");
    deposit.delay(secs(3));
    let before = world.elapsed();
    assert_eq!(account.deposit(1).await.unwrap(), 2);
    assert!((secs(3)..secs(4)).contains(&(world.elapsed() - before)));
    let late = account.deposit(1).timeout(secs(2)).await.unwrap_err();
    assert!(matches!(late, CallError::Timeout { maybe_executed: false, .. }), "{late}");
    deposit.recover();
    let before = world.elapsed();
    assert_eq!(account.total().await.unwrap(), 2);
    assert_eq!(account.deposit(1).await.unwrap(), 3);
    assert!(world.elapsed() - before < secs(1));
}

#[emmer::test]
async fn the_next_calls_fail_in_order_and_do_not_run(world: World) {
    let (_cluster, account, teller) = bank(&world, 2).await;
    let deposit = world.calls("account.deposit");
    deposit
        .fail_next(CallFault::Unreachable)
        .fail_next(CallFault::Overloaded)
        .fail_next(CallFault::Rejected);
    let unreachable = account.deposit(1).await.unwrap_err();
    assert_eq!((unreachable.code(), unreachable.maybe_executed()), ("unreachable", false));
    assert_eq!(teller.deposit(1).await.unwrap_err().to_string(), "overloaded");
    assert_eq!(account.deposit(1).await.unwrap_err().code(), "rejected");
    assert_eq!(account.total().await.unwrap(), 0);
    assert_eq!(account.deposit(1).await.unwrap(), 1);
    assert_eq!(deposit.count(), 4);
}

#[emmer::test]
async fn all_fail_until_they_recover(world: World) {
    let (_cluster, account, _) = bank(&world, 1).await;
    let all = world.calls("account");
    all.fail(CallFault::Unreachable);
    for _ in 0..3 {
        account.deposit(1).await.unwrap_err();
        account.total().await.unwrap_err();
    }
    all.recover();
    assert_eq!(account.deposit(1).await.unwrap(), 1);
}

#[emmer::test]
async fn a_call_whose_answer_is_lost_has_run(world: World) {
    let (_cluster, account, _) = bank(&world, 2).await;
    world.calls("account.deposit").fail_next(CallFault::LostAnswer);
    let lost = account.deposit(5).await.unwrap_err();
    assert_eq!((lost.code(), lost.maybe_executed()), ("unreachable", true));
    assert_eq!(account.total().await.unwrap(), 5);
}

#[emmer::test]
async fn one_way_calls_are_delayed_and_lost_as_well(world: World) {
    let (_cluster, account, teller) = bank(&world, 2).await;
    let deposit = world.calls("account.deposit");
    deposit.fail_next(CallFault::Unreachable).fail_next(CallFault::Overloaded);
    assert!(teller.post(1).await.unwrap(), "it is lost without a word");
    assert!(!teller.post(1).await.unwrap());
    deposit.delay(secs(5));
    assert!(teller.post(1).await.unwrap());
    account.deposit(1).send().unwrap();
    world.advance(secs(4)).await;
    assert_eq!(account.total().await.unwrap(), 0);
    world.advance(secs(2)).await;
    assert_eq!(account.total().await.unwrap(), 2);
    assert_eq!(deposit.count(), 4);
}

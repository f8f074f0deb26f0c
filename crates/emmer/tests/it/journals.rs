//! Journals: events that are stored, and the state that they add up to.

use std::time::Duration;

use emmer::metrics::MetricValue;
use emmer::prelude::*;
use emmer::state::{Apply, Migrate, StoredState};
use emmer::tables::ClusterId;
use emmer::test::{Failure, World};
use emmer_store::contract::Mutation;
use emmer_store::state::GRAIN_STATE;
use emmer_store::table::Value;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
enum Booked {
    In(u64),
    Out { amount: u64, to: AccountRef },
    Note(String),
    Poison,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Sheet {
    balance: i64,
    partners: Vec<AccountRef>,
}

impl Apply<Booked> for Sheet {
    fn apply(&mut self, event: &Booked) {
        match event {
            Booked::In(amount) => self.balance += *amount as i64,
            Booked::Out { amount, to } => {
                self.balance -= *amount as i64;
                self.partners.push(to.clone());
            }
            Booked::Note(_) => {}
            Booked::Poison => {
                self.balance = -1;
                panic!("the state cannot take this")
            }
        }
    }
}

#[grain_interface(key = String)]
trait Account {
    async fn pay_in(&mut self, amounts: Vec<u64>) -> Result<i64, StateError>;
    /// Gives the append up after a millisecond; true if it was done by then.
    async fn pay_in_quickly(&mut self, amount: u64) -> bool;
    async fn pay(&mut self, amount: u64, to: AccountRef) -> Result<i64, StateError>;
    async fn note(&mut self, text: String) -> Result<(), StateError>;
    async fn poison(&mut self) -> Result<(), StateError>;
    /// Catches the panic.
    async fn survive_poison(&mut self);
    async fn balance(&self) -> i64;
    async fn events(&self) -> u64;
    async fn history(&self, from: u64, limit: usize) -> Result<Vec<(u64, u64)>, StateError>;
    /// Of the last account that money went to.
    async fn partners_balance(&self) -> i64;
    async fn clear(&mut self) -> Result<(), StateError>;
}

macro_rules! account {
    ($class:ident, $state:ty, $($journal:tt)*) => {
        #[derive(Grain)]
        struct $class {
            #[$($journal)*]
            booked: Journal<Booked, $state>,
        }

        #[grain]
        impl Account for $class {
            async fn pay_in(&mut self, amounts: Vec<u64>) -> Result<i64, StateError> {
                self.booked.append_all(amounts.into_iter().map(Booked::In).collect()).await?;
                Ok(self.booked.balance)
            }

            async fn pay_in_quickly(&mut self, amount: u64) -> bool {
                let append = self.booked.append(Booked::In(amount));
                tokio::time::timeout(Duration::from_millis(1), append).await.is_ok()
            }

            async fn pay(&mut self, amount: u64, to: AccountRef) -> Result<i64, StateError> {
                self.booked.append(Booked::Out { amount, to }).await?;
                Ok(self.booked.balance)
            }

            async fn note(&mut self, text: String) -> Result<(), StateError> {
                self.booked.append(Booked::Note(text)).await
            }

            async fn poison(&mut self) -> Result<(), StateError> {
                self.booked.append(Booked::Poison).await
            }

            async fn survive_poison(&mut self) {
                use futures_util::FutureExt;
                let append = std::panic::AssertUnwindSafe(self.booked.append(Booked::Poison));
                assert!(append.catch_unwind().await.is_err());
            }

            async fn balance(&self) -> i64 {
                self.booked.balance
            }

            async fn events(&self) -> u64 {
                self.booked.events()
            }

            async fn history(&self, from: u64, limit: usize) -> Result<Vec<(u64, u64)>, StateError> {
                let found = self.booked.history(from, limit).await?.into_iter();
                let amount = |event| if let Booked::In(amount) = event { amount } else { 0 };
                Ok(found.map(|(number, event)| (number, amount(event))).collect())
            }

            async fn partners_balance(&self) -> i64 {
                self.booked.partners.last().unwrap().balance().await.unwrap()
            }

            async fn clear(&mut self) -> Result<(), StateError> {
                self.booked.clear().await
            }
        }
    };
}

account!(AccountGrain, Sheet, journal("booked", snapshot = 3));
account!(ShortGrain, Sheet, journal("booked", snapshot = 2, keep = 4));
account!(NewGrain, NewSheet, journal("booked", snapshot = 3, version = 2));

/// The second version of the state: it counts in hundredths.
#[derive(Debug, Default, Deserialize, Serialize)]
struct NewSheet {
    balance: i64,
    partners: Vec<AccountRef>,
    migrated: bool,
}

impl Apply<Booked> for NewSheet {
    fn apply(&mut self, event: &Booked) {
        let mut sheet = Sheet::default();
        sheet.apply(event);
        self.balance += 100 * sheet.balance;
        self.partners.append(&mut sheet.partners);
    }
}

impl Migrate for NewSheet {
    fn migrate(_: u32, old: StoredState<'_>) -> emmer::Result<Self> {
        let Sheet { balance, partners } = old.decode()?;
        Ok(Self { balance: 100 * balance, partners, migrated: true })
    }
}

/// The rows of an account in the store, without their common beginning.
async fn rows(world: &World, key: &str) -> Vec<String> {
    let service = ClusterId::new("dev").unwrap();
    let grain_type = <dyn Account as emmer::interface::Interface>::GRAIN_TYPE;
    let partition = emmer_store::keys::partition(&service, grain_type, &key.into());
    let rows = world.store().tables().read_partition(&GRAIN_STATE, &partition).await.unwrap();
    rows.iter().map(|row| row.row.key().replace("booked", "").replace("0000", "")).collect()
}

async fn all_new(cluster: &mut emmer::test::Cluster, n: usize) -> Client {
    for n in 0..n {
        cluster.kill(n);
        cluster.restart(n).await;
    }
    cluster.client().await
}

#[emmer::test]
async fn events_survive_their_silos_and_so_do_references_in_them(world: World) {
    let mut cluster = world.cluster(2, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let (a, b) = (client.grain::<dyn Account>("a"), client.grain::<dyn Account>("b"));
    assert_eq!((a.balance().await.unwrap(), a.events().await.unwrap()), (0, 0));
    for n in 1..=5 {
        a.pay_in(vec![n, 10 * n]).await.unwrap();
    }
    assert_eq!(a.pay(65, b.clone()).await.unwrap(), 100);
    b.pay_in(vec![7]).await.unwrap();
    assert_eq!(a.pay_in(vec![]).await.unwrap(), 100);
    let own: Vec<String> = rows(&world, "a").await;
    // The head, an append each, and the snapshot of the first three.
    assert_eq!(own.len(), 8, "{own:?}");
    assert!(own.iter().filter(|row| row.contains("~s")).eq(["~s0003"]), "{own:?}");

    let client = all_new(&mut cluster, 2).await;
    let a = client.grain::<dyn Account>("a");
    assert_eq!(a.balance().timeout(secs(60)).await.unwrap(), 100);
    assert_eq!(a.events().await.unwrap(), 11);
    assert_eq!(a.partners_balance().await.unwrap(), 7);
    let history = a.history(3, 4).await.unwrap();
    assert_eq!(history, [(3, 20), (4, 3), (5, 30), (6, 4)]);
    for from in 0..13 {
        let found = a.history(from, 2).await.unwrap();
        let numbers = found.iter().map(|(number, _)| *number);
        assert!(numbers.eq((from..11).take(2)), "{found:?}");
    }

    // A new version of the state reads the old snapshot, and the events behind it.
    cluster.describe(|silo| silo.host::<dyn Account, NewGrain>());
    let client = all_new(&mut cluster, 2).await;
    let a = client.grain::<dyn Account>("a");
    assert_eq!(a.balance().timeout(secs(60)).await.unwrap(), 10_000);
    assert_eq!(a.partners_balance().await.unwrap(), 700);
    assert_eq!(a.pay_in(vec![1]).await.unwrap(), 10_100);
}

#[emmer::test]
async fn old_events_go_where_a_journal_keeps_a_number_of_them(world: World) {
    let mut cluster = world.cluster(1, |silo| silo.host::<dyn Account, ShortGrain>()).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    for n in 1..=50u64 {
        a.pay_in(vec![n]).await.unwrap();
        let rows = rows(&world, "a").await;
        // The head, the snapshot, and kept appends; two more are in no snapshot yet.
        assert!(rows.len() <= 2 + 4 + 2, "after {n}: {rows:?}");
    }
    let kept = a.history(0, 100).await.unwrap();
    assert!(kept.len() >= 4 && kept.last() == Some(&(49, 50)), "{kept:?}");
    assert!(kept.iter().all(|(number, amount)| number + 1 == *amount), "{kept:?}");
    let client = all_new(&mut cluster, 1).await;
    let a = client.grain::<dyn Account>("a");
    assert_eq!(a.balance().timeout(secs(60)).await.unwrap(), 50 * 51 / 2);
    a.clear().await.unwrap();
    assert_eq!(rows(&world, "a").await, Vec::<String>::new());
    assert_eq!((a.balance().await.unwrap(), a.events().await.unwrap()), (0, 0));
    assert_eq!(a.history(0, 9).await.unwrap(), []);
    assert_eq!(a.pay_in(vec![3]).await.unwrap(), 3);
    assert_eq!(a.history(0, 9).await.unwrap(), [(0, 3)]);
    a.clear().await.unwrap();
    a.clear().await.unwrap();
}

#[emmer::test(seeds = 5)]
async fn an_append_that_fails_is_stored_or_not_as_its_error_says(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    let mut expected = 0;
    for n in 0..40u64 {
        let how = [Failure::Conflict, Failure::LostAnswer, Failure::Unavailable, Failure::Refused];
        let how = how[n as usize % 4];
        world.store().fail_next_write("s.a", how);
        let before = a.events().await.unwrap();
        let error = match a.pay_in(vec![1, 1]).await {
            Err(CallError::App(error)) => error,
            other => panic!("{how:?}: {other:?}"),
        };
        let maybe = match &error {
            StateError::EtagMismatch { .. } => false,
            StateError::Store { maybe_written, .. } => *maybe_written,
            other => panic!("{how:?}: {other}"),
        };
        assert_eq!(maybe, how == Failure::LostAnswer, "{error}");
        let after = a.events().await.unwrap();
        // The write that failed may have been the snapshot.
        assert!(after == before || (maybe && after == before + 2), "{how:?}: {before} {after}");
        expected += after - before;
        assert_eq!(a.balance().await.unwrap(), expected as i64, "{how:?}");
        a.pay_in(vec![1]).await.unwrap();
        expected += 1;
    }
    assert_eq!(a.history(0, 1_000).await.unwrap().len() as u64, expected);
}

#[emmer::test(seeds = 5)]
async fn an_append_that_is_given_up_half_way_ends_its_activation(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    a.pay_in(vec![1]).await.unwrap();
    world.store().be_slow(millis(5));
    for _ in 0..5 {
        assert!(!a.pay_in_quickly(10).await.unwrap());
    }
    world.store().recover();
    // All of them were on their way to the store, and a slow store executes them.
    tokio::time::sleep(secs(1)).await;
    let (balance, events) = (a.balance().await.unwrap(), a.events().await.unwrap());
    assert_eq!(balance, 1 + 10 * (events as i64 - 1));
    assert_eq!(a.history(0, 100).await.unwrap().len() as u64, events);
}

#[emmer::test]
async fn what_the_state_cannot_take_or_is_too_large_is_not_stored(world: World) {
    let describe = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Account, AccountGrain>()
            .configure(|options| options.limits.state_bytes_max = 8 << 10)
    };
    let cluster = world.cluster(1, describe).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    a.pay_in(vec![5]).await.unwrap();
    let error = a.poison().await.unwrap_err();
    assert!(matches!(&error, CallError::Panicked { .. }), "{error}");
    assert_eq!((a.balance().await.unwrap(), a.events().await.unwrap()), (5, 1));
    let error = a.note("x".repeat(8 << 10)).await.unwrap_err();
    assert!(matches!(&error, CallError::App(StateError::TooLarge { .. })), "{error}");
    assert!(error.to_string().contains("\"booked\" of account/a has 8"), "{error}");
    assert_eq!(a.pay_in(vec![1]).await.unwrap(), 6);
    assert_eq!(a.events().await.unwrap(), 2);
}

#[emmer::test]
async fn what_states_do_is_counted(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    for n in 0..5 {
        a.pay_in(vec![n]).await.unwrap();
    }
    world.store().fail_next_write("s.a", Failure::Conflict);
    a.pay_in(vec![1]).await.unwrap_err();
    a.clear().await.unwrap();
    let metrics = cluster.node(0).watch().metrics().into_iter();
    let counted: Vec<_> =
        metrics.filter(|sample| sample.metric.name == "emmer_state_operations_total").collect();
    for (labels, count) in [
        (["append", "ok"], 5),
        (["append", "conflict"], 1),
        (["snapshot", "ok"], 2),
        (["clear", "ok"], 2),
        (["write", "ok"], 0),
    ] {
        let found = counted.iter().find(|sample| sample.labels.iter().eq(labels)).unwrap();
        assert_eq!(found.value, MetricValue::Count(count), "{labels:?}");
    }
}

#[emmer::test]
async fn no_activation_has_more_to_read_than_the_appends_between_two_snapshots(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    for n in 1..=20u64 {
        a.pay_in(vec![1, 1]).await.unwrap();
        let rows = rows(&world, "a").await;
        let snapshots = rows.iter().filter_map(|row| row.strip_prefix("~s")?.parse::<u64>().ok());
        let snapshots: Vec<_> = snapshots.collect();
        assert!(snapshots.len() <= 1, "{rows:?}");
        let behind = n - snapshots.first().copied().unwrap_or(0);
        assert!((1..=3).contains(&behind), "{behind} behind the snapshot of {rows:?}");
    }
}

/// A panic of `apply` that the method catches leaves a state that is not what its events add up to.
#[emmer::test]
async fn a_state_that_was_changed_half_way_is_never_stored(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let a = cluster.client().await.grain::<dyn Account>("a");
    a.pay_in(vec![5]).await.unwrap();
    let _ = a.survive_poison().await;
    assert_eq!((a.balance().await.unwrap(), a.events().await.unwrap()), (5, 1));
}

/// A state that only grows.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Notes(Vec<String>);

impl Apply<String> for Notes {
    fn apply(&mut self, event: &String) {
        self.0.push(event.clone());
    }
}

#[grain_interface(key = String)]
trait Notebook {
    async fn note(&mut self, text: String) -> Result<(), StateError>;
    async fn clear(&mut self) -> Result<usize, StateError>;
}

#[derive(Grain)]
struct NotebookGrain {
    #[journal("notes", snapshot = 5)]
    notes: Journal<String, Notes>,
}

#[grain]
impl Notebook for NotebookGrain {
    async fn note(&mut self, text: String) -> Result<(), StateError> {
        self.notes.append(text).await
    }

    async fn clear(&mut self) -> Result<usize, StateError> {
        self.notes.clear().await?;
        Ok(self.notes.0.len())
    }
}

#[emmer::test]
async fn a_journal_whose_state_has_outgrown_its_bound_can_be_cleared(world: World) {
    let describe = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Notebook, NotebookGrain>()
            .configure(|options| options.limits.state_bytes_max = 8 << 10)
    };
    let cluster = world.cluster(1, describe).await;
    let book = cluster.client().await.grain::<dyn Notebook>("a");
    for _ in 0..5 {
        book.note("x".repeat(2_000)).await.unwrap();
    }
    let error = book.note("y".to_owned()).await.unwrap_err();
    assert!(matches!(&error, CallError::App(StateError::TooLarge { .. })), "{error}");
    assert_eq!(book.clear().await.unwrap(), 0);
    book.note("z".to_owned()).await.unwrap();
}

#[emmer::test]
async fn a_clear_that_fails_half_way_leaves_the_state_as_it_is(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let a = client.grain::<dyn Account>("a");
    for _ in 0..20 {
        a.pay_in(vec![1]).await.unwrap();
    }
    // The first commit that removes rows goes well, the second does not.
    world.store().fail_next_write("booked~000000000010", Failure::Unavailable);
    a.clear().await.unwrap_err();
    assert_eq!((a.balance().await.unwrap(), a.events().await.unwrap()), (20, 20));
    assert_eq!(a.history(0, 1).await.unwrap(), [(8, 1)]);
    assert_eq!(a.pay_in(vec![1]).await.unwrap(), 21);
    a.clear().await.unwrap();
    assert_eq!(rows(&world, "a").await, Vec::<String>::new());
}

/// Rows as an administrator, or another version of the program, may have left them.
#[emmer::test]
async fn rows_that_do_not_fit_fail_the_activation_with_words(world: World) {
    let mut cluster = world.cluster(1, |silo| silo.host::<dyn Account, AccountGrain>()).await;
    let client = cluster.client().await;
    let tables = world.store().tables();
    let partition = |key: &str| {
        let (service, key) = (ClusterId::new("dev").unwrap(), GrainKey::from(key));
        emmer_store::keys::partition(
            &service,
            <dyn Account as emmer::interface::Interface>::GRAIN_TYPE,
            &key,
        )
    };
    for key in ["a", "b", "c", "d"] {
        let account = client.grain::<dyn Account>(key);
        for _ in 0..5 {
            account.pay_in(vec![1]).await.unwrap();
        }
    }
    let delete = |row: &str| vec![Mutation::Delete { row_key: row.to_owned(), etag: None }];
    let gone = [("a", "booked~s000000000003"), ("b", "booked~000000000005")];
    for (key, row) in gone {
        tables.commit(&GRAIN_STATE, &partition(key), delete(row)).await.unwrap();
    }
    let head = tables.read_row(&GRAIN_STATE, &partition("c"), "booked").await.unwrap().unwrap();
    let row = head.row.with("Payload", Value::Bytes((*b"{}").into()));
    tables.commit(&GRAIN_STATE, &partition("c"), vec![Mutation::Upsert { row }]).await.unwrap();
    let head = tables.read_row(&GRAIN_STATE, &partition("d"), "booked").await.unwrap().unwrap();
    let row = head.row.with("Format", Value::Text("msgpack".into()));
    tables.commit(&GRAIN_STATE, &partition("d"), vec![Mutation::Upsert { row }]).await.unwrap();
    let client = all_new(&mut cluster, 1).await;
    for (key, words) in [
        ("a", "rows of the journal are missing"),
        ("b", "rows of the journal are missing"),
        ("c", "the head of the journal: missing field"),
        ("d", "the row is a state, no journal"),
    ] {
        let balance = client.grain::<dyn Account>(key).balance().timeout(secs(60)).await;
        let error = balance.unwrap_err().to_string();
        assert!(error.contains("\"booked\"") && error.contains(words), "{key}: {error}");
    }
    client.grain::<dyn Account>("e").pay_in(vec![1]).await.unwrap();
}

//! A store that hangs while others answer, and rows that no silo has written.

use std::sync::Arc;

use emmer::SiloBuilder;
use emmer::prelude::*;
use emmer::reminders::Tick;
use emmer::store::SystemStore;
use emmer::tables::Timestamp;
use emmer_store::table::{ColumnType, Value};
use emmer_store::{TABLES, TableDecl};
use serde::{Deserialize, Serialize};

use super::imp::run;
use crate::common::{held::HeldStore, store};

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Added(u64);

#[derive(Debug, Default, Deserialize, Serialize)]
struct Sum(u64);

impl emmer::state::Apply<Added> for Sum {
    fn apply(&mut self, event: &Added) {
        self.0 += event.0;
    }
}

#[grain_interface(key = u64)]
trait Book {
    async fn add(&mut self, n: u64) -> emmer::Result<u64>;
    async fn remind(&self) -> emmer::Result<()>;
    async fn hello(&self) -> u64;
}

#[derive(Grain)]
struct BookGrain {
    #[state("total")]
    total: Persistent<u64>,
    #[journal("events")]
    events: Journal<Added, Sum>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Book for BookGrain {
    async fn add(&mut self, n: u64) -> emmer::Result<u64> {
        self.total.modify(|total| *total += n);
        self.total.write().await?;
        self.events.append(Added(n)).await?;
        Ok(*self.total + self.events.0)
    }

    async fn remind(&self) -> emmer::Result<()> {
        self.ctx.remind("soon").every(secs(1)).await?;
        Ok(())
    }

    async fn hello(&self) -> u64 {
        7
    }
}

#[grain]
impl BookGrain {
    #[reminder("soon")]
    async fn soon(&mut self, _: Tick) {}
}

/// A grain that stores nothing.
#[grain_interface(key = u64)]
trait Plain {
    async fn hello(&self) -> u64;
}

#[derive(Grain, Default)]
struct PlainGrain;

#[grain]
impl Plain for PlainGrain {
    async fn hello(&self) -> u64 {
        7
    }
}

/// A grain whose state is in a store of its own.
#[grain_interface(key = u64)]
trait Slow {
    async fn add(&mut self, n: u64) -> emmer::Result<u64>;
}

#[derive(Grain)]
struct SlowGrain {
    #[state("total", store = "slow")]
    total: Persistent<u64>,
}

#[grain]
impl Slow for SlowGrain {
    async fn add(&mut self, n: u64) -> emmer::Result<u64> {
        self.total.modify(|total| *total += n);
        self.total.write().await?;
        Ok(*self.total)
    }
}

fn builder(store: Arc<dyn SystemStore>) -> SiloBuilder {
    Silo::builder()
        .store(store)
        .host::<dyn Book, BookGrain>()
        .host::<dyn Plain, PlainGrain>()
        .configure(|options| options.shutdown_timeout = secs(3))
        .on_terminate(|_| {})
}

/// The grains of that store wait, each call to its deadline; all others continue.
#[test]
fn a_state_store_that_hangs_holds_up_its_own_grains_only() {
    run(2, 60, async {
        let slow = HeldStore::over(&store());
        let silo = builder(store()).host::<dyn Slow, SlowGrain>();
        let silo = silo.state_store("slow", slow.clone() as Arc<dyn SystemStore>);
        let silo = silo.start().await.unwrap();
        let grains = silo.grains();
        assert_eq!(grains.grain::<dyn Slow>(1u64).add(1).await.unwrap(), 1);
        slow.hold(true);
        let mut waiting = tokio::task::JoinSet::new();
        for key in 0..200_u64 {
            let call = grains.grain::<dyn Slow>(key % 50).add(1).timeout(secs(2));
            waiting.spawn(async move { call.await });
        }
        for key in 0..200_u64 {
            let book = grains.grain::<dyn Book>(key);
            assert_eq!(book.add(2).timeout(secs(1)).await.unwrap(), 4);
        }
        while let Some(ended) = waiting.join_next().await {
            assert!(matches!(ended.unwrap(), Err(CallError::Timeout { .. })));
        }
        slow.hold(false);
        // A hanging call is done or given up; the grain counts from the stored value.
        let total = grains.grain::<dyn Slow>(1u64).add(1).timeout(secs(5)).await.unwrap();
        assert!((2..10).contains(&total), "{total}");
        assert!(!silo.has_ended());
        slow.hold(true);
        // A stop is over in its time, whatever waits for the store.
        let hangs = grains.grain::<dyn Slow>(60u64).add(1).timeout(secs(30));
        let hangs = tokio::spawn(async move { hangs.await });
        tokio::time::timeout(secs(10), silo.stop()).await.unwrap().unwrap();
        assert!(hangs.await.unwrap().is_err());
    });
}

/// Values of a column that no silo writes.
fn hostile(column: ColumnType) -> Vec<Value> {
    match column {
        ColumnType::Int => [i64::MIN, -1, 0, i64::MAX].map(Value::Int).to_vec(),
        ColumnType::Time => {
            [i64::MIN, -1, i64::MAX].map(|ms| Value::Time(Timestamp::from_millis(ms))).to_vec()
        }
        ColumnType::Bytes => vec![
            Value::Bytes(Arc::from([])),
            Value::Bytes(Arc::from([0xff; 64])),
            // Arrays in arrays, deeper than any stack.
            Value::Bytes(Arc::from(vec![0x91; 1 << 20])),
        ],
        ColumnType::List => {
            vec![Value::List(Vec::new()), Value::List(vec!["\u{1b}[2J".into(); 1_000])]
        }
        _ => ["", "\u{0}", "x", "-1", "99999999999999999999", "/", "a/b/c"]
            .map(|text| Value::Text(text.into()))
            .to_vec(),
    }
}

/// A call of a grain that ends in whatever way but by a fault of the runtime.
fn is_orderly(ended: &Result<(), CallError<emmer::Error>>) {
    let is_fault = matches!(ended, Err(CallError::Internal { .. } | CallError::Panicked { .. }));
    assert!(!is_fault, "{ended:?}");
}

/// Reads a table with a wrong value in a column: an active grain continues, calls end.
async fn read(silo: &Silo, key: u64) {
    let grains = silo.grains();
    let book = grains.grain::<dyn Book>(key);
    is_orderly(&book.add(1).timeout(secs(3)).await.map(drop));
    is_orderly(&book.remind().timeout(secs(3)).await);
}

/// Every column of the tables of grains and reminders, one after the other.
#[test]
fn rows_that_no_silo_has_written_end_their_own_calls_only() {
    run(2, 200, async {
        let bent = HeldStore::over(&store());
        let silo = builder(bent.clone()).start().await.unwrap();
        let plain = silo.grain::<dyn Plain>(1u64);
        let mut key = 0;
        for table in TABLES.iter().filter(|table| !table.name.starts_with("silo")) {
            for column in table.columns {
                for value in hostile(column.column_type) {
                    key += 1;
                    // There is something to bend, and its grain reads it again.
                    read(&silo, key).await;
                    bent.bend(Some((table.name, column.name, value.clone())));
                    silo.grain::<dyn Book>(key).hello().await.unwrap();
                    read(&silo, key).await;
                    read(&silo, key + 100_000).await;
                    bent.bend(None);
                    let what = format!("{}.{} = {value:?}", table.name, column.name);
                    assert_eq!(plain.hello().timeout(secs(1)).await, Ok(7), "{what:.200}");
                    assert!(!silo.has_ended(), "{what:.200}");
                }
            }
        }
        // Another silo reads them all when it starts.
        silo.stop().await.unwrap();
    });
}

/// A silo that finds such members may end, or not start; it never panics, and says why.
#[test]
fn members_that_no_silo_has_written_end_a_silo_in_good_order() {
    run(2, 200, async {
        let tables: Vec<&TableDecl> =
            TABLES.iter().copied().filter(|table| table.name.starts_with("silo")).collect();
        for column in tables.iter().flat_map(|table| table.columns.iter().map(move |c| (table, c)))
        {
            let (table, column) = column;
            for value in hostile(column.column_type) {
                let what = format!("{}.{} = {value:?}", table.name, column.name);
                let shared = store();
                let bent = HeldStore::over(&shared);
                let first = builder(shared.clone()).start().await.unwrap();
                bent.bend(Some((table.name, column.name, value)));
                let begun = builder(bent.clone()).start();
                match tokio::time::timeout(secs(1), begun).await {
                    Ok(Ok(second)) => second.stop_now().await,
                    Ok(Err(why)) => assert!(!why.to_string().is_empty(), "{what:.200}"),
                    // It tries again, as with a store that is away.
                    Err(_) => {}
                }
                let plain = first.grains().grain::<dyn Plain>(1u64);
                // The first try may have gone to the silo that ends.
                let tries = [plain.hello().timeout(secs(5)).await, plain.hello().await];
                assert!(tries.contains(&Ok(7)) && !first.has_ended(), "{what:.200}: {tries:?}");
                first.stop_now().await;
            }
        }
    });
}

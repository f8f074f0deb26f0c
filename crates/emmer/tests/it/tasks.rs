//! Tasks of the application at a silo's start and end, and grains that ask to stay.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use emmer::SiloBuilder;
use emmer::errors::StartError;
use emmer::prelude::*;
use emmer::test::World;

#[grain_interface(key = String)]
trait Log {
    async fn note(&mut self, line: String) -> usize;
    async fn lines(&self) -> usize;
    async fn stay(&self, minutes: u64);
}

#[derive(Grain)]
#[grain(idle = "1m")]
struct LogGrain {
    lines: Vec<String>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Log for LogGrain {
    async fn note(&mut self, line: String) -> usize {
        self.lines.push(line);
        self.lines.len()
    }

    async fn lines(&self) -> usize {
        self.lines.len()
    }

    async fn stay(&self, minutes: u64) {
        self.ctx.keep_for(Duration::from_secs(60 * minutes));
    }
}

fn quick(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn Log, LogGrain>()
        .configure(|options| options.collection_quantum = Some(Duration::from_secs(1)))
}

#[emmer::test]
async fn a_grain_stays_as_long_as_it_asked_for(world: World) {
    let cluster = world.cluster(1, quick).await;
    let client = cluster.client().await;
    let [kept, other] = ["kept", "other"].map(|key| client.grain::<dyn Log>(key));
    for log in [&kept, &other] {
        log.note("x".to_owned()).await.unwrap();
    }
    kept.stay(10).await.unwrap();
    world.advance(Duration::from_secs(5 * 60)).await;
    assert_eq!((kept.lines().await.unwrap(), other.lines().await.unwrap()), (1, 0));
    // Asked for again, and then left alone.
    kept.stay(2).await.unwrap();
    world.advance(Duration::from_secs(4 * 60)).await;
    assert_eq!(kept.lines().await.unwrap(), 0);
}

#[emmer::test]
async fn tasks_run_once_active_and_before_the_silo_leaves(world: World) {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = said.clone();
    let cluster = world
        .cluster(2, move |silo| {
            let (first, second, last) = (told.clone(), told.clone(), told.clone());
            quick(silo)
                .on_start(move |client| async move {
                    let lines = client.grain::<dyn Log>("start").note("a".to_owned()).await?;
                    first.lock().unwrap().push(format!("start {lines}"));
                    Ok(())
                })
                .on_start(move |client| async move {
                    assert!(client.silo().is_some());
                    second.lock().unwrap().push("second".to_owned());
                    Ok(())
                })
                .before_leave(move |client| async move {
                    let lines = client.grain::<dyn Log>("end").note("z".to_owned()).await;
                    last.lock().unwrap().push(format!("end {lines:?}"));
                })
                .before_leave(|_| async { panic!("its own affair") })
        })
        .await;
    assert_eq!(*said.lock().unwrap(), ["start 1", "second", "start 2", "second"]);
    cluster.stop(0).await;
    assert_eq!(said.lock().unwrap().last().unwrap(), "end Ok(1)");
    // A silo that is killed does nothing of the kind.
    cluster.kill(1);
    assert_eq!(said.lock().unwrap().len(), 5);
}

/// Counts the warnings about tasks that are waited for.
#[derive(Clone, Default)]
struct Waits(Arc<AtomicU32>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Waits {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().fields().field("waited").is_some() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[emmer::test]
async fn the_log_says_that_a_start_waits_for_a_task(world: World) {
    use tracing_subscriber::prelude::*;
    let waits = Waits::default();
    let subscriber = tracing_subscriber::registry().with(waits.clone());
    let _default = tracing::subscriber::set_default(subscriber);
    let slow = |silo: SiloBuilder| {
        silo.on_start(|_| async {
            tokio::time::sleep(secs(35)).await;
            Ok(())
        })
    };
    world.cluster(1, slow).await;
    assert_eq!(waits.0.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_silo_whose_startup_task_fails_does_not_start_and_leaves() {
    let store = "memory://startup-task";
    let failing = Silo::builder()
        .store(store)
        .host::<dyn Log, LogGrain>()
        .on_start(|_| async { Ok("x".parse::<u8>().map(drop)?) })
        .start()
        .await;
    let error = failing.unwrap_err();
    assert!(matches!(error, StartError::Startup(_)));
    assert_eq!(format!("{error:?}"), "a startup task failed: invalid digit found in string");
    let panicking = Silo::builder().store(store).on_start(|_| async { panic!("no luck") }).start();
    assert!(format!("{:?}", panicking.await.unwrap_err()).contains("no luck"));
    // Other silos find an empty table.
    let silo = Silo::builder().store(store).start().await.unwrap();
    assert_eq!(
        silo.view().members().iter().filter(|m| m.status.to_string() == "Active").count(),
        1
    );
    silo.stop().await.unwrap();
}

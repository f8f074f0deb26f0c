//! Services: what the application gives to its grains, and classes that a constructor makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use emmer::errors::StartError;
use emmer::interface::Services;
use emmer::prelude::*;
use emmer::test::World;

/// No `Default`: it has to be given.
struct Pool {
    name: String,
    asked: AtomicU32,
}

impl Pool {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), asked: AtomicU32::new(0) }
    }
}

trait Mailer: Send + Sync {
    fn send(&self, to: &str) -> String;
}

struct Post;

impl Mailer for Post {
    fn send(&self, to: &str) -> String {
        format!("posted to {to}")
    }
}

#[grain_interface(key = String)]
trait Desk {
    async fn pool(&self) -> String;
    async fn mail(&self) -> Option<String>;
}

#[derive(Grain)]
struct DeskGrain {
    #[service]
    pool: Arc<Pool>,
    #[service]
    mailer: Option<Arc<dyn Mailer>>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Desk for DeskGrain {
    async fn pool(&self) -> String {
        self.pool.asked.fetch_add(1, Ordering::Relaxed);
        let same = self.ctx.service::<Pool>().unwrap();
        assert!(Arc::ptr_eq(&same, &self.pool));
        self.pool.name.clone()
    }

    async fn mail(&self) -> Option<String> {
        self.mailer.as_ref().map(|mailer| mailer.send(self.ctx.me::<dyn Desk>().key()))
    }
}

/// As `main` describes it.
fn in_production(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.service(Pool::new("production")).host::<dyn Desk, DeskGrain>()
}

#[emmer::test]
async fn grains_share_what_the_silo_was_given(world: World) {
    let pool = Arc::new(Pool::new("shared"));
    let given = pool.clone();
    let cluster = world
        .cluster(2, move |silo| {
            let mailer: Arc<dyn Mailer> = Arc::new(Post);
            in_production(silo).shared_service(mailer).shared_service(given.clone())
        })
        .await;
    let client = cluster.client().await;
    for key in ["a", "b", "c"] {
        let desk = client.grain::<dyn Desk>(key);
        assert_eq!(desk.pool().await.unwrap(), "shared", "the last one counts");
        assert_eq!(desk.mail().await.unwrap(), Some(format!("posted to {key}")));
    }
    assert_eq!(pool.asked.load(Ordering::Relaxed), 3);
}

#[emmer::test]
async fn a_service_may_be_missing_where_the_field_says_so(world: World) {
    let cluster = world.cluster(1, in_production).await;
    let desk = cluster.client().await.grain::<dyn Desk>("a");
    assert_eq!((desk.pool().await, desk.mail().await), (Ok("production".to_owned()), Ok(None)));
}

#[tokio::test]
async fn a_silo_without_a_service_that_is_needed_does_not_start() {
    let silo = Silo::builder().store("memory://").host::<dyn Desk, DeskGrain>();
    let error = silo.start().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StartError::NoService { field: "pool", .. }), "{text}");
    for word in ["DeskGrain", "Pool", "`pool`", ".service(...)"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(format!("{error:?}"), text);
}

#[derive(Grain)]
#[grain(constructor, name = "made")]
struct MadeGrain {
    #[state("visits")]
    visits: Persistent<u32>,
    pool: Arc<Pool>,
    seal: std::num::NonZeroU8,
}

#[grain]
impl Desk for MadeGrain {
    async fn pool(&self) -> String {
        format!("{} {}", self.pool.name, self.seal)
    }

    async fn mail(&self) -> Option<String> {
        self.visits.exists().then(|| self.visits.to_string())
    }
}

/// Refuses the key "bad", panics for "worse".
fn make(ctx: &Ctx, services: &Services) -> Result<MadeGrain, ActivationError> {
    let key = ctx.key().to_string();
    assert_ne!(key, "worse", "no such desk");
    if key == "bad" {
        return Err(ActivationError::new("nobody sits there"));
    }
    let pool = services.get().ok_or_else(|| ActivationError::new("no pool"))?;
    let seal = key.parse::<std::num::NonZeroU8>()?;
    Ok(MadeGrain { visits: Persistent::default(), pool, seal })
}

#[emmer::test]
async fn a_constructor_makes_the_grain_and_its_states_are_read(world: World) {
    let alone =
        world.alone(|silo| silo.service(Pool::new("p")).host_with::<dyn Desk, MadeGrain>(make));
    let (_cluster, client) = alone.start().await;
    let desk = |key: &str| client.grain::<dyn Desk>(key).of("made");
    assert_eq!(desk("7").pool().await.unwrap(), "p 7");
    assert_eq!(desk("7").mail().await.unwrap(), None);
    for (key, words) in
        [("bad", "nobody sits there"), ("zero", "invalid digit"), ("worse", "no such desk")]
    {
        let error = desk(key).pool().await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.maybe_executed());
    }
    assert_eq!(desk("8").pool().await.unwrap(), "p 8", "the others are as they were");
}

#[tokio::test]
async fn a_class_with_a_constructor_is_not_hosted_without_one() {
    let silo = Silo::builder().store("memory://").host::<dyn Desk, MadeGrain>();
    let text = silo.start().await.unwrap_err().to_string();
    assert!(text.contains("MadeGrain") && text.contains(".host_with(...)"), "{text}");
}

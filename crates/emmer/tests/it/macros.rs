//! Code that the macros make of a user's code: it compiles without a warning under strict lints,
//! and works on a silo.

#![deny(
    warnings,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    refining_impl_trait,
    clippy::all
)]

use emmer::__rt::{BytesMut, Hosted, Interface, Method};
use emmer::prelude::*;
use emmer_wire::codec;
use serde_json::json;

/// An interface crate as it would be shared with clients.
pub mod api {
    use emmer::prelude::*;
    use serde::{Deserialize, Serialize};

    /// The example of the README, and the rest of what an interface may have.
    #[grain_interface(key = String)]
    pub trait Counter {
        /// Adds `n` and returns the new total.
        async fn add(&mut self, n: u64) -> Result<u64, StateError>;
        /// The total.
        async fn total(&self) -> u64;
        /// A type whose name is made like the generated ones.
        async fn stats(&self) -> CounterStats;
        /// Names that are not plain, an argument that came later, one that the expansion uses
        /// itself.
        async fn r#move(
            &mut self,
            r#type: String,
            #[serde(default)] args: Option<u8>,
        ) -> Result<(), Refused>;
        /// Still served, warned of where it is called.
        #[deprecated = "add one instead"]
        async fn increment(&mut self);
        /// Not compiled, nowhere.
        #[cfg(any())]
        async fn never(&self, nothing: NoSuchType);
    }

    /// Answer of `stats`.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CounterStats {
        /// Number of moves.
        pub moves: u32,
        /// Whose.
        pub owner: String,
    }

    /// The application's own error.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Refused(pub String);
}

use api::{
    Counter, CounterAddArgs, CounterMoveArgs, CounterRef, CounterStats, CounterTotalArgs, Refused,
};

#[derive(Grain, Default)]
#[placement(prefer_local)]
#[grain(idle = "10m")]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
    moves: u32,
    #[context]
    ctx: Option<Ctx>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        self.total.modify(|t| *t += n);
        self.total.write().await?;
        Ok(*self.total)
    }

    async fn total(&self) -> u64 {
        *self.total
    }

    async fn stats(&self) -> CounterStats {
        let owner = self.ctx.as_ref().map(|ctx| ctx.key().to_string()).unwrap_or_default();
        CounterStats { moves: self.moves, owner }
    }

    async fn r#move(&mut self, mut r#type: String, args: Option<u8>) -> Result<(), Refused> {
        if let Some(n) = args {
            r#type.push_str(&n.to_string());
            return Err(Refused(r#type));
        }
        self.moves += 1;
        Ok(())
    }

    async fn increment(&mut self) {
        self.total.modify(|t| *t += 1);
    }
}

#[test]
fn an_interface_knows_its_names_and_numbers() {
    assert_eq!(<dyn Counter as Interface>::NAME, "Counter");
    assert_eq!(<dyn Counter as Interface>::GRAIN_TYPE, "counter");
    assert_eq!(CounterMoveArgs::NAME, "move");
    assert_eq!(CounterAddArgs::ID, emmer::__rt::name32("Counter.add"));
    const { assert!(CounterAddArgs::EXCLUSIVE && !CounterTotalArgs::EXCLUSIVE) };

    let methods = <dyn Counter as Hosted<CounterGrain>>::methods();
    let listed: Vec<_> = methods.iter().map(|m| (m.name, m.info.exclusive)).collect();
    let [exclusive, shared] = [true, false];
    let expected = [
        ("Counter.add", exclusive),
        ("Counter.total", shared),
        ("Counter.stats", shared),
        ("Counter.move", exclusive),
        ("Counter.increment", exclusive),
    ];
    assert_eq!(listed, expected);
}

#[test]
fn arguments_travel_by_name_and_may_grow() {
    let travels = |args: &dyn Fn(&mut BytesMut)| {
        let mut body = BytesMut::new();
        args(&mut body);
        codec::decode::<serde_json::Value>(&body).unwrap()
    };
    let arrives = |json: serde_json::Value| {
        let mut body = BytesMut::new();
        codec::encode_into(&mut body, &json).unwrap();
        body
    };
    let move_up = CounterMoveArgs { r#type: "up".to_owned(), args: Some(1) };
    let sent = travels(&|body| move_up.encode_args(body).unwrap());
    assert_eq!(sent, json!({ "type": "up", "args": 1 }));
    assert_eq!(travels(&|body| CounterTotalArgs {}.encode_args(body).unwrap()), json!({}));

    let old = CounterMoveArgs::decode_args(&arrives(json!({ "type": "up" }))).unwrap();
    assert_eq!(old.args, None);
    let newer = arrives(json!({ "unknown": { "a": [1, "b"] }, "n": 3 }));
    assert_eq!(CounterAddArgs::decode_args(&newer).unwrap().n, 3);

    let refused = |json| CounterAddArgs::decode_args(&arrives(json)).err().unwrap().to_string();
    assert_eq!(refused(json!({})), "cannot decode Counter.add: missing field `n`");
    assert!(
        refused(json!({ "n": "three" })).starts_with("cannot decode Counter.add: `n` is no u64")
    );
    assert!(refused(json!([3])).ends_with("expected a map from name to value"));
    let twice = [0x82, 0xa1, b'n', 1, 0xa1, b'n', 2];
    let twice = CounterAddArgs::decode_args(&twice).err().unwrap().to_string();
    assert_eq!(twice, "cannot decode Counter.add: duplicate field `n`");
}

#[test]
fn a_result_is_split_into_success_and_error() {
    assert_eq!(CounterAddArgs::split(Ok(1)), Ok(1));
    assert_eq!(
        CounterMoveArgs::split(Err(Refused("no".to_owned()))),
        Err(Refused("no".to_owned()))
    );
    assert_eq!(CounterTotalArgs::split(7), Ok(7));
}

#[tokio::test]
async fn the_expansion_works_on_a_silo() {
    let silo = Silo::builder()
        .store("memory://")
        .host::<dyn Counter, CounterGrain>()
        .start()
        .await
        .unwrap();
    let home: CounterRef = silo.grain::<dyn Counter>("home");
    assert_eq!(home.add(2).await, Ok(2));
    assert_eq!(home.add(1).timeout(secs(5)).await, Ok(3));
    assert_eq!(home.total().await, Ok(3));
    assert_eq!(home.r#move("up".to_owned(), None).await, Ok(()));
    let refused = home.r#move("up".to_owned(), Some(2)).await;
    assert_eq!(refused, Err(CallError::App(Refused("up2".to_owned()))));
    assert_eq!(home.stats().await, Ok(CounterStats { moves: 1, owner: "home".to_owned() }));

    let again = silo.grain::<dyn Counter>(String::from("home"));
    assert_eq!(again, home);
    assert_eq!(home.key().to_string(), "home");
    assert_ne!(silo.grain::<dyn Counter>("away").grain_id(), home.grain_id());
    silo.stop().await.unwrap();
}

#[test]
fn interfaces_and_classes_may_live_in_a_function() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Point(f64, f64);

    #[grain_interface(key = u64, grain = "canvas")]
    trait Plotter {
        async fn plot(&mut self, at: Point) -> usize;
    }

    #[derive(Grain)]
    struct PlotterGrain<T: Default + Send + Sync + 'static> {
        points: Vec<Point>,
        #[expect(dead_code, reason = "only its type matters")]
        style: T,
    }

    impl<T: Default + Send + Sync + 'static> Lifecycle for PlotterGrain<T> {}

    #[grain]
    impl<T: Default + Send + Sync + 'static> Plotter for PlotterGrain<T> {
        async fn plot(&mut self, at: Point) -> usize {
            self.points.push(at);
            self.points.len()
        }
    }

    assert_eq!(<dyn Plotter as Interface>::GRAIN_TYPE, "canvas");
    assert_eq!(<dyn Plotter as Hosted<PlotterGrain<u8>>>::methods().len(), 1);
}

/// A class that its author advises against makes no warning of the generated code.
#[deny(deprecated)]
mod advised_against {
    use emmer::prelude::*;

    #[grain_interface(key = String)]
    pub(super) trait Old {
        async fn one(&self) -> u64;
    }

    #[deprecated(note = "use another one")]
    #[derive(Grain)]
    pub(super) struct OldGrain {}

    #[allow(deprecated)]
    #[grain]
    impl Old for OldGrain {
        async fn one(&self) -> u64 {
            1
        }
    }
}

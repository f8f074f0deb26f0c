//! `emmer state` on a store that a silo has written.

use emmer::prelude::*;
use serde_json::{Value, json};

use crate::harness::{failure, run, store_in};

#[grain_interface(key = u64)]
trait Cart {
    async fn add(&mut self, item: String) -> emmer::Result<()>;
}

#[derive(Grain)]
struct CartGrain {
    #[state("items")]
    items: Persistent<Vec<String>>,
    #[journal("log")]
    log: Journal<String, Adds>,
}

#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
struct Adds {
    count: u64,
}

impl emmer::state::Apply<String> for Adds {
    fn apply(&mut self, _: &String) {
        self.count += 1;
    }
}

#[grain]
impl Cart for CartGrain {
    async fn add(&mut self, item: String) -> emmer::Result<()> {
        self.log.append(item.clone()).await?;
        self.items.push(item);
        Ok(self.items.write().await?)
    }
}

#[test]
fn the_states_of_a_grain_are_printed_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let silo = Silo::builder().store(&*store).cluster_id("test").host::<dyn Cart, CartGrain>();
        let silo = silo.start().await.unwrap();
        silo.grain::<dyn Cart>(17).add("tea".to_owned()).await.unwrap();
        silo.stop().await.unwrap();
    });
    let base = ["--store", &store, "--cluster-id", "test"];
    let output = run(&[&["state", "cart", "17"], &base[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let states = document["states"].as_array().unwrap();
    let of = |name: &str| states.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(of("items")["value"], json!(["tea"]));
    assert_eq!(of("items")["grain"], "cart/u.17");
    assert_eq!(of("items")["format"], "msgpack");
    assert_eq!(of("log")["value"]["events"], 1);
    // The number of events before, and the events.
    assert_eq!(of("log~000000000001")["value"], json!([0, ["tea"]]));
    assert_eq!(states.len(), 3);

    let (code, said) = failure(&run(&[&["state", "cart", "18"], &base[..]].concat()));
    assert_eq!(code, 1);
    let at = "no state in the service test under cart/s.18, cart/u.18, cart/i.18";
    assert!(said.contains(at), "{said}");
}

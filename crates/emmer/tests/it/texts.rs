//! Text that people give: what no row can hold is refused before anything begins, all else arrives
//! as it is.

use std::sync::Arc;
use std::time::Duration;

use emmer::errors::StartError;
use emmer::options::SiloOptions;
use emmer::prelude::*;
use emmer::store::{MemoryStore, SiloTable, StoreErrorKind, SystemStore};
use emmer::tables::SiloEntry;

use crate::common::{self, Counter};

/// An option that is a line of text, and how it is set.
type Text = (&'static str, fn(&mut SiloOptions, String));

const TEXTS: [Text; 2] =
    [("name", |o, text| o.name = Some(text)), ("role", |o, text| o.role = Some(text))];

/// Traces of a silo that is refused: none; its port is free, and the store was not touched.
async fn nothing_is_left(store: &Arc<dyn SystemStore>, listen: std::net::SocketAddr) {
    let table = SiloTable::new(store.clone(), ClusterId::new("dev").unwrap());
    let read = table.read_all().await.map(|(_, rows): (_, Vec<SiloEntry>)| rows.len());
    assert_eq!(read.map_err(|e| e.kind), Err(StoreErrorKind::NotFound), "no table was made");
    drop(std::net::TcpListener::bind(listen).unwrap());
}

#[tokio::test]
async fn a_name_or_role_that_is_no_line_of_text_is_refused() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let long = "x".repeat(257);
    let wrong = [
        ("a\0b\nc", "control character"),
        ("\u{1b}[31mred", "control character"),
        ("next\u{85}line", "control character"),
        ("", "is empty"),
        (long.as_str(), "257 bytes"),
    ];
    let each = TEXTS.iter().flat_map(|option| wrong.iter().map(move |wrong| (*option, *wrong)));
    for ((option, set), (text, says)) in each {
        let store: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
        let silo = Silo::builder().store(store.clone()).listen(free).on_terminate(|_| {});
        let start = silo.configure(|o| set(o, text.to_owned())).start();
        // A late refusal is tried again without end.
        let started =
            tokio::time::timeout(Duration::from_secs(20), start).await.expect("an answer");
        let refused = started.expect_err(text);
        let said = refused.to_string();
        assert!(matches!(refused, StartError::Option(_)), "{refused:?}");
        let begins = format!("{option}: ");
        assert!(said.starts_with(&begins) && said.contains(says), "{text:?}: {said}");
        assert!(said.contains("1 to 256 bytes without control characters"), "{text:?}: {said}");
        assert!(!said.chars().any(char::is_control), "{said:?}");
        nothing_is_left(&store, free).await;
    }
}

#[tokio::test]
async fn any_other_name_and_role_is_in_the_table() {
    let longest = "ä".repeat(128);
    for name in ["silo 1", "ж/%~'\";--", "🦀", longest.as_str()] {
        let store = common::store();
        let silo = Silo::builder().store(store.clone()).on_terminate(|_| {});
        let all = |o: &mut SiloOptions| TEXTS.iter().for_each(|(_, set)| set(o, name.to_owned()));
        let silo = silo.configure(all).start().await.unwrap();
        let table = SiloTable::new(store, ClusterId::new("dev").unwrap());
        let (_, rows) = table.read_all().await.unwrap();
        let found: Vec<_> = rows.iter().map(|row| (&*row.instance_name, &*row.role_name)).collect();
        assert_eq!(found, [(name, name)]);
        silo.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_grain_may_have_any_key_and_keeps_its_state() {
    let (_, silos) = common::cluster(1).await;
    let silo = &silos[0];
    let longest = "\n".repeat(1024);
    let keys = ["", "a\0b", "a\nb", "a%0Ab", "a/b", "..", "~", "\u{85}", " ", longest.as_str()];
    for key in keys {
        silo.grains()
            .grain::<dyn Counter>(key)
            .add(1)
            .await
            .unwrap_or_else(|e| panic!("{key:?}: {e}"));
    }
    for key in keys {
        let counter = silo.grain::<dyn Counter>(key);
        counter.rest().await.unwrap();
        assert_eq!(counter.total().await.unwrap(), 1, "{key:?}");
    }
}

#[tokio::test]
async fn an_address_of_a_store_is_one_line() {
    for url in ["memory://a\0b", "sqlite://a\nb.db", "sqlite:///a\u{1b}[2J", "mem\nory://a"] {
        let refused = Silo::builder().store(url).start().await.unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("control character"), "{said}");
        assert!(!said.chars().any(char::is_control), "{said:?}");
        let refused = Client::builder().store(url).connect().await.unwrap_err().to_string();
        assert!(refused.contains("control character"), "{refused}");
    }
}

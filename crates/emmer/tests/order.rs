//! Calls that nobody waits for arrive in the order in which they were made.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use common::settle;
use emmer::prelude::*;

const CALLS: u64 = 50;
const GRAINS: u64 = 40;

#[grain_interface(key = u64)]
trait Diary {
    async fn note(&mut self, what: u64);
    async fn note_late(&mut self, what: u64);
    async fn noted(&self) -> Vec<u64>;
}

#[derive(Grain)]
struct DiaryGrain {
    noted: Vec<u64>,
}

#[grain]
impl Diary for DiaryGrain {
    async fn note(&mut self, what: u64) {
        self.noted.push(what);
    }

    async fn note_late(&mut self, what: u64) {
        tokio::task::yield_now().await;
        self.noted.push(what);
    }

    async fn noted(&self) -> Vec<u64> {
        self.noted.clone()
    }
}

async fn in_order(n: usize) {
    let (store, mut silos) = (common::store(), Vec::new());
    for _ in 0..n {
        let silo = Silo::builder().store(store.clone()).host::<dyn Diary, DiaryGrain>().on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    settle(&silos, n).await;
    for key in 0..GRAINS {
        let diary = silos[0].client().grain::<dyn Diary>(key);
        for what in 0..CALLS {
            // Through references of its own, too: they know nothing of the way.
            let fresh = silos[0].client().grain::<dyn Diary>(key);
            let diary = if what % 3 == 0 { &fresh } else { &diary };
            let sent = if what % 2 == 0 { diary.note(what).send() } else { diary.note_late(what).send() };
            sent.unwrap();
        }
        let mut noted = Vec::new();
        while noted.len() < usize::try_from(CALLS).unwrap() {
            noted = diary.noted().await.unwrap();
        }
        assert_eq!(noted, (0..CALLS).collect::<Vec<_>>(), "grain {key} of {n} silos");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unawaited_calls_keep_their_order_from_the_first_one_on() {
    in_order(1).await;
    in_order(3).await;
}

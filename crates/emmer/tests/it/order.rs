//! Calls without a waiting caller arrive in the order in which they were made.

use emmer::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::common::{self, settle};

const CALLS: u64 = 50;
const GRAINS: u64 = 40;

#[grain_interface(key = u64)]
trait Diary {
    async fn note(&mut self, what: u64);
    async fn note_late(&mut self, what: u64);
    async fn noted(&self) -> Vec<u64>;
    async fn at(&self) -> String;
    /// Asks to move, and holds the grain for a while.
    async fn go_soon(&mut self, to: String, ms: u64);
}

#[derive(Grain)]
struct DiaryGrain {
    #[context]
    ctx: Ctx,
    #[carry]
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

    async fn at(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }

    async fn go_soon(&mut self, to: String, ms: u64) {
        self.ctx.move_to(to.parse().unwrap());
        tokio::time::sleep(millis(ms)).await;
    }
}

async fn in_order(n: usize) {
    let (store, mut silos) = (common::store(), Vec::new());
    for _ in 0..n {
        let silo = Silo::builder()
            .store(store.clone())
            .host::<dyn Diary, DiaryGrain>()
            .on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    settle(&silos, n).await;
    for key in 0..GRAINS {
        let diary = silos[0].grains().grain::<dyn Diary>(key);
        for what in 0..CALLS {
            // Also through fresh references, which know nothing of the way.
            let fresh = silos[0].grains().grain::<dyn Diary>(key);
            let diary = if what % 3 == 0 { &fresh } else { &diary };
            let sent =
                if what % 2 == 0 { diary.note(what).send() } else { diary.note_late(what).send() };
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

/// An answer that takes long to encode, as a large one does: the thread is held meanwhile.
#[derive(Deserialize)]
struct Heavy;

/// Longer than a call may be kept without being polled.
const HELD_FOR: std::time::Duration = millis(300);

impl Serialize for Heavy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        std::thread::sleep(HELD_FOR);
        serializer.serialize_unit_struct("Heavy")
    }
}

static HOLDS: Notify = Notify::const_new();
static GO_ON: Notify = Notify::const_new();

#[grain_interface(key = u64)]
trait Desk {
    /// Ends on request; its answer is heavy.
    async fn hold(&mut self) -> Heavy;
    async fn note(&mut self, what: u64);
    async fn noted(&self) -> Vec<u64>;
}

#[derive(Grain)]
#[placement(prefer_local)]
struct DeskGrain {
    noted: Vec<u64>,
}

#[grain]
impl Desk for DeskGrain {
    async fn hold(&mut self) -> Heavy {
        HOLDS.notify_one();
        GO_ON.notified().await;
        Heavy
    }

    async fn note(&mut self, what: u64) {
        self.noted.push(what);
    }

    async fn noted(&self) -> Vec<u64> {
        self.noted.clone()
    }
}

/// The first call of the queue is called by a thread that is then held for long. It keeps its
/// place, because no thread could have polled it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unawaited_calls_keep_their_order_while_a_thread_is_held() {
    let (store, mut silos) = (common::store(), Vec::new());
    for _ in 0..2 {
        let silo =
            Silo::builder().store(store.clone()).host::<dyn Desk, DeskGrain>().on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    settle(&silos, 2).await;
    for (key, sender) in [(1, &silos[1]), (2, &silos[0])] {
        let here = silos[0].grains().grain::<dyn Desk>(key);
        assert!(here.noted().await.unwrap().is_empty());
        // It then knows where the grain is.
        let desk = sender.grains().grain::<dyn Desk>(key);
        assert!(desk.noted().await.unwrap().is_empty());
        let held = tokio::spawn(silos[1].grains().grain::<dyn Desk>(key).hold().into_future());
        HOLDS.notified().await;
        for what in 0..CALLS {
            desk.note(what).send().unwrap();
        }
        while silos[0].statistics().turns_waiting != CALLS {
            tokio::task::yield_now().await;
        }
        GO_ON.notify_one();
        held.await.unwrap().unwrap();
        let mut noted = Vec::new();
        while noted.len() < usize::try_from(CALLS).unwrap() {
            noted = here.noted().await.unwrap();
        }
        assert_eq!(noted, (0..CALLS).collect::<Vec<_>>(), "grain {key}");
    }
}

#[grain_interface(key = u64)]
trait Parcels {
    async fn take(&mut self, what: u64, content: Vec<u8>);
    async fn taken(&self) -> Vec<u64>;
}

#[derive(Grain)]
struct ParcelsGrain {
    taken: Vec<u64>,
}

#[grain]
impl Parcels for ParcelsGrain {
    async fn take(&mut self, what: u64, _content: Vec<u8>) {
        self.taken.push(what);
    }

    async fn taken(&self) -> Vec<u64> {
        self.taken.clone()
    }
}

/// Large ones hold their threads for long, at either end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_small_unawaited_calls_keep_their_order() {
    let set = |name, default| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (rounds, calls) = (set("EMMER_ORDER_ROUNDS", 2), set("EMMER_ORDER_CALLS", CALLS));
    let (store, mut silos) = (common::store(), Vec::new());
    for _ in 0..2 {
        let silo = Silo::builder()
            .store(store.clone())
            .host::<dyn Parcels, ParcelsGrain>()
            .on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    settle(&silos, 2).await;
    for key in 0..rounds {
        let parcels = silos[0].grains().grain::<dyn Parcels>(key);
        for what in 0..calls {
            let bytes = [700_000, 60_000, 3, 3, 3][usize::try_from(what % 5).unwrap()];
            parcels.take(what, vec![1; bytes]).send().unwrap();
        }
        let mut taken = Vec::new();
        while taken.len() < usize::try_from(calls).unwrap() {
            taken = parcels.taken().await.unwrap();
        }
        assert_eq!(taken, (0..calls).collect::<Vec<_>>(), "grain {key}");
    }
}

/// Calls that wait for a grain follow it in their order, on as many threads as there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_wait_follow_a_grain_in_their_order() {
    const NOTES: u64 = 2_000;
    let store = common::store();
    let start = || Silo::builder().store(store.clone()).host::<dyn Diary, DiaryGrain>().start();
    let silos = vec![start().await.unwrap(), start().await.unwrap()];
    settle(&silos, 2).await;
    for key in 0..20 {
        let at = silos[0].grain::<dyn Diary>(key).at().await.unwrap();
        let caller = silos.iter().find(|silo| silo.address().to_string() != at).unwrap();
        let diary = caller.grain::<dyn Diary>(key);
        assert_eq!(diary.at().await.unwrap(), at);
        let there = caller.address().to_string();
        diary.go_soon(there.clone(), 40).send().unwrap();
        for what in 0..NOTES {
            diary.note(what).send().unwrap();
        }
        let mut noted = Vec::new();
        while noted.len() < NOTES as usize {
            noted = diary.noted().await.unwrap();
        }
        let wrong = noted.windows(2).find(|two| two[0] > two[1]);
        assert!(wrong.is_none(), "grain {key}: {wrong:?} of {} notes", noted.len());
        assert_eq!(diary.at().await.unwrap(), there, "grain {key} has moved");
    }
    for silo in silos {
        silo.stop().await.unwrap();
    }
}

//! Methods that cannot suspend run in place. Their turns have the same rights and exclude the same
//! turns.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use emmer::prelude::*;

use crate::common::store;

#[grain_interface(key = String, grain = "instant-probe")]
trait Probe {
    /// Identity that the turn believes it has.
    async fn who(&self) -> String;
    /// Calls itself and looks once whether the answer is there.
    async fn ask_itself(&mut self) -> String;
    /// Sends itself a one-way call; how many arrived before this turn.
    async fn tell_itself(&mut self) -> u64;
    async fn note(&mut self);
    async fn break_down(&mut self, why: String) -> u64;
    /// Holds the grain over a suspension.
    async fn hold(&mut self) -> bool;
    async fn enter(&mut self) -> u64;
}

#[derive(Grain)]
struct ProbeGrain {
    #[context]
    ctx: Ctx,
    noted: u64,
    held: bool,
}

static INSIDE: AtomicBool = AtomicBool::new(false);

#[grain]
impl Probe for ProbeGrain {
    async fn who(&self) -> String {
        Ctx::current().map(|ctx| ctx.grain_id().to_string()).unwrap_or_default()
    }

    async fn ask_itself(&mut self) -> String {
        let me = self.ctx.grains().grain::<dyn Probe>("a");
        let call = pin!(me.note().into_future());
        match call.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(e)) => e.to_string(),
            other => format!("{other:?}"),
        }
    }

    async fn tell_itself(&mut self) -> u64 {
        let me = self.ctx.grains().grain::<dyn Probe>("a");
        match me.note().send() {
            Ok(()) => self.noted,
            Err(_) => u64::MAX,
        }
    }

    async fn note(&mut self) {
        self.noted += 1;
    }

    async fn break_down(&mut self, why: String) -> u64 {
        self.noted += 100;
        assert!(why.is_empty(), "{why}");
        self.noted
    }

    async fn hold(&mut self) -> bool {
        self.held = true;
        INSIDE.store(true, Ordering::Release);
        tokio::task::yield_now().await;
        tokio::time::sleep(millis(20)).await;
        self.held = false;
        INSIDE.load(Ordering::Acquire)
    }

    async fn enter(&mut self) -> u64 {
        INSIDE.store(false, Ordering::Release);
        if self.held { 1 } else { 0 }
    }
}

async fn silo() -> Silo {
    Silo::builder().store(store()).host::<dyn Probe, ProbeGrain>().start().await.unwrap()
}

#[tokio::test]
async fn a_turn_in_place_knows_who_it_is_and_who_waits_for_it() {
    let silo = silo().await;
    let a = silo.grain::<dyn Probe>("a");
    for _ in 0..3 {
        assert_eq!(a.who().await.unwrap(), a.grain_id().to_string());
        let refused = a.ask_itself().await.unwrap();
        assert!(
            refused.contains("probe/a waits for instant-probe/a"),
            "a call to itself would wait for ever: {refused}"
        );
    }
    // A message to itself comes after the turn that sent it.
    assert_eq!(a.tell_itself().await.unwrap(), 0);
    while a.tell_itself().await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    silo.abort();
}

#[tokio::test]
async fn a_panic_in_place_ends_the_activation() {
    let silo = silo().await;
    let a = silo.grain::<dyn Probe>("b");
    assert_eq!(a.break_down(String::new()).await.unwrap(), 100);
    assert_eq!(a.break_down(String::new()).await.unwrap(), 200);
    let broken = a.break_down("on purpose".to_owned()).await.unwrap_err();
    assert!(
        matches!(&broken, CallError::Panicked { message, .. } if message.contains("on purpose")),
        "{broken}"
    );
    // The next activation knows nothing of the broken one. Calls until then reach one of the two.
    while a.break_down(String::new()).await.unwrap() != 100 {}
    silo.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_in_place_waits_for_one_that_suspends() {
    let silo = silo().await;
    let a = silo.grain::<dyn Probe>("c");
    let holding = tokio::spawn(a.hold().into_future());
    while !INSIDE.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    assert_eq!(a.enter().await.unwrap(), 0, "nobody goes in beside it");
    assert!(holding.await.unwrap().unwrap());
    silo.abort();
}

#[tokio::test]
async fn a_task_that_calls_and_calls_does_not_keep_its_thread_for_itself() {
    let silo = silo().await;
    let a = silo.grain::<dyn Probe>("d");
    let other = tokio::spawn(async {});
    // On one thread: the other task runs only if the calls let it.
    while !other.is_finished() {
        a.note().await.unwrap();
    }
    silo.abort();
}

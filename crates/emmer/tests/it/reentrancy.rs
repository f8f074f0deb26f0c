//! Interleaving: calls that pass waiting calls, and turns that hold nothing while they wait.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Waker};

use emmer::calls::{Call, InterleaveError};
use emmer::prelude::*;
use tokio::sync::{Notify, watch};

use crate::common::{self, settle};

/// Signals by which the tests let turns continue, and hear that they have come, by name.
static SIGNS: LazyLock<Mutex<BTreeMap<String, Arc<Notify>>>> = LazyLock::new(Mutex::default);

fn sign(name: &str) -> Arc<Notify> {
    SIGNS.lock().unwrap().entry(name.to_owned()).or_default().clone()
}

#[grain_interface(key = String)]
trait Board {
    async fn post(&mut self, line: String);
    /// Reports that it is inside, and waits until it may continue.
    async fn stay(&self, name: String);
    async fn stay_alone(&mut self, name: String);
    async fn lines(&self) -> Vec<String>;
    #[always_interleave]
    async fn peek(&self) -> Vec<String>;
    /// Calls another board, which reads this one, while a writer may wait.
    async fn ask(&self, name: String, other: String) -> Result<Vec<String>, String>;
    async fn read_of(&self, other: String) -> Result<Vec<String>, String>;
    /// The lines after the first `known`, when there are any.
    async fn next(this: Interleaved<Self>, known: usize) -> Result<Vec<String>, String>;
    /// Posts by itself and by a call of its own grain.
    async fn post_twice(this: Interleaved<Self>, line: String) -> Result<usize, String>;
    /// Alone here, while a turn of `other` asks this board.
    async fn cross(&mut self, other: String) -> Result<(), String>;
    async fn late_look(this: Interleaved<Self>, name: String) -> Result<usize, String>;
    /// Alone here, asks `other` for a late look.
    async fn ask_late(&mut self, name: String, other: String) -> Result<usize, String>;
    async fn rest(&mut self);
}

macro_rules! board {
    ($class:ident $(, $attribute:ident)?) => {
        #[derive(Grain)]
        #[placement(prefer_local)]
        $(#[grain($attribute)])?
        pub(crate) struct $class {
            #[context]
            ctx: Ctx,
            lines: watch::Sender<Vec<String>>,
        }

        #[grain]
        impl Board for $class {
            async fn post(&mut self, line: String) {
                self.lines.send_modify(|lines| lines.push(line));
            }

            async fn stay(&self, name: String) {
                sign(&format!("{name} inside")).notify_one();
                sign(&name).notified().await;
            }

            async fn stay_alone(&mut self, name: String) {
                sign(&format!("{name} inside")).notify_one();
                sign(&name).notified().await;
            }

            async fn lines(&self) -> Vec<String> {
                self.lines.borrow().clone()
            }

            async fn peek(&self) -> Vec<String> {
                self.lines.borrow().clone()
            }

            async fn ask(&self, name: String, other: String) -> Result<Vec<String>, String> {
                sign(&format!("{name} inside")).notify_one();
                sign(&name).notified().await;
                let me = self.ctx.key().to_string();
                told(self.ctx.grains().grain::<dyn Board>(other).read_of(me).await)
            }

            async fn read_of(&self, other: String) -> Result<Vec<String>, String> {
                self.ctx.grains().grain::<dyn Board>(other).lines().await.map_err(|e| e.to_string())
            }

            async fn next(this: Interleaved<Self>, known: usize) -> Result<Vec<String>, String> {
                let mut lines = this.read(|board| board.lines.subscribe()).await.map_err(words)?;
                let news = lines.wait_for(|lines| lines.len() > known).await.map_err(|_| "gone".to_owned())?;
                Ok(news.iter().skip(known).cloned().collect())
            }

            async fn post_twice(this: Interleaved<Self>, line: String) -> Result<usize, String> {
                let post = |board: &mut Self| board.lines.send_modify(|lines| lines.push(line.clone()));
                this.write(post).await.map_err(words)?;
                let me = this.read(|board| board.ctx.clone()).await.map_err(words)?;
                let me = me.grains().grain::<dyn Board>(me.key().to_string());
                me.post(line).await.map_err(|e| e.to_string())?;
                this.read(|board| board.lines.borrow().len()).await.map_err(words)
            }

            async fn cross(&mut self, other: String) -> Result<(), String> {
                let other = self.ctx.grains().grain::<dyn Board>(other);
                sign("crossing").notify_one();
                other.post(String::new()).await.map_err(|e| e.to_string())
            }

            async fn late_look(this: Interleaved<Self>, name: String) -> Result<usize, String> {
                sign(&format!("{name} inside")).notify_one();
                sign(&name).notified().await;
                this.read(|board| board.lines.borrow().len()).await.map_err(words)
            }

            async fn ask_late(&mut self, name: String, other: String) -> Result<usize, String> {
                told(self.ctx.grains().grain::<dyn Board>(other).late_look(name).await)
            }

            async fn rest(&mut self) {
                self.ctx.deactivate_on_idle();
            }
        }
    };
}

board!(Plain);

mod reentrant {
    use super::*;
    board!(Reentrant, reentrant);
}

mod comes_back {
    use super::*;
    board!(ComesBack, call_chain_reentrancy);
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn words(left: InterleaveError) -> String {
    left.to_string()
}

fn told<T>(result: Result<T, CallError<String>>) -> Result<T, String> {
    result.map_err(|error| match error {
        CallError::App(inner) => inner,
        other => other.to_string(),
    })
}

async fn silos<G: Grain>(n: usize) -> Vec<Silo>
where
    dyn Board: emmer::interface::Hosted<G>,
{
    let (store, mut silos) = (common::store(), Vec::new());
    for _ in 0..n {
        let silo = Silo::builder().store(store.clone()).host::<dyn Board, G>().on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    settle(&silos, n).await;
    silos
}

type Waiting = Pin<Box<emmer::__rt::CallFuture<BoardPostArgs>>>;

/// A call that has its place in the queue, and is not over.
fn queued(call: Call<BoardPostArgs>) -> Waiting {
    let mut call = Box::pin(call.into_future());
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    call
}

#[tokio::test]
async fn a_method_that_always_interleaves_goes_past_writers_that_wait() {
    let silos = silos::<Plain>(1).await;
    let board = silos[0].grains().grain::<dyn Board>("past");
    board.post("one".to_owned()).await.unwrap();
    let stays = tokio::spawn(board.stay("past".to_owned()).into_future());
    sign("past inside").notified().await;
    let writer = queued(board.post("two".to_owned()));
    assert_eq!(board.peek().await.unwrap(), ["one"]);
    sign("past").notify_one();
    stays.await.unwrap().unwrap();
    writer.await.unwrap();
    assert_eq!(board.peek().await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_interleaving_call_waits_for_a_writer_that_is_inside_and_for_no_other() {
    let silos = silos::<Plain>(1).await;
    let board = silos[0].grains().grain::<dyn Board>("inside");
    let alone = tokio::spawn(board.stay_alone("alone".to_owned()).into_future());
    sign("alone inside").notified().await;
    let writer = queued(board.post("one".to_owned()));
    let mut peek = Box::pin(board.peek().into_future());
    assert!(peek.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let peek = tokio::spawn(peek);
    sign("alone").notify_one();
    alone.await.unwrap().unwrap();
    assert_eq!(peek.await.unwrap().unwrap(), [""; 0], "before the writer, which is not polled");
    writer.await.unwrap();
}

#[tokio::test]
async fn every_shared_method_of_a_reentrant_class_goes_past_writers_that_wait() {
    let silos = silos::<reentrant::Reentrant>(1).await;
    let board = silos[0].grains().grain::<dyn Board>("reentrant");
    let stays = tokio::spawn(board.stay("reentrant".to_owned()).into_future());
    sign("reentrant inside").notified().await;
    let writer = queued(board.post("one".to_owned()));
    assert!(board.lines().await.unwrap().is_empty());
    sign("reentrant").notify_one();
    stays.await.unwrap().unwrap();
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_comes_back_goes_past_writers_that_wait_and_others_do_not() {
    for n in [1, 2] {
        let silos = silos::<comes_back::ComesBack>(n).await;
        let board = silos[0].grains().grain::<dyn Board>("a");
        board.post("one".to_owned()).await.unwrap();
        silos[n - 1].grains().grain::<dyn Board>("b").peek().await.unwrap();
        let name = format!("comes back {n}");
        let asks = tokio::spawn(board.ask(name.clone(), "b".to_owned()).into_future());
        sign(&format!("{name} inside")).notified().await;
        let writer = queued(board.post("two".to_owned()));
        let mut other = Box::pin(board.lines().into_future());
        assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (writer, other) = (tokio::spawn(writer), tokio::spawn(other));
        sign(&name).notify_one();
        assert_eq!(told(asks.await.unwrap()), Ok(vec!["one".to_owned()]));
        writer.await.unwrap().unwrap();
        assert_eq!(other.await.unwrap().unwrap(), ["one", "two"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_long_poll_that_holds_nothing_lets_writers_in_and_ends_with_its_grain() {
    let silos = silos::<Plain>(2).await;
    let board = silos[0].grains().grain::<dyn Board>("poll");
    assert_eq!(board.post_twice("line".to_owned()).await.unwrap(), 2);
    for silo in &silos {
        let board = silo.grain::<dyn Board>("poll");
        let known = board.lines().await.unwrap().len();
        let poll = tokio::spawn(board.next(known).into_future());
        // The poll may be inside already or come later: the writer does not wait for it.
        board.post("news".to_owned()).await.unwrap();
        assert_eq!(told(poll.await.unwrap()), Ok(vec!["news".to_owned()]));
    }
    let name = "poll goes";
    let late = tokio::spawn(board.late_look(name.to_owned()).into_future());
    sign(&format!("{name} inside")).notified().await;
    board.rest().await.unwrap();
    while silos[0].statistics().activations > 0 {
        tokio::task::yield_now().await;
    }
    sign(name).notify_one();
    assert_eq!(told(late.await.unwrap()), Err("the activation has ended".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_piece_of_a_grain_that_waits_for_its_turn_is_part_of_a_circle() {
    for n in [1, 2] {
        let silos = silos::<Plain>(n).await;
        let a = silos[0].grains().grain::<dyn Board>("a");
        let b = silos[n - 1].grains().grain::<dyn Board>("b");
        a.peek().await.unwrap();
        b.peek().await.unwrap();
        let name = format!("piece {n}");
        // B, alone, asks A, which looks at itself late; meanwhile A, alone, calls B.
        let asks = tokio::spawn(b.ask_late(name.clone(), "a".to_owned()).into_future());
        sign(&format!("{name} inside")).notified().await;
        let crosses = tokio::spawn(a.cross("b".to_owned()).into_future());
        sign("crossing").notified().await;
        sign(&name).notify_one();
        let (asks, crosses) = (told(asks.await.unwrap()), told(crosses.await.unwrap()));
        let failed: Vec<String> = asks.err().into_iter().chain(crosses.err()).collect();
        assert!(failed.len() == 1 && failed[0].contains("deadlock: board/"), "{failed:?}");
    }
}

//! The requests of a silo to one store: a bounded number is under way, the others wait in order of
//! their arrival.
//!
//! A store that gets more at once than it can do answers none in time. A request that waits has no
//! task, and costs nothing once its caller has given it up.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use emmer_net::contain::contained;
use emmer_net::world::Spawner;
use emmer_store::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The most requests that wait, those that were given up included. One more has no answer.
const WAITING_MAX: usize = 1 << 20;

/// Requests to one store.
pub(super) struct Line {
    spawner: Spawner,
    /// The most requests under way.
    at_once: usize,
    /// The most requests that wait.
    waiting_max: usize,
    state: Mutex<State>,
}

struct State {
    /// Number of tasks, each with a request under way.
    running: usize,
    waiting: VecDeque<BoxFuture<'static, ()>>,
}

impl Line {
    pub(super) fn new(spawner: Spawner, at_once: usize) -> Arc<Self> {
        let state = Mutex::new(State { running: 0, waiting: VecDeque::new() });
        let at_once = at_once.max(1);
        Arc::new(Self { spawner, at_once, waiting_max: WAITING_MAX, state })
    }

    /// Runs `request` in a task and waits for it. Dropping this drops the request. None if it
    /// panicked, if too many wait, or when the runtime is gone.
    pub(super) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        request: BoxFuture<'static, T>,
    ) -> impl Future<Output = Option<T>> + use<T> {
        let (mut done, wait) = oneshot::channel();
        let line = self.clone();
        async move {
            line.begin(Box::pin(async move {
                let answer = tokio::select! {
                    biased;
                    () = done.closed() => None,
                    answer = contained(request) => answer.ok(),
                };
                if let Some(answer) = answer {
                    let _ = done.send(answer);
                }
            }));
            wait.await.ok()
        }
    }

    fn begin(self: &Arc<Self>, request: BoxFuture<'static, ()>) {
        {
            let mut state = self.state.lock();
            if state.running >= self.at_once {
                if state.waiting.len() < self.waiting_max {
                    state.waiting.push_back(request);
                }
                return;
            }
            state.running += 1;
        }
        let runs = Runs { line: self.clone(), is_over: false };
        self.spawner.spawn(async move {
            let mut next = Some(request);
            while let Some(request) = next {
                request.await;
                next = runs.line.next();
            }
            runs.end();
        });
    }

    /// The request that has waited for longest; none if the task has to end.
    fn next(&self) -> Option<BoxFuture<'static, ()>> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        // Under the lock: a request that comes now begins another task.
        state.running -= usize::from(next.is_none());
        next
    }
}

/// A task that runs requests until none waits. If it ends before, with its runtime, and no other
/// task is left, the requests that wait have no answer.
struct Runs {
    line: Arc<Line>,
    is_over: bool,
}

impl Runs {
    /// No request waits, and the line counts this task as ended.
    fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.line.state.lock();
        state.running -= 1;
        if state.running == 0 {
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tokio::task::yield_now;

    use super::*;

    type Answer = Pin<Box<dyn Future<Output = Option<u32>> + Send>>;

    /// A line for two requests at once, with requests that begin and end by hand.
    struct Bench {
        line: Arc<Line>,
        begun: Arc<Mutex<Vec<u32>>>,
    }

    impl Bench {
        fn new() -> Self {
            Self { line: Line::new(Spawner::current(), 2), begun: Arc::default() }
        }

        /// Request `n`, asked for, and the way to let it end. None as its end: it panics.
        async fn ask(&self, n: u32) -> (Answer, oneshot::Sender<Option<u32>>) {
            let (end, ended) = oneshot::channel();
            let begun = self.begun.clone();
            let mut answer: Answer = Box::pin(self.line.run(Box::pin(async move {
                begun.lock().push(n);
                ended.await.unwrap_or(None).expect("a fault of the store")
            })));
            assert!(answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            settle().await;
            (answer, end)
        }

        fn begun(&self) -> Vec<u32> {
            self.begun.lock().clone()
        }
    }

    async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn two_requests_are_under_way_and_the_others_come_in_their_order() {
        let bench = Bench::new();
        let mut asked = Vec::new();
        for n in 0..6 {
            asked.push(bench.ask(n).await);
        }
        assert_eq!(bench.begun(), [0, 1]);
        // A caller gives up while its request waits, another while it is under way.
        drop(asked.remove(3));
        drop(asked.remove(0));
        settle().await;
        assert_eq!(bench.begun(), [0, 1, 2]);
        let mut ends = Vec::new();
        for (answer, end) in asked {
            end.send(Some(7)).unwrap();
            ends.push(answer.await);
        }
        assert_eq!((ends, bench.begun()), (vec![Some(7); 4], vec![0, 1, 2, 4, 5]));
        assert_eq!(bench.line.state.lock().running, 0);
    }

    #[tokio::test]
    async fn one_request_more_than_may_wait_has_no_answer() {
        let mut bench = Bench::new();
        Arc::get_mut(&mut bench.line).unwrap().waiting_max = 1;
        let mut asked = Vec::new();
        for n in 0..3 {
            asked.push(bench.ask(n).await);
        }
        let begun = bench.begun.clone();
        let beyond = bench.line.run(Box::pin(async move { begun.lock().push(9) }));
        assert_eq!((beyond.await, bench.begun()), (None, vec![0, 1]));
        for (answer, end) in asked {
            end.send(Some(7)).unwrap();
            assert_eq!(answer.await, Some(7));
        }
    }

    #[tokio::test]
    async fn a_request_that_panics_takes_no_other_one_with_it() {
        let bench = Bench::new();
        let (broken, end) = bench.ask(0).await;
        let (_other, _never) = bench.ask(1).await;
        let (next, next_end) = bench.ask(2).await;
        end.send(None).unwrap();
        assert_eq!(broken.await, None);
        next_end.send(Some(3)).unwrap();
        assert_eq!(next.await, Some(3));
    }

    #[test]
    fn what_waits_has_no_answer_when_the_runtime_is_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answers = runtime.block_on(async {
            let bench = Bench::new();
            let mut answers = Vec::new();
            for n in 0..4 {
                answers.push(bench.ask(n).await);
            }
            answers
        });
        drop(runtime);
        for (mut answer, _end) in answers {
            let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled, Poll::Ready(None));
        }
    }
}

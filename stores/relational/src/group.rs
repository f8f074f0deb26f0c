//! Requests that share a statement.
//!
//! At most a few statements of a kind run at once. A further request waits until one of them ends,
//! as it would for a connection. The next statement then takes all requests that wait, up to a
//! maximum. So no request waits for others to come, and a busy store gets few statements.
//!
//! A request that finds room runs alone, in its caller's task, and keeps its place until that task
//! has polled it to the end. A silo polls its requests in tasks that no turn can stop. Statements
//! of several requests run in tasks of their own: a request that is given up takes no other one
//! with it.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The most requests that wait.
const WAITING_MAX: usize = 65_536;

/// Requests of one kind, `Q`, and their answers.
pub(crate) struct Group<Q, A> {
    state: Mutex<State<Q, A>>,
    /// The most statements at once.
    at_once: usize,
    /// The most requests of one statement.
    together: usize,
    /// Returns true if two requests may not be in one statement.
    apart: fn(&Q, &Q) -> bool,
}

struct State<Q, A> {
    /// Number of tasks that send statements.
    running: usize,
    waiting: VecDeque<(Q, oneshot::Sender<A>)>,
}

/// Why a request of a group has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many wait. Nothing was sent.
    TooMany,
    /// Its statement ended without answers: it was done or not.
    Abandoned,
}

impl<Q: Send + 'static, A: Send + 'static> Group<Q, A> {
    /// `at_once` statements of `together` requests, at most.
    pub(crate) fn new((at_once, together): (usize, usize), apart: fn(&Q, &Q) -> bool) -> Arc<Self> {
        let state = Mutex::new(State { running: 0, waiting: VecDeque::new() });
        Arc::new(Self { state, at_once: at_once.max(1), together, apart })
    }

    /// Runs `request` in a statement, alone or with others. `run` has one answer for each request,
    /// in their order.
    pub(crate) async fn run<F: Future<Output = Vec<A>> + Send>(
        self: &Arc<Self>,
        request: Q,
        run: impl Fn(Vec<Q>) -> F + Clone + Send + 'static,
    ) -> Result<A, Unanswered> {
        let told = {
            let mut state = self.lock();
            if state.running < self.at_once {
                state.running += 1;
                Err(request)
            } else if state.waiting.len() >= WAITING_MAX {
                return Err(Unanswered::TooMany);
            } else {
                let (tell, told) = oneshot::channel();
                state.waiting.push_back((request, tell));
                Ok(told)
            }
        };
        match told {
            Ok(told) => told.await.map_err(|_| Unanswered::Abandoned),
            Err(request) => {
                let next = run.clone();
                let _then = AtEnd(Some(|| self.go_on(next)));
                run(vec![request]).await.into_iter().next().ok_or(Unanswered::Abandoned)
            }
        }
    }

    /// A statement has ended: runs what waits in its place, in a task.
    fn go_on<F: Future<Output = Vec<A>> + Send>(
        self: &Arc<Self>,
        run: impl Fn(Vec<Q>) -> F + Send + 'static,
    ) {
        {
            let mut state = self.lock();
            if state.waiting.is_empty() {
                state.running -= 1;
                return;
            }
        }
        let runs = Runs { group: self.clone(), is_over: false };
        // Without a runtime it is dropped here, and ends as with its runtime.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            while let Some((requests, tells)) = runs.group.take() {
                for (tell, answer) in tells.into_iter().zip(run(requests).await) {
                    // A request that is given up has no use for its answer.
                    let _ = tell.send(answer);
                }
            }
            runs.end();
        });
    }

    /// The requests of the next statement; none if none waits.
    fn take(&self) -> Option<(Vec<Q>, Vec<oneshot::Sender<A>>)> {
        let mut state = self.lock();
        let (mut requests, mut tells, mut later) = (Vec::new(), Vec::new(), VecDeque::new());
        while requests.len() < self.together
            && let Some((request, tell)) = state.waiting.pop_front()
        {
            if tell.is_closed() {
                // Its caller has given it up, and nothing was sent.
            } else if requests.iter().any(|other| (self.apart)(other, &request)) {
                later.push_back((request, tell));
            } else {
                requests.push(request);
                tells.push(tell);
            }
        }
        later.append(&mut state.waiting);
        state.waiting = later;
        if requests.is_empty() {
            // Under the lock: a request that comes now begins another task.
            state.running -= 1;
            return None;
        }
        Some((requests, tells))
    }
}

impl<Q, A> Group<Q, A> {
    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        // A panic in between leaves the queue whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something to do at the end of a scope, however it ends.
struct AtEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}

/// A task that sends statements until no request waits. If it ends before, by a panic or with its
/// runtime, and no other task is left, the requests that wait have no answer.
struct Runs<Q, A> {
    group: Arc<Group<Q, A>>,
    is_over: bool,
}

impl<Q, A> Runs<Q, A> {
    /// No request waits, and the group counts this task as ended.
    fn end(mut self) {
        self.is_over = true;
    }
}

impl<Q, A> Drop for Runs<Q, A> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.group.lock();
        state.running -= 1;
        if state.running == 0 {
            state.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinHandle;

    use super::*;

    /// The requests of a statement that was sent, and the way to let it end.
    type Sent = (Vec<u32>, oneshot::Sender<()>);

    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Vec<Sent>>>);

    impl Server {
        async fn run(self, requests: Vec<u32>) -> Vec<u32> {
            let (open, opened) = oneshot::channel();
            self.0.lock().unwrap().push((requests.clone(), open));
            opened.await.unwrap();
            requests.iter().map(|request| request * 10).collect()
        }

        /// Waits for the next statement, lets it end, and returns its requests.
        async fn answer(&self) -> Vec<u32> {
            loop {
                let next = self.0.lock().unwrap().pop();
                if let Some((requests, open)) = next {
                    let _ = open.send(());
                    return requests;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    type Answer = JoinHandle<Result<u32, Unanswered>>;

    const ABANDONED: Result<u32, Unanswered> = Err(Unanswered::Abandoned);

    fn one_at_once() -> Arc<Group<u32, u32>> {
        Group::new((1, 256), |a, b| a == b)
    }

    async fn ask(group: &Arc<Group<u32, u32>>, server: &Server, request: u32) -> Answer {
        let (group, server) = (group.clone(), server.clone());
        let asked = tokio::spawn(async move {
            group.run(request, move |requests| server.clone().run(requests)).await
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        asked
    }

    /// A request goes with all others that wait, but not with one of the same row.
    #[tokio::test]
    async fn requests_that_wait_go_together_and_each_gets_its_own_answer() {
        let (group, server) = (one_at_once(), Server::default());
        let first = ask(&group, &server, 1).await;
        let mut others = Vec::new();
        for request in [2, 3, 3, 4] {
            others.push(ask(&group, &server, request).await);
        }
        // The caller of 4 has given it up before it was sent.
        others[3].abort();
        assert_eq!(server.answer().await, [1]);
        assert_eq!(first.await.unwrap(), Ok(10));
        assert_eq!(server.answer().await, [2, 3]);
        assert_eq!(server.answer().await, [3]);
        for (other, answer) in others.drain(..3).zip([20, 30, 30]) {
            assert_eq!(other.await.unwrap(), Ok(answer));
        }
        // All have ended: the next one runs at once.
        let last = ask(&group, &server, 5).await;
        assert_eq!(server.answer().await, [5]);
        assert_eq!(last.await.unwrap(), Ok(50));
    }

    #[tokio::test]
    async fn a_statement_has_no_more_requests_than_it_may() {
        let (group, server) = (Group::new((1, 2), |a, b| a == b), Server::default());
        let mut asked = Vec::new();
        for request in 1..=4 {
            asked.push(ask(&group, &server, request).await);
        }
        for statement in [vec![1], vec![2, 3], vec![4]] {
            assert_eq!(server.answer().await, statement);
        }
        for (request, asked) in (1..).zip(asked) {
            assert_eq!(asked.await.unwrap(), Ok(request * 10));
        }
    }

    /// A grain may give its write up while the statement is under way.
    #[tokio::test]
    async fn a_request_that_is_given_up_takes_no_other_one_with_it() {
        let (group, server) = (one_at_once(), Server::default());
        let first = ask(&group, &server, 1).await;
        let second = ask(&group, &server, 2).await;
        let third = ask(&group, &server, 3).await;
        first.abort();
        assert_eq!(server.answer().await, [1]);
        // The caller that comes first in the second statement goes away in the middle of it.
        while server.0.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        second.abort();
        assert_eq!(server.answer().await, [2, 3]);
        assert_eq!(third.await.unwrap(), Ok(30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_statement_that_panics_leaves_its_requests_unanswered_and_no_other() {
        let group = one_at_once();
        let server = Server::default();
        let broken = |request| {
            let (group, server) = (group.clone(), server.clone());
            tokio::spawn(async move {
                let run = move |requests: Vec<u32>| {
                    let server = server.clone();
                    async move {
                        assert_eq!(requests, [1], "a fault of the driver");
                        server.run(requests).await
                    }
                };
                group.run(request, run).await
            })
        };
        // In its caller's task, as without a group.
        assert!(broken(0).await.unwrap_err().is_panic());
        // In a task of its own.
        let asked = [1, 2, 3].map(broken);
        assert_eq!(server.answer().await, [1]);
        let limit = Duration::from_secs(1);
        for (asked, answer) in asked.into_iter().zip([Ok(10), ABANDONED, ABANDONED]) {
            assert_eq!(tokio::time::timeout(limit, asked).await.unwrap().unwrap(), answer);
        }
        let next = ask(&group, &server, 2).await;
        assert_eq!(server.answer().await, [2]);
        assert_eq!(next.await.unwrap(), Ok(20));
    }
}

//! Requests that share a statement.
//!
//! So many statements of a kind run at once, each for one request. Further requests wait until one
//! of these ends, as they would for a connection. The next statement then takes all that wait, up
//! to a maximum. So no request waits for others to come, and a store that is asked for much sends
//! few statements.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// The most requests of one statement.
pub(crate) const TOGETHER_MAX: usize = 256;
/// The most requests that wait.
const WAITING_MAX: usize = 65_536;

/// Requests of one kind, `Q`, and their answers.
pub(crate) struct Group<Q, A> {
    state: Mutex<State<Q, A>>,
    /// The most statements at once.
    at_once: usize,
}

struct State<Q, A> {
    running: usize,
    waiting: VecDeque<(Q, oneshot::Sender<Told<Q, A>>)>,
}

/// What a request that waits hears.
enum Told<Q, A> {
    Answer(A),
    /// It sends the next statement, its own request in it.
    Lead(Q),
}

/// Why a request of a group has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many wait. Nothing was sent.
    TooMany,
    /// The request that led the statement was given up: it was done or not.
    Abandoned,
}

impl<Q, A> Group<Q, A> {
    pub(crate) fn new(at_once: usize) -> Self {
        let state = State { running: 0, waiting: VecDeque::new() };
        Self { state: Mutex::new(state), at_once: at_once.max(1) }
    }

    /// Runs `request` in a statement, alone or with others. `run` has one answer for each request,
    /// in their order. `apart` says that two requests may not be in one statement.
    pub(crate) async fn run<F: Future<Output = Vec<A>>>(
        &self,
        request: Q,
        apart: impl Fn(&Q, &Q) -> bool,
        run: impl FnOnce(Vec<Q>) -> F,
    ) -> Result<A, Unanswered> {
        let waits = {
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
        let request = match waits {
            Err(request) => request,
            Ok(told) => match told.await {
                Ok(Told::Answer(answer)) => return Ok(answer),
                Ok(Told::Lead(request)) => request,
                Err(_) => return Err(Unanswered::Abandoned),
            },
        };
        let _leads = Leads(self);
        let (mut requests, mut others) = (vec![request], Vec::new());
        {
            let mut state = self.lock();
            let mut later = VecDeque::new();
            while requests.len() < TOGETHER_MAX
                && let Some((request, tell)) = state.waiting.pop_front()
            {
                // Nothing was sent for one that was given up.
                if tell.is_closed() {
                    continue;
                }
                if requests.iter().any(|other| apart(other, &request)) {
                    later.push_back((request, tell));
                } else {
                    requests.push(request);
                    others.push(tell);
                }
            }
            later.append(&mut state.waiting);
            state.waiting = later;
        }
        let mut answers = run(requests).await.into_iter();
        let own = answers.next().ok_or(Unanswered::Abandoned);
        for (tell, answer) in others.into_iter().zip(answers) {
            // One that is given up has no use for its answer.
            let _ = tell.send(Told::Answer(answer));
        }
        own
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<Q, A>> {
        // A panic in between leaves the queue whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A statement under way. At its end the first request that waits sends the next one.
struct Leads<'a, Q, A>(&'a Group<Q, A>);

impl<Q, A> Drop for Leads<'_, Q, A> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        while let Some((request, tell)) = state.waiting.pop_front() {
            if tell.send(Told::Lead(request)).is_ok() {
                return;
            }
        }
        state.running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// One statement at once: a request that waits goes with all others that wait, but not with one
    /// of the same row.
    #[test]
    fn requests_that_wait_go_together_and_each_gets_its_own_answer() {
        let (group, sent) = (Group::<u32, u32>::new(1), RefCell::new(Vec::new()));
        let go = RefCell::new(Vec::new());
        let run = |requests: Vec<u32>| {
            sent.borrow_mut().push(requests.clone());
            let (open, opened) = oneshot::channel::<()>();
            go.borrow_mut().push(open);
            async move {
                let _ = opened.await;
                requests.iter().map(|request| request * 10).collect()
            }
        };
        let same = |a: &u32, b: &u32| a == b;
        let mut first = pin!(group.run(1, same, run));
        assert!(now(first.as_mut()).is_pending());
        let mut others: Vec<_> =
            [2, 3, 3, 4].map(|request| Box::pin(group.run(request, same, run))).into();
        assert!(others.iter_mut().all(|other| now(other.as_mut()).is_pending()));
        // The caller of 4 has given it up.
        others.pop();
        go.borrow_mut().remove(0).send(()).unwrap();
        assert_eq!(now(first.as_mut()), Poll::Ready(Ok(10)));
        assert!(now(others[0].as_mut()).is_pending(), "it leads");
        go.borrow_mut().remove(0).send(()).unwrap();
        assert_eq!(now(others[0].as_mut()), Poll::Ready(Ok(20)));
        assert_eq!(now(others[1].as_mut()), Poll::Ready(Ok(30)));
        assert!(now(others[2].as_mut()).is_pending());
        go.borrow_mut().remove(0).send(()).unwrap();
        assert_eq!(now(others[2].as_mut()), Poll::Ready(Ok(30)));
        assert_eq!(*sent.borrow(), [vec![1], vec![2, 3], vec![3]]);
        // All have ended: the next one runs at once.
        let mut last = pin!(group.run(5, same, run));
        assert!(now(last.as_mut()).is_pending());
        assert_eq!(sent.borrow().len(), 4);
    }

    #[test]
    fn a_leader_that_is_given_up_leaves_its_group_in_doubt_and_the_next_one_leads() {
        let group = Group::<u32, u32>::new(1);
        let never = |_: Vec<u32>| std::future::pending::<Vec<u32>>();
        let at_once = |requests: Vec<u32>| async move { requests };
        let mut first = Box::pin(group.run(1, |_, _| false, never));
        assert!(now(first.as_mut()).is_pending());
        let mut second = Box::pin(group.run(2, |_, _| false, never));
        let mut third = pin!(group.run(3, |_, _| false, never));
        assert!(now(second.as_mut()).is_pending() && now(third.as_mut()).is_pending());
        drop(first);
        assert!(now(second.as_mut()).is_pending(), "it leads, and has taken the third");
        drop(second);
        assert_eq!(now(third.as_mut()), Poll::Ready(Err(Unanswered::Abandoned)));
        let mut fourth = pin!(group.run(4, |_, _| false, at_once));
        assert_eq!(now(fourth.as_mut()), Poll::Ready(Ok(4)));
    }
}

//! Runs filters around something.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use emmer_net::warn_seldom;
use emmer_wire::RequestContext;
use parking_lot::Mutex;

use super::{End, FilterCall, Filters, Next, Outcome};
use crate::turn::contained;

/// Result of work that filters were around.
pub(crate) enum Around<T> {
    /// The work is done, with this result, whatever the filters returned.
    Done(T),
    /// It was never begun: why.
    Refused(String),
    /// A filter dropped it half way: why.
    GivenUp(String),
}

/// Progress of the work.
enum Work<T> {
    Waiting,
    Running,
    Done(T),
}

/// Runs `filters` around `work`. If a filter has changed the context, `work` gets the changed one.
pub(crate) async fn around<T: Send, F: Future<Output = T> + Send>(
    filters: &Filters,
    call: FilterCall,
    work: impl FnOnce(Option<RequestContext>) -> F + Send,
    outcome_of: impl FnOnce(&T) -> Outcome + Send,
) -> Around<T> {
    around_in(filters, false, call, work, outcome_of).await
}

/// As [`around`] for filters and work that do not wait, in one poll.
pub(crate) fn around_now<T: Send>(
    filters: &Filters,
    call: FilterCall,
    work: impl FnOnce(Option<RequestContext>) -> T + Send,
    outcome_of: impl FnOnce(&T) -> Outcome + Send,
) -> Around<T> {
    let work = |context| std::future::ready(work(context));
    let around = pin!(around_in(filters, true, call, work, outcome_of));
    match around.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => {
            Around::GivenUp("it waits, and says `const WAITS: bool = false`".to_owned())
        }
    }
}

#[inline]
async fn around_in<T: Send, F: Future<Output = T> + Send>(
    filters: &Filters,
    now: bool,
    call: FilterCall,
    work: impl FnOnce(Option<RequestContext>) -> F + Send,
    outcome_of: impl FnOnce(&T) -> Outcome + Send,
) -> Around<T> {
    let (state, changed) = (Mutex::new(Work::Waiting), Mutex::new(None));
    let passed = {
        let end = pin!(async {
            *state.lock() = Work::Running;
            let context = changed.lock().take();
            let done = work(context).await;
            let outcome = outcome_of(&done);
            *state.lock() = Work::Done(done);
            outcome
        });
        let next = Next { rest: filters.list(), changed: &changed, now, end };
        contained(next.run(call)).await
    };
    match (state.into_inner(), passed) {
        (Work::Done(done), Ok(_)) => Around::Done(done),
        (Work::Done(done), Err(panic)) => {
            warn_seldom!(panic, "a filter panicked after the call was done");
            Around::Done(done)
        }
        (Work::Running, Ok(Outcome(End::Refused(why)))) => Around::GivenUp(why),
        (Work::Running, Ok(_)) => Around::GivenUp("it did not say why".to_owned()),
        (Work::Running, Err(panic)) => Around::GivenUp(format!("it panicked: {panic}")),
        (Work::Waiting, Ok(Outcome(End::Refused(why)))) => Around::Refused(why),
        (Work::Waiting, Ok(_)) => {
            Around::Refused("a filter answered for another call than this one".to_owned())
        }
        (Work::Waiting, Err(panic)) => Around::Refused(format!("a filter panicked: {panic}")),
    }
}

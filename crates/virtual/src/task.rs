//! A task that belongs to a host.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::host::{Host, State};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Host>>> = const { RefCell::new(None) };
}

/// Makes `host` the current one until it is dropped.
pub(crate) struct Entered(Option<Arc<Host>>);

impl Entered {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self(CURRENT.replace(Some(host)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The host whose code runs now.
pub(crate) fn current() -> Option<Arc<Host>> {
    CURRENT.with_borrow(Clone::clone)
}

pin_project_lite::pin_project! {
    /// A future of a host: polled as its code, not polled while the host is paused, and over when
    /// the host is dead.
    pub(crate) struct Task<F> {
        pub(crate) host: Arc<Host>,
        #[pin]
        pub(crate) future: F,
    }
}

impl<F: Future> Future for Task<F> {
    /// None: the host died first.
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.host.may_run(cx.waker()) {
            State::Paused => Poll::Pending,
            State::Dead => Poll::Ready(None),
            State::Running => {
                let _entered = Entered::new(this.host.clone());
                this.future.poll(cx).map(Some)
            }
        }
    }
}

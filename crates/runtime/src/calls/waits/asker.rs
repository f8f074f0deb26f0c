//! Whether whoever made a call still waits for it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Who made a call, as those who run it see it.
#[derive(Debug, Default)]
pub struct Asker {
    gone: AtomicBool,
    /// Who wants to know when that changes.
    waker: Mutex<Option<Waker>>,
    /// What the method was given to know it by.
    token: Mutex<Option<CancellationToken>>,
}

impl Asker {
    /// Whether the call was not given up, as far as is known here.
    pub(crate) fn waits(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// The call is given up, or over.
    pub(crate) fn give_up(&self) {
        self.gone.store(true, Ordering::Release);
        // After that: who leaves a waker later looks once more.
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
        let token = self.token.lock().take();
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Fires when the call is given up, or over.
    pub(crate) fn token(&self) -> CancellationToken {
        let token = self.token.lock().get_or_insert_default().clone();
        // It may have been given up just before that, and then nobody saw the token.
        if !self.waits() {
            token.cancel();
        }
        token
    }

    /// Ready when the call was given up; one task may wait for it.
    pub(crate) fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        if self.waits() {
            let mut waker = self.waker.lock();
            if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        if self.waits() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Waits until the call is given up.
    pub(crate) async fn gone(&self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }
}

/// Gives the call up when it is dropped.
pub(crate) struct Asked(pub(crate) Arc<Asker>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

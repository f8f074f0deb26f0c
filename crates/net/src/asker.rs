//! The caller of a call, and if it still waits.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Caller of a call, as the code that runs it sees it.
#[derive(Debug, Default)]
pub struct Asker {
    gone: AtomicBool,
    told: Mutex<Told>,
}

/// Listeners for the moment at which a call is given up.
#[derive(Debug, Default)]
struct Told {
    /// The task that waits for it.
    waker: Option<Waker>,
    /// The token that the method was given.
    token: Option<CancellationToken>,
}

impl Asker {
    /// Returns true if the call was not given up, as far as this side knows.
    #[inline]
    pub fn waits(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// The call is given up, or over.
    pub fn give_up(&self) {
        self.gone.store(true, Ordering::Release);
        // After that: who leaves a waker or takes a token later looks once more.
        let Told { waker, token } = std::mem::take(&mut *self.told.lock());
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Fires when the call is given up, or over.
    pub fn token(&self) -> CancellationToken {
        let token = self.told.lock().token.get_or_insert_default().clone();
        // It may have been given up just before that, and then its owner never saw the token.
        if !self.waits() {
            token.cancel();
        }
        token
    }

    /// Ready when the call was given up; one task may wait for it.
    pub(crate) fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        if self.waits() {
            let mut told = self.told.lock();
            if !told.waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                told.waker = Some(cx.waker().clone());
            }
        }
        if self.waits() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Waits until the call is given up.
    pub async fn gone(&self) {
        poll_fn(|cx| self.poll_gone(cx)).await;
    }
}

/// Gives the call up when it is dropped.
pub struct Asked(pub Arc<Asker>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

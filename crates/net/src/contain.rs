//! A grain's own code, kept from breaking what runs it: constructors, hooks, `Drop`, `Serialize`.

use crate::warn_seldom;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Runs code of a grain. The caller must not use again what that code may have left half way.
///
/// # Errors
/// The words of the panic.
// Each call of a grain in its place passes through it.
#[inline(always)]
pub fn contain<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(words_of)
}

/// Drops a value of a grain's own kind, in a place that must not be left by a panic: one in its
/// `Drop` is logged.
#[inline]
pub fn let_go<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        let mut value = Some(value);
        let_go_by(&mut || value = None);
    }
}

/// As [`let_go`], of what `drop` drops. Returns false if that has panicked.
#[inline(never)]
pub fn let_go_by(drop: &mut dyn FnMut()) -> bool {
    let dropped = contain(drop);
    if let Err(panic) = &dropped {
        warn_seldom!(panic, "a value of a grain's panicked while it was dropped");
    }
    dropped.is_ok()
}

/// Words of a panic, if it has some.
#[cold]
fn words_of(panic: Box<dyn Any + Send>) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned());
    // Even the value that was thrown may panic when it is dropped.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    words
}

pin_project! {
    /// A future of user code. It ends with the words of a panic, if there is one, and is dropped
    /// without panicking.
    pub struct Contained<F> {
        #[pin]
        code: Option<F>,
    }

    impl<F> PinnedDrop for Contained<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut code = this.project().code;
            if code.is_some()
                && let Err(words) = contain(|| code.set(None))
            {
                warn_seldom!(panic = words, "a grain's code panicked while it was dropped");
            }
        }
    }
}

/// Keeps `code` from breaking what polls it.
pub const fn contained<F: Future>(code: F) -> Contained<F> {
    Contained { code: Some(code) }
}

impl<F: Future> Future for Contained<F> {
    type Output = Result<F::Output, String>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut code = self.project().code;
        let Some(running) = code.as_mut().as_pin_mut() else {
            debug_assert!(false, "polled after its end");
            return Poll::Pending;
        };
        match contain(|| running.poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(match contain(|| code.set(None)) {
                Ok(()) => Ok(output),
                Err(words) => {
                    let_go(output);
                    Err(words)
                }
            }),
            Err(words) => {
                let _ = contain(|| code.set(None));
                Poll::Ready(Err(words))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "dropped");
        }
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_panic_becomes_its_words_wherever_it_is() {
        assert_eq!(contain(|| 7), Ok(7));
        assert_eq!(
            contain(|| std::panic::panic_any(Bomb)),
            Err::<(), _>("a panic without words".to_owned())
        );
        let inside = contained(async { panic!("inside") });
        assert_eq!(poll(std::pin::pin!(inside)), Poll::Ready(Err::<(), _>("inside".to_owned())));
        let at_its_end = contained(async {
            let _bomb = Bomb;
            7
        });
        assert_eq!(poll(std::pin::pin!(at_its_end)), Poll::Ready(Err("dropped".to_owned())));
        let both = contained(async {
            let _bomb = Bomb;
            Bomb
        });
        let Poll::Ready(Ok(bomb)) = poll(std::pin::pin!(both)).map(|end| match end {
            Err(words) if words == "dropped" => Ok::<_, ()>(Bomb),
            _ => Err(()),
        }) else {
            panic!("its own value panicked first")
        };
        let_go(bomb);
        let mut half_way = Box::pin(contained(async {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        }));
        assert!(poll(half_way.as_mut()).is_pending());
        drop(half_way);
    }
}

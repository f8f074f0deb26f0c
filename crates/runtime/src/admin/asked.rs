//! Questions that were asked, until their answers come.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::error::AdminError;

/// Number of questions that wait for an answer at once.
const ASKED_MAX: usize = 4_096;

type Asker = oneshot::Sender<Result<Bytes, AdminError>>;

/// Questions that wait for an answer.
#[derive(Default)]
pub(crate) struct Asked {
    /// By number: the way that the question took, and its asker.
    waiting: Mutex<HashMap<u64, (u64, Asker)>>,
    last: AtomicU64,
}

impl Asked {
    /// Asks by `send`, which gets the number of the question, and waits for the answer. `way` is a
    /// number of the connection or the silo. `send` returns false if the question was not sent.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        way: u64,
        patience: Duration,
        send: impl FnOnce(u64) -> bool,
    ) -> Result<Bytes, AdminError> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, wait) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= ASKED_MAX {
                return Err(AdminError::Failed("too many questions wait for answers".to_owned()));
            }
            waiting.insert(id, (way, answer));
        }
        let _forget = Forget(self, id);
        if !send(id) {
            return Err(AdminError::NoGateway);
        }
        match tokio::time::timeout(patience, wait).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(AdminError::NoGateway),
            Err(_) => Err(AdminError::TimedOut),
        }
    }

    /// No answer comes by this way any longer.
    pub(crate) fn way_lost(&self, way: u64) {
        self.waiting.lock().retain(|_, (own, _)| *own != way);
    }

    /// An answer has come.
    pub(crate) fn answered(&self, id: u64, answer: Result<Bytes, AdminError>) {
        let asker = self.waiting.lock().remove(&id);
        if let Some((_, asker)) = asker {
            // An error means that the asker has given up.
            let _ = asker.send(answer);
        }
    }
}

/// Takes a question out that is no longer waited for.
struct Forget<'a>(&'a Asked, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_finds_its_question_and_nothing_is_left_behind() {
        let asked = Arc::new(Asked::default());
        let patience = Duration::from_secs(1);
        let late = asked.ask(7, patience, |_| true).await;
        assert_eq!(late, Err(AdminError::TimedOut));
        assert_eq!(asked.ask(7, patience, |_| false).await, Err(AdminError::NoGateway));
        let answer = asked.ask(7, patience, |id| {
            asked.answered(id + 1, Ok(Bytes::new()));
            asked.answered(id, Ok(Bytes::from_static(b"x")));
            true
        });
        assert_eq!(answer.await, Ok(Bytes::from_static(b"x")));
        let lost = asked.ask(7, patience, |_| {
            asked.way_lost(7);
            true
        });
        assert_eq!(lost.await, Err(AdminError::NoGateway));
        assert!(asked.waiting.lock().is_empty());
    }
}

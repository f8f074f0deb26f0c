//! Answers that all pages share: each is asked for once, and kept for a moment.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::ask::{Answer, Unanswered};

/// Time for which an answer is good.
const FRESH: Duration = Duration::from_secs(2);

/// Number of answers that are kept, of one kind.
const KEPT_MAX: usize = 32;

/// Number of requests that ask all silos at once; others wait.
const FANS_MAX: usize = 2;

/// Answers of one kind, by the question.
type Kept = Mutex<HashMap<String, (Instant, Bytes)>>;

/// The answers that are kept.
pub(super) struct Answers {
    pub(super) history: Kept,
    pub(super) failures: Kept,
    pub(super) settings: Kept,
    pub(super) metrics: Kept,
    /// Turns of requests that ask all silos.
    pub(super) fans: Semaphore,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            history: Kept::default(),
            failures: Kept::default(),
            settings: Kept::default(),
            metrics: Kept::default(),
            fans: Semaphore::new(FANS_MAX),
        }
    }
}

/// The answer to `question`, as JSON: kept, or asked for now. Requests of the same kind wait for
/// it.
pub(super) async fn once<A: Serialize>(
    kept: &Kept,
    question: &str,
    ask: impl Future<Output = Result<A, Unanswered>>,
) -> Answer {
    let mut kept = kept.lock().await;
    kept.retain(|_, (at, _)| at.elapsed() < FRESH);
    let known = kept.get(question).map(|(_, answer)| answer.clone());
    let answer = match known {
        Some(answer) => answer,
        None => {
            let answer: Bytes = serde_json::to_vec(&ask.await?).unwrap_or_default().into();
            if kept.len() < KEPT_MAX {
                kept.insert(question.to_owned(), (Instant::now(), answer.clone()));
            }
            answer
        }
    };
    drop(kept);
    Ok(([(CONTENT_TYPE, "application/json")], answer).into_response())
}

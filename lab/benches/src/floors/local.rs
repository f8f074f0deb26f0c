//! Floors within one process.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};

use crate::drive::{Ask, Tell};

/// Number of messages that may wait for an actor.
const QUEUE: usize = 64;

/// The least: the state under a mutex, the turn on the caller's task.
#[derive(Clone)]
pub struct Inline(Arc<Mutex<u64>>);

impl Inline {
    /// A fresh one.
    pub fn start() -> Self {
        Self(Arc::new(Mutex::new(0)))
    }
}

impl Ask for Inline {
    async fn ask(&self, n: u64) -> crate::Result<u64> {
        *self.0.lock().await += 1;
        Ok(n + 1)
    }
}

/// A message of an actor.
enum Message {
    /// Answer with one more.
    Ask(u64, oneshot::Sender<u64>),
    /// Count it.
    Tell,
    /// Asks for the number that were counted.
    Count(oneshot::Sender<u64>),
}

/// The usual actor: a task that owns the state, a bounded channel to it, a oneshot for each answer.
#[derive(Clone)]
pub struct Mpsc(mpsc::Sender<Message>);

impl Mpsc {
    /// Starts its task.
    pub fn start() -> Self {
        let (sender, mut inbox) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut told = 0;
            while let Some(message) = inbox.recv().await {
                // An asker that has gone away needs no answer.
                match message {
                    Message::Ask(n, answer) => drop(answer.send(n + 1)),
                    Message::Tell => told += 1,
                    Message::Count(answer) => drop(answer.send(told)),
                }
            }
        });
        Self(sender)
    }
}

impl Ask for Mpsc {
    async fn ask(&self, n: u64) -> crate::Result<u64> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Message::Ask(n, answer)).await.map_err(|_| "the actor has ended")?;
        Ok(wait.await?)
    }
}

impl Tell for Mpsc {
    async fn tell(&self) -> crate::Result<()> {
        self.0.send(Message::Tell).await.map_err(|_| "the actor has ended".into())
    }

    async fn told(&self) -> crate::Result<u64> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Message::Count(answer)).await.map_err(|_| "the actor has ended")?;
        Ok(wait.await?)
    }
}

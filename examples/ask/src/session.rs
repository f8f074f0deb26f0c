//! A session: questions and answers, stored as they are said, and read by any number of pages.

use std::sync::Arc;
use std::time::Duration;

use emmer::prelude::*;
use emmer::reminders::Timer;
use emmer::tables::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

use crate::model::Model;

/// The period at which a session takes words from its model, stores and tells them.
const TAKES: Duration = Duration::from_millis(100);
/// An answer that no page reads is stopped after this time.
const UNREAD: Duration = Duration::from_secs(30);
/// The longest question, in bytes.
const QUESTION_MAX: usize = 2_000;
/// The most parts of a session.
const PARTS_MAX: usize = 10_000;

/// A part of a session. Its place among the parts is its number, from 0 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A question.
    Question {
        /// Its words.
        text: String,
        /// A text that the page has drawn for it. Asking again begins no second answer.
        token: String,
    },
    /// Words of the answer.
    Words(String),
    /// The end of the answer.
    End(Ending),
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The model has said all.
    Complete,
    /// Its reader has stopped it, or asked something else.
    Stopped,
    /// No page has read it for half a minute.
    Unread,
}

/// The session does not take the question.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
pub enum AskError {
    /// There are no words in it, or too many.
    #[error("a question has 1 to {QUESTION_MAX} bytes, and this one has {0}")]
    Length(usize),
    /// The session is as long as it may be.
    #[error("this session is full: begin another one")]
    Full,
    /// It did not work now: ask again, with the same token.
    #[error("{0}")]
    #[other]
    Other(emmer::Error),
}

/// A session, by its name.
#[grain_interface(key = String)]
pub trait Session {
    /// Asks. A running answer is stopped. A token that was asked last is not asked again.
    async fn ask(&mut self, question: String, token: String) -> Result<(), AskError>;
    /// Stops the running answer.
    async fn stop(&mut self) -> Result<(), AskError>;
    /// Every part from number `from` on, and then those that come. A reader that is too slow gets
    /// the end of the stream, and reads on from the next number.
    async fn read(&mut self, from: u64, parts: Sink<(u64, Part)>);
}

/// The class of sessions.
#[derive(Grain)]
pub struct SessionGrain {
    #[context]
    ctx: Ctx,
    #[service]
    model: Arc<dyn Model>,
    #[state("parts")]
    parts: Persistent<Vec<Part>>,
    /// The pages that read.
    readers: Vec<Sink<(u64, Part)>>,
    /// The time at which a page has read last.
    read: Timestamp,
    /// The running answer.
    answer: Option<Answer>,
}

/// Dropping it stops the model and the timer.
struct Answer {
    words: Receiver<String>,
    takes: Timer,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.takes.stop();
    }
}

impl Lifecycle for SessionGrain {
    /// Continues an answer that was running when its silo died or was stopped.
    async fn activate(&mut self, _: &Ctx) -> Result<(), ActivationError> {
        if matches!(self.parts.last(), Some(Part::Question { .. } | Part::Words(_))) {
            self.begin();
        }
        Ok(())
    }
}

#[grain]
impl Session for SessionGrain {
    async fn ask(&mut self, text: String, token: String) -> Result<(), AskError> {
        if !(1..=QUESTION_MAX).contains(&text.len()) {
            return Err(AskError::Length(text.len()));
        }
        if self.parts.len() >= PARTS_MAX {
            return Err(AskError::Full);
        }
        let is_asked = |part: &Part| matches!(part, Part::Question { token: t, .. } if *t == token);
        if self.parts.iter().any(is_asked) {
            return Ok(());
        }
        self.end(Ending::Stopped).await?;
        self.add([Part::Question { text, token }]).await?;
        self.begin();
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), AskError> {
        Ok(self.end(Ending::Stopped).await?)
    }

    async fn read(&mut self, from: u64, parts: Sink<(u64, Part)>) {
        self.read = self.ctx.now();
        let from_place = usize::try_from(from).unwrap_or(usize::MAX);
        for (number, part) in (from..).zip(self.parts.iter().skip(from_place)) {
            if parts.try_send((number, part.clone())).is_err() {
                return;
            }
        }
        self.readers.push(parts);
    }
}

impl SessionGrain {
    /// Lets the model speak, behind what it has said.
    fn begin(&mut self) {
        let is_question = |part: &Part| matches!(part, Part::Question { .. });
        let Some(place) = self.parts.iter().rposition(is_question) else { return };
        let Part::Question { text, .. } = &self.parts[place] else { return };
        let said = self.parts[place..].iter().filter_map(|part| match part {
            Part::Words(words) => Some(words.as_str()),
            _ => None,
        });
        let words = self.model.answer(text, &said.collect::<Vec<_>>().join(" "));
        let takes = self.ctx.timer(TAKES).every(TAKES).keep_alive().run(Self::take);
        self.read = self.ctx.now();
        self.answer = Some(Answer { words, takes });
    }

    /// Takes the words that the model has said meanwhile.
    async fn take(&mut self) -> Result<(), StateError> {
        self.readers.retain(|reader| !reader.is_closed());
        let now = self.ctx.now();
        if !self.readers.is_empty() {
            self.read = now;
        } else if self.read + UNREAD <= now {
            return self.end(Ending::Unread).await;
        }
        let Some(answer) = &mut self.answer else { return Ok(()) };
        let mut words = Vec::new();
        let is_over = loop {
            match answer.words.try_recv() {
                Ok(word) => words.push(word),
                Err(TryRecvError::Empty) => break false,
                Err(TryRecvError::Disconnected) => break true,
            }
        };
        if !words.is_empty() {
            self.add([Part::Words(words.join(" "))]).await?;
        }
        if is_over { self.end(Ending::Complete).await } else { Ok(()) }
    }

    /// Ends the running answer.
    async fn end(&mut self, how: Ending) -> Result<(), StateError> {
        if self.answer.take().is_some() { self.add([Part::End(how)]).await } else { Ok(()) }
    }

    /// Stores parts, and tells them then: what a page has shown is never unsaid.
    async fn add<const N: usize>(&mut self, parts: [Part; N]) -> Result<(), StateError> {
        let first = self.parts.len() as u64;
        self.parts.extend(parts.iter().cloned());
        self.parts.write().await?;
        for (number, part) in (first..).zip(parts) {
            // A page that is gone, or too slow, loses its place; it reads on by itself.
            self.readers.retain(|reader| reader.try_send((number, part.clone())).is_ok());
        }
        Ok(())
    }
}

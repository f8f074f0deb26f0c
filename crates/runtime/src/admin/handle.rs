//! The admin interface as a program uses it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use emmer_core::{SiloAddress, SiloEntry};
use emmer_store::BoxFuture;
use emmer_wire::codec;
use serde::de::DeserializeOwned;

use super::error::AdminError;
use super::looks::{
    Deactivated, GrainLook, GrainPage, HeldThread, HotLook, Moved, SiloLook, TurnLook, TypeLook,
};
use super::question::{GrainName, Question};
use crate::metrics::{GrainQueue, MethodStatistics};

/// The way of a question to a cluster.
pub(crate) trait Way: Send + Sync {
    /// Asks a silo; without one, whichever the question reaches first.
    fn ask(
        &self,
        to: Option<SiloAddress>,
        question: Bytes,
        patience: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AdminError>>;
}

/// A cluster that is a function.
struct Answered<F>(F);

impl<F> Way for Answered<F>
where
    F: Fn(Option<SiloAddress>, Question) -> Result<Bytes, AdminError> + Send + Sync,
{
    fn ask(
        &self,
        to: Option<SiloAddress>,
        question: Bytes,
        _: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AdminError>> {
        let question = codec::decode(&question);
        let question = question.map_err(|error| AdminError::Unreadable(error.to_string()));
        Box::pin(std::future::ready(question.and_then(|question| (self.0)(to, question))))
    }
}

/// Time that a silo has to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Questions about a running cluster, and orders to it ([`Client::admin`](crate::Client::admin)).
///
/// Each question goes to one silo. Without a name of a silo the gateway answers, or of a question
/// about a grain the silo that has it. A question wakes no grain.
///
/// ```no_run
/// use emmer::admin::GrainName;
/// use emmer::prelude::*;
///
/// # async fn f() -> emmer::Result<()> {
/// let client = Client::connect("sqlite://cluster.db", "shop").await?;
/// let ann = GrainName { grain_type: "cart".to_owned(), key: "ann".into() };
/// let look = client.admin().grain(ann).await?;
/// println!("on {}: {} activations", look.silo, look.activations.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    way: Arc<dyn Way>,
    patience: Duration,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Admin {
    pub(crate) fn new(way: Arc<dyn Way>) -> Self {
        Self { way, patience: PATIENCE }
    }

    /// Of a cluster that is a function, for tests.
    #[doc(hidden)]
    pub fn answered_by(
        answer: impl Fn(Option<SiloAddress>, Question) -> Result<Bytes, AdminError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self::new(Arc::new(Answered(answer)))
    }

    /// Waits this long for each answer; five seconds without it.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Asks a silo, and reads the answer as the type that the question names.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn ask<A: DeserializeOwned>(
        &self,
        to: Option<SiloAddress>,
        question: &Question,
    ) -> Result<A, AdminError> {
        let answer = self.ask_boxed(to, question).await?;
        codec::decode(&answer).map_err(|error| AdminError::Unreadable(error.to_string()))
    }

    fn ask_boxed(
        &self,
        to: Option<SiloAddress>,
        question: &Question,
    ) -> BoxFuture<'_, Result<Bytes, AdminError>> {
        let mut encoded = BytesMut::new();
        if let Err(error) = codec::encode_into(&mut encoded, question) {
            return Box::pin(std::future::ready(Err(AdminError::Failed(error.to_string()))));
        }
        let patience = self.patience + question.takes();
        self.way.ask(to, encoded.freeze(), patience)
    }

    /// Looks at a silo.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn silo(&self, silo: Option<SiloAddress>) -> Result<SiloLook, AdminError> {
        self.ask(silo, &Question::Silo).await
    }

    /// The rows of the membership view of a silo.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn members(&self, silo: Option<SiloAddress>) -> Result<Vec<SiloEntry>, AdminError> {
        self.ask(silo, &Question::Members).await
    }

    /// The grain types that a silo hosts.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn types(&self, silo: Option<SiloAddress>) -> Result<Vec<TypeLook>, AdminError> {
        self.ask(silo, &Question::Types).await
    }

    /// Counts of each method that a silo hosts.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn methods(
        &self,
        silo: Option<SiloAddress>,
    ) -> Result<Vec<MethodStatistics>, AdminError> {
        self.ask(silo, &Question::Methods).await
    }

    /// A page of the grains in the memory of a silo; `question` is [`Question::Grains`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn grains(
        &self,
        silo: Option<SiloAddress>,
        question: &Question,
    ) -> Result<GrainPage, AdminError> {
        self.ask(silo, question).await
    }

    /// Looks at one grain, wherever it is, without waking it.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn grain(&self, grain: GrainName) -> Result<GrainLook, AdminError> {
        self.ask(None, &Question::Look(grain)).await
    }

    /// The turns of a silo that have been suspended for longest, and the threads that turns hold
    /// without an await.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn turns(
        &self,
        silo: Option<SiloAddress>,
        max: u32,
    ) -> Result<(Vec<TurnLook>, Vec<HeldThread>), AdminError> {
        self.ask(silo, &Question::Turns { max }).await
    }

    /// The grains of a silo for which most calls wait.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn queues(
        &self,
        silo: Option<SiloAddress>,
        max: u32,
    ) -> Result<Vec<GrainQueue>, AdminError> {
        self.ask(silo, &Question::Queues { max }).await
    }

    /// The grains of a silo that are called most.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn hot(&self, silo: Option<SiloAddress>, max: u32) -> Result<HotLook, AdminError> {
        self.ask(silo, &Question::Hot { max }).await
    }

    /// Ends the activation of a grain; `order` is [`Question::Deactivate`].
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn deactivate(&self, order: &Question) -> Result<Deactivated, AdminError> {
        self.ask(None, order).await
    }

    /// Moves a grain to the silo `to`. None: placement chooses the silo.
    ///
    /// # Errors
    /// [`AdminError`]. The grain stays where it is, or ends as by a death.
    pub async fn move_grain(
        &self,
        grain: GrainName,
        to: Option<SiloAddress>,
        because: Option<String>,
    ) -> Result<Moved, AdminError> {
        self.ask(None, &Question::Move { grain, to, because }).await
    }
}

//! A method with its class's incoming filters around it.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use emmer_core::GrainId;
use emmer_store::BoxFuture;
use pin_project_lite::pin_project;

use super::{Activation, TurnOutcome, contained};
use crate::filters::{Around, FilterCall, Filters, Outcome, around};
use crate::grain::{Grain, Method, TurnContext};

pin_project! {
    /// A method's future, with filters around it if there are any.
    #[project = Running]
    pub enum RunMethod<'a, M, F>
    where
        M: Method,
    {
        /// No filter.
        Plain {
            #[pin]
            method: F,
        },
        /// In a box, so that turns without filters carry no room for it.
        Filtered { around: BoxFuture<'a, TurnOutcome<M>> },
    }
}

impl<M: Method, F: Future<Output = M::Output>> Future for RunMethod<'_, M, F> {
    type Output = TurnOutcome<M>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            Running::Plain { method } => method.poll(cx).map(TurnOutcome::Done),
            Running::Filtered { around } => around.as_mut().poll(cx),
        }
    }
}

impl<G: Grain> Activation<G> {
    /// Runs a method of the grain in its turn, which was admitted.
    #[inline]
    pub fn run_method<'a, M, F>(&self, method: F) -> RunMethod<'a, M, F>
    where
        M: Method,
        F: Future<Output = M::Output> + Send + 'a,
    {
        if self.class.filters.is_empty() {
            return RunMethod::Plain { method };
        }
        let around = filtered::<M, _>(self.class.filters.clone(), self.id.clone(), method);
        RunMethod::Filtered { around: Box::pin(around) }
    }
}

async fn filtered<M: Method, F: Future<Output = M::Output> + Send>(
    filters: Filters,
    grain: GrainId,
    method: F,
) -> TurnOutcome<M> {
    let work = move |context| async move {
        if let Some(context) = context {
            TurnContext::set_request_context(context);
        }
        contained(method).await
    };
    let outcome_of = |done: &Result<M::Output, String>| match done {
        Ok(output) => Outcome::of::<M>(output),
        Err(panic) => Outcome::failed(format_args!("the grain panicked: {panic}")),
    };
    match around(&filters, FilterCall::incoming::<M>(&grain), work, outcome_of).await {
        Around::Done(Ok(output)) => TurnOutcome::Done(output),
        Around::Refused(why) => TurnOutcome::Refused(why),
        // The grain may be half changed, and breaks, as without a filter.
        Around::Done(Err(panic)) => resume_unwind(Box::new(panic)),
        Around::GivenUp(why) => {
            resume_unwind(Box::new(format!("a filter gave the method up half way: {why}")))
        }
    }
}

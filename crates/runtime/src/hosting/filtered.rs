//! A method with its class's incoming filters around it.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use emmer_core::GrainId;
use emmer_store::BoxFuture;
use pin_project_lite::pin_project;

use super::{Activation, TurnOutcome, contained};
use crate::filters::{Around, FilterCall, Filters, Outcome, around};
use crate::grain::{Method, MethodInfo, TurnContext};

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
        Filtered { around: BoxFuture<'a, Result<AnyOutput, String>>, method: PhantomData<fn() -> M> },
    }
}

/// An output whose type is not known.
struct AnyOutput {
    value: Box<dyn Any + Send>,
    /// True for the method's own error.
    is_error: bool,
}

impl<M: Method, F: Future<Output = M::Output>> Future for RunMethod<'_, M, F> {
    type Output = TurnOutcome<M>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            Running::Plain { method } => method.poll(cx).map(TurnOutcome::Done),
            Running::Filtered { around, .. } => {
                around.as_mut().poll(cx).map(|around| match around.map(|output| output.value) {
                    Ok(output) => match output.downcast() {
                        Ok(output) => TurnOutcome::Done(*output),
                        Err(_) => TurnOutcome::Refused("the output of another method".to_owned()),
                    },
                    Err(why) => TurnOutcome::Refused(why),
                })
            }
        }
    }
}

impl Activation {
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
        let method = async move {
            let output = method.await;
            AnyOutput { is_error: M::is_error(&output), value: Box::new(output) }
        };
        let (filters, grain) = (self.class.filters.clone(), self.id.clone());
        let around = filtered(filters, grain, M::INFO, Box::pin(method));
        RunMethod::Filtered { around, method: PhantomData }
    }
}

/// Runs `method` with `filters` around it.
///
/// # Errors
/// The words of the filter that refused the call.
fn filtered<'a>(
    filters: Filters,
    grain: GrainId,
    info: &'static MethodInfo,
    method: BoxFuture<'a, AnyOutput>,
) -> BoxFuture<'a, Result<AnyOutput, String>> {
    let work = move |context| async move {
        if let Some(context) = context {
            TurnContext::set_request_context(context);
        }
        contained(method).await
    };
    let outcome_of = |done: &Result<AnyOutput, String>| match done {
        Ok(output) if output.is_error => Outcome::own_error(),
        Ok(_) => Outcome::done(),
        Err(panic) => Outcome::failed(format_args!("the grain panicked: {panic}")),
    };
    Box::pin(async move {
        match around(&filters, FilterCall::incoming(info, &grain), work, outcome_of).await {
            Around::Done(Ok(output)) => Ok(output),
            Around::Refused(why) => Err(why),
            // The grain may be half changed, and breaks, as without a filter.
            Around::Done(Err(panic)) => resume_unwind(Box::new(panic)),
            Around::GivenUp(why) => {
                resume_unwind(Box::new(format!("a filter gave the method up half way: {why}")))
            }
        }
    })
}

//! A method with its class's incoming filters around it.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use emmer_core::GrainId;
use emmer_store::BoxFuture;

use super::{Activation, TurnOutcome};
use crate::filters::{Around, FilterCall, Filters, Outcome, around};
use crate::hosting::TurnContext;
use crate::turn::{MethodInfo, contained};

/// A method that puts its output away; true for its own error.
type Method<'a> = Pin<&'a mut (dyn Future<Output = bool> + Send + 'a)>;

/// A method's future, with filters around it if there are any.
pub struct RunMethod<'a>(Running<'a>);

enum Running<'a> {
    /// No filter.
    Plain(Method<'a>),
    /// In a box, so that turns without filters carry no room for it.
    Filtered(BoxFuture<'a, TurnOutcome>),
}

impl Future for RunMethod<'_> {
    type Output = TurnOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TurnOutcome> {
        match &mut self.0 {
            Running::Plain(method) => {
                method.as_mut().poll(cx).map(|is_error| TurnOutcome::Done { is_error })
            }
            Running::Filtered(around) => around.as_mut().poll(cx),
        }
    }
}

impl Activation {
    /// Runs a method of the grain in its turn, which was admitted.
    pub fn run_method<'a>(&self, info: &'static MethodInfo, method: Method<'a>) -> RunMethod<'a> {
        RunMethod(if self.class.filtered {
            let (filters, grain) = (self.class.filters.clone(), self.id.clone());
            Running::Filtered(Box::pin(filtered(filters, grain, info, method)))
        } else {
            Running::Plain(method)
        })
    }
}

async fn filtered(
    filters: Filters,
    grain: GrainId,
    info: &'static MethodInfo,
    method: Method<'_>,
) -> TurnOutcome {
    let work = move |context| async move {
        if let Some(context) = context {
            TurnContext::set_request_context(context);
        }
        contained(method).await
    };
    let outcome_of = |done: &Result<bool, String>| match done {
        Ok(true) => Outcome::own_error(),
        Ok(false) => Outcome::done(),
        Err(panic) => Outcome::failed(format_args!("the grain panicked: {panic}")),
    };
    let context = TurnContext::request_context().unwrap_or_default();
    let call = FilterCall::new(info, &grain, TurnContext::calling_grain(), context);
    match around(&filters, call, work, outcome_of).await {
        Around::Done(Ok(is_error)) => TurnOutcome::Done { is_error },
        Around::Refused(why) => TurnOutcome::Refused(why),
        // The grain may be half changed, and breaks, as without a filter.
        Around::Done(Err(panic)) => resume_unwind(Box::new(panic)),
        Around::GivenUp(why) => {
            resume_unwind(Box::new(format!("a filter gave the method up half way: {why}")))
        }
    }
}

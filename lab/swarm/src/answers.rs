//! Knowledge of a caller after an answer.

use emmer::CallError;

use crate::ledger::{self, Told};

/// Notes the outcome of a call, as its caller knows it.
pub(crate) fn judge<T, E: std::fmt::Debug>(call: u64, answer: &Result<T, CallError<E>>) {
    match answer {
        Ok(_) | Err(CallError::App(_)) => ledger::ends(call, Told::Ran, "an answer"),
        Err(e) => {
            let told = if e.maybe_executed() { Told::Perhaps } else { Told::NotRun };
            ledger::reach(e.code());
            ledger::ends(call, told, e.code());
        }
    }
}

/// Notes the outcome of a one-way call for its caller.
pub(crate) fn judge_send<E: std::fmt::Debug>(call: u64, sent: Result<(), CallError<E>>) {
    if let Err(e) = sent {
        let told = if e.maybe_executed() { Told::Perhaps } else { Told::NotRun };
        ledger::ends(call, told, e.code());
    }
}

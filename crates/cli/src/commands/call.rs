//! `emmer call`: calls a method of a grain by its name, with arguments in JSON.

use std::time::Duration;

use emmer::CallError;
use emmer::admin::{MethodLook, TypeLook};
use emmer::console::payload;
use serde_json::{Map, Value as Json};

use super::grain::{GrainArgs, find};
use super::output::write_out;
use super::reach::ReachArgs;
use crate::exit::{Failure, Result};
use crate::process::runtime;

/// The flags of `emmer call`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    grain: GrainArgs,
    /// The method, as `add`, or `Counter.add` where several interfaces have one of the name
    #[arg(value_name = "METHOD")]
    method: Option<String>,
    /// The arguments: an object by their names, or an array in their order
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    arguments: Option<String>,
    /// Longest wait for the answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::duty::duration)]
    timeout: Duration,
    #[command(flatten)]
    reach: ReachArgs,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let way = args.reach.settle(log)?;
    let json = args.arguments.as_deref().map(serde_json::from_str::<Json>).transpose();
    let json =
        json.map_err(|error| Failure::usage(format!("the arguments are no JSON: {error}")))?;
    runtime()?.block_on(async {
        let reached = way.reach().await?;
        let (grain, hosted) = find(&reached, &args.grain).await?;
        let Some(wanted) = &args.method else {
            return write_out(&methods(&hosted));
        };
        let method = method_of(&hosted, wanted)?;
        let arguments = payload::to_msgpack(&Json::Object(named(method, json)?));
        let client = &reached.client;
        let called = client.call_by_name(&grain, method, arguments.into(), Some(args.timeout));
        let answer = called.await.map_err(|error| call_failed(&error, method))?;
        reached.client.close().await;
        let answer = payload::of_msgpack(&answer).map_err(Failure::other)?;
        match answer {
            // A map of one pair says which it is.
            Json::Object(mut both) if returns_result(method) && both.len() == 1 => {
                match (both.remove("Ok"), both.remove("Err")) {
                    (Some(ok), _) => print(&ok),
                    (_, Some(error)) => Err(Failure::other(format!(
                        "{}.{} has answered with its own error: {error}",
                        method.interface, method.name
                    ))),
                    _ => print(&Json::Object(both)),
                }
            }
            answer => print(&answer),
        }
    })
}

fn returns_result(method: &MethodLook) -> bool {
    method.returns.split("::").last().is_some_and(|last| last.starts_with("Result"))
        || method.returns.contains("Result<")
}

fn print(answer: &Json) -> Result<()> {
    let text = serde_json::to_string_pretty(answer).map_err(Failure::other)?;
    write_out(&format!("{text}\n"))
}

fn call_failed<E: std::fmt::Display>(error: &CallError<E>, method: &MethodLook) -> Failure {
    match error {
        CallError::Codec { .. } => {
            Failure::other(format!("{error}; expected {}", signature(method)))
        }
        _ => Failure::other(error),
    }
}

/// The methods of a type, one in a line.
fn methods(hosted: &TypeLook) -> String {
    let callable = hosted.methods.iter().filter(|method| !method.is_internal && !method.is_stream);
    callable.map(|method| signature(method) + "\n").collect()
}

/// `Counter.add(by: u64) -> u64`.
fn signature(method: &MethodLook) -> String {
    let arguments: Vec<_> = method
        .arguments
        .iter()
        .map(|argument| format!("{}: {}", argument.name, argument.r#type))
        .collect();
    let MethodLook { interface, name, returns, .. } = method;
    let returns = if returns == "()" { String::new() } else { format!(" -> {returns}") };
    format!("{interface}.{name}({}){returns}", arguments.join(", "))
}

/// The method that is meant.
fn method_of<'a>(hosted: &'a TypeLook, wanted: &str) -> Result<&'a MethodLook> {
    let is_it = |method: &&MethodLook| {
        method.name == wanted || format!("{}.{}", method.interface, method.name) == wanted
    };
    let found: Vec<_> = hosted.methods.iter().filter(is_it).collect();
    match found.as_slice() {
        [one] if one.is_stream => Err(Failure::other(format!(
            "{} has a stream, which no command line can read or write",
            signature(one)
        ))),
        [one] => Ok(one),
        [] => Err(Failure::usage(format!(
            "{} has no method {wanted:?}: expected one of\n{}",
            hosted.grain_type,
            methods(hosted).trim_end()
        ))),
        several => {
            let several: Vec<_> = several.iter().map(|method| signature(method)).collect();
            Err(Failure::usage(format!("{wanted} may be {}", several.join(" or "))))
        }
    }
}

/// The arguments by their names.
fn named(method: &MethodLook, json: Option<Json>) -> Result<Map<String, Json>> {
    let wrong = |why: String| {
        Failure::usage(format!("{why}: expected the arguments of {}", signature(method)))
    };
    let names: Vec<&str> = method.arguments.iter().map(|one| one.name.as_str()).collect();
    match json {
        None if names.is_empty() => Ok(Map::new()),
        None => Err(wrong("no arguments are given".to_owned())),
        Some(Json::Array(values)) if values.len() == names.len() => {
            Ok(names.iter().map(|name| (*name).to_owned()).zip(values).collect())
        }
        Some(Json::Array(values)) => Err(wrong(format!("{} values are given", values.len()))),
        Some(Json::Object(map)) => match map.keys().find(|name| !names.contains(&name.as_str())) {
            Some(name) => Err(wrong(format!("{name:?} is no argument"))),
            None => Ok(map),
        },
        Some(other) => Err(wrong(format!("{other} is neither an object nor an array"))),
    }
}

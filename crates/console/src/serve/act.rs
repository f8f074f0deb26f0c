//! Orders of a page. A silo may refuse them all the same: they are given in the console's name.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use emmer_core::Duty;
use emmer_runtime::admin::{Admin, Deactivated, Moved, Question};
use serde::Deserialize;
use serde_json::json;

use super::Shared;
use super::ask::{Answer, Unanswered, silo_of};
use super::door::Visitor;

/// The longest order, in bytes.
const ORDER_BYTES_MAX: usize = 64 << 10;

/// An order.
#[derive(Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    /// Ends a grain's activation; with `drop_turns` its turns are dropped.
    Deactivate {
        r#type: String,
        key: String,
        drop_turns: bool,
        because: String,
    },
    /// Moves a grain. Without a silo, placement chooses it.
    Move {
        r#type: String,
        key: String,
        to: String,
        because: String,
    },
    /// Traces a grain on its silo.
    Trace {
        r#type: String,
        key: String,
        for_ms: u64,
        because: String,
    },
    /// Fires a reminder, or removes it.
    FireReminder {
        r#type: String,
        key: String,
        name: String,
        because: String,
    },
    RemoveReminder {
        r#type: String,
        key: String,
        name: String,
        because: String,
    },
    /// Gives a silo a duty: `full`, `cordoned`, `draining`, `giving` or `leaving`.
    Duty {
        silo: String,
        duty: String,
        because: String,
    },
    /// Has the log written by another filter for a time; without one as at the start.
    Log {
        silo: String,
        filter: String,
        for_ms: u64,
        because: String,
    },
}

/// Time that turns have to end before they are dropped, in milliseconds.
const WITHIN_MS: u64 = 2_000;

/// Gives an order. The answer says in words what has come of it.
pub(super) async fn act(
    State(shared): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    body: Bytes,
) -> Answer {
    if !visitor.may_act() {
        let why = "this console is for looking: it takes orders with --acts, or with the token \
            for them";
        return Err(Unanswered(StatusCode::FORBIDDEN, why.to_owned()));
    }
    let wrong = |why: String| Unanswered(StatusCode::BAD_REQUEST, why);
    if body.len() > ORDER_BYTES_MAX {
        return Err(wrong(format!("the order is longer than {ORDER_BYTES_MAX} bytes")));
    }
    let order: Order = serde_json::from_slice(&body)
        .map_err(|error| wrong(format!("this is not an order: {error}")))?;
    let done = give(&shared, order).await?;
    Ok(Json(json!({ "done": done })).into_response())
}

/// Reasons of people, and the way that the order took.
fn words(because: &str) -> Option<String> {
    let because = because.trim();
    Some(if because.is_empty() { "console".to_owned() } else { format!("console: {because}") })
}

async fn give(shared: &Shared, order: Order) -> Result<String, Unanswered> {
    let admin: &Admin = shared.admin();
    Ok(match order {
        Order::Deactivate { r#type, key, drop_turns, because } => {
            let (grain, because) = (shared.grain_of(&r#type, &key).await?, words(&because));
            let within_ms = WITHIN_MS;
            let order = Question::Deactivate { grain, drop_turns, within_ms, because };
            let done: Deactivated = admin.deactivate(&order).await?;
            match (done.left, done.threads.first()) {
                (0, _) => format!("{} ended, {} turns dropped", done.ended, done.dropped),
                (left, Some(held)) => format!(
                    "{left} left: {} holds the thread {} without an await, and only a restart of \
                     the silo frees it",
                    held.method, held.thread
                ),
                (left, None) => format!("{left} left: its turns have not ended"),
            }
        }
        Order::Move { r#type, key, to, because } => {
            let grain = shared.grain_of(&r#type, &key).await?;
            let moved: Moved = admin.move_grain(grain, silo_of(&to)?, words(&because)).await?;
            format!("moved to {}", moved.to)
        }
        Order::Trace { r#type, key, for_ms, because } => {
            let (grain, because) = (shared.grain_of(&r#type, &key).await?, words(&because));
            let order = Question::Trace { grain, for_ms, because };
            let for_ms: u64 = admin.ask(None, &order).await?;
            format!("traced for {} s", for_ms / 1_000)
        }
        Order::FireReminder { r#type, key, name, because } => {
            let (grain, because) = (shared.grain_of(&r#type, &key).await?, words(&because));
            let order = Question::FireReminder { grain, name, because };
            let there: bool = admin.ask(None, &order).await?;
            if there { "fired" } else { "there is no such reminder" }.to_owned()
        }
        Order::RemoveReminder { r#type, key, name, because } => {
            let (grain, because) = (shared.grain_of(&r#type, &key).await?, words(&because));
            let order = Question::RemoveReminder { grain, name, because };
            let there: bool = admin.ask(None, &order).await?;
            if there { "removed" } else { "there is no such reminder" }.to_owned()
        }
        Order::Duty { silo, duty, because } => {
            let given = [Duty::Full, Duty::Cordoned, Duty::Draining, Duty::Giving, Duty::Leaving]
                .into_iter()
                .find(|one| one.name().eq_ignore_ascii_case(&duty));
            let given = given.ok_or_else(|| {
                let why =
                    format!("{duty:?} is not a duty: full, cordoned, draining, giving or leaving");
                Unanswered(StatusCode::BAD_REQUEST, why)
            })?;
            let order = Question::GiveDuty { duty: given, because: words(&because) };
            let version: u64 = admin.ask(silo_of(&silo)?, &order).await?;
            format!("{duty} in version {version} of the membership")
        }
        Order::Log { silo, filter, for_ms, because } => {
            let filter = Some(filter).filter(|filter| !filter.is_empty());
            let order = Question::SetLog { filter, for_ms, because: words(&because) };
            let before: String = admin.ask(silo_of(&silo)?, &order).await?;
            format!("the log was written by {before} until now")
        }
    })
}

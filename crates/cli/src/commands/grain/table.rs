//! A grain as a page for people.

use std::fmt::Write;
use std::time::Duration;

use emmer::admin::{ActivationLook, TurnLook};

use crate::text::{self, plain};
use emmer::console::{GrainDocument, StateDocument};

pub(super) fn print(grain: &GrainDocument) -> String {
    let mut out = format!("{}/{}", grain.grain_type, plain(&grain.key));
    let at = match grain.silo_name == grain.silo {
        true => grain.silo.clone(),
        false => format!("{} ({})", plain(&grain.silo_name), grain.silo),
    };
    match grain.activations.len() {
        0 => {
            let _ = writeln!(out, " is not active; silo {at} has answered");
        }
        1 => {
            let _ = writeln!(out, " on silo {at}");
        }
        several => {
            let _ = writeln!(out, ": {several} activations on silo {at}");
        }
    }
    grain.activations.iter().for_each(|activation| activation_lines(&mut out, activation));
    grain.states.iter().for_each(|state| state_lines(&mut out, state));
    for reminder in &grain.reminders {
        let next = reminder.next.as_deref().unwrap_or("none");
        let late = match reminder.in_ms {
            Some(ms) if ms < 0 => format!(" ({} late)", span(ms.unsigned_abs())),
            Some(ms) => format!(" (in {})", span(ms.unsigned_abs())),
            None => String::new(),
        };
        let (name, fired, missed) = (plain(&reminder.name), reminder.fired, reminder.missed);
        let _ = writeln!(out, "reminder {name}: next {next}{late}, {fired} fired, {missed} missed");
    }
    for failure in &grain.failures {
        let (ago, method) = (span(failure.ago_ms), &failure.method);
        let _ = writeln!(out, "failed {ago} ago: {method}: {}", plain(&failure.words));
    }
    for unread in &grain.unread {
        let _ = writeln!(out, "not read: {}", plain(unread));
    }
    out
}

fn activation_lines(out: &mut String, activation: &ActivationLook) {
    let age = activation.age_ms.map_or_else(|| "?".to_owned(), span);
    let idle = span(activation.idle_ms);
    let _ = write!(out, "active for {age}, last call about {idle} ago");
    for (is_so, words) in [
        (activation.is_ending, "it is ending"),
        (!activation.is_registered, "not in the directory"),
    ] {
        if is_so {
            let _ = write!(out, ", {words}");
        }
    }
    if activation.timers > 0 {
        let _ = write!(out, ", timers: {}", activation.timers);
    }
    let _ = writeln!(out, ", calls that wait: {}", activation.waiting);
    activation.turns.iter().for_each(|turn| turn_lines(out, turn));
    for held in &activation.threads {
        let (method, time, thread) = (&held.method, span(held.held_ms), plain(&held.thread));
        let _ = writeln!(out, "  runs {method} for {time} without an await, on thread {thread}");
    }
    if activation.is_running && activation.turns.is_empty() && activation.threads.is_empty() {
        let _ = writeln!(out, "  a turn runs");
    }
    for wait in &activation.waits {
        let caller = wait.caller.as_deref().map_or_else(|| "a client".to_owned(), plain);
        let waited = wait.waited_ms.map_or_else(String::new, |ms| format!(" for {}", span(ms)));
        let _ = writeln!(out, "  waits{waited}: a call of {caller}");
    }
}

fn turn_lines(out: &mut String, turn: &TurnLook) {
    let caller = turn.caller.as_deref().map_or_else(|| "a client".to_owned(), plain);
    let _ = writeln!(out, "  runs {} for {}, called by {caller}", turn.method, span(turn.age_ms));
    if turn.chain.len() > 1 {
        let chain: Vec<_> = turn.chain.iter().map(|title| plain(title)).collect();
        let _ = writeln!(out, "    the calls before it: {}", chain.join(" -> "));
    }
    for waits in &turn.waits_for {
        let _ = writeln!(out, "    waits for {}", plain(waits));
    }
}

fn state_lines(out: &mut String, state: &StateDocument) {
    let store = state.store.as_deref().map_or_else(String::new, |name| format!(" in {name}"));
    let StateDocument { name, bytes, etag, modified, .. } = state;
    let name = plain(name);
    let _ = writeln!(out, "state {name}{store}: {bytes} bytes, etag {}, {modified}", plain(etag));
    match &state.unreadable {
        Some(why) => {
            let _ = writeln!(out, "  {}", plain(why));
        }
        None => {
            let json = serde_json::to_string_pretty(&state.value).unwrap_or_default();
            json.lines().for_each(|line| {
                let _ = writeln!(out, "  {}", plain(line));
            });
        }
    }
}

fn span(ms: u64) -> String {
    text::span(Duration::from_millis(ms))
}

//! Orders that a call gives to a grain, and the interface for them.

use emmer::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger;

/// Order that a call gives to a grain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The number of the call.
    pub(crate) call: u64,
    pub(crate) steps: Vec<Step>,
    /// When the call was made, in milliseconds since the world began.
    #[serde(default)]
    pub(crate) made_ms: u64,
    /// True if its caller waits for it all the time.
    #[serde(default)]
    pub(crate) is_awaited: bool,
    /// The end of its caller's wait, in milliseconds since the world began; 0 when it is not known.
    #[serde(default)]
    pub(crate) until_ms: u64,
}

impl Order {
    /// Nothing but to be called.
    pub(crate) fn nothing() -> Self {
        Self {
            call: ledger::new_call(),
            steps: Vec::new(),
            made_ms: ledger::now_ms(),
            is_awaited: false,
            until_ms: 0,
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Waits.
    Wait(u64),
    /// Lets others run.
    Yield,
    /// Adds to the state, and stores it.
    Add(u64),
    /// Calls another grain (or the same one), and waits for its answer.
    Call { grain: u64, timeout_ms: u64, order: Order },
    /// Calls another grain, looks at the answer once, and keeps the future until the other steps
    /// are done; perhaps it comes back to it then.
    Keep { grain: u64, order: Order },
    /// Makes several calls to another grain and wants no answers.
    Send { grain: u64, orders: Vec<Order> },
    /// Panics.
    Panic,
    /// Asks to be deactivated.
    Rest,
    /// Asks to move to another silo.
    Move,
}

#[grain_interface(key = u64, grain = "subject")]
pub(crate) trait Subject {
    /// Does it alone.
    async fn work(&mut self, order: Order) -> Result<u64, StateError>;
    /// Does it in a shared turn; adds nothing.
    async fn look(&self, order: Order) -> u64;
}

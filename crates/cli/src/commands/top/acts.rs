//! Questions and orders that keys send to the cluster.

use emmer::admin::{Admin, GrainName, Question};
use emmer::tables::{Duty, SiloAddress};

use super::super::duty::because;
use super::super::grain::page;

/// Time that turns have to end before an order is over, in milliseconds.
const WITHIN_MS: u64 = 2_000;

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Look(GrainName),
    Deactivate { grain: GrainName, drop_turns: bool },
    Move(GrainName),
    GiveDuty(SiloAddress, Duty),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// A page about a grain.
    Page(GrainName, String),
    /// One line.
    Said(String),
}

impl Act {
    /// The question before an order is given; none for a look.
    pub(super) fn question(&self) -> Option<String> {
        let title = |grain: &GrainName| format!("{}/{}", grain.grain_type, grain.key);
        Some(match self {
            Self::Look(_) => return None,
            Self::Deactivate { grain, drop_turns: false } => format!("End {}?", title(grain)),
            Self::Deactivate { grain, drop_turns: true } => {
                format!("End {} and drop its turns?", title(grain))
            }
            Self::Move(grain) => format!("Move {} to another silo?", title(grain)),
            Self::GiveDuty(silo, duty) => match duty {
                Duty::Full => format!("Have silo {silo} take new grains?"),
                Duty::Cordoned => format!("Have silo {silo} take no new grains?"),
                Duty::Draining => format!("Empty silo {silo}?"),
                _ => format!("Have silo {silo} leave the cluster?"),
            },
        })
    }

    pub(super) async fn run(self, admin: &Admin) -> Done {
        let said = match self {
            Self::Look(grain) => {
                return match admin.grain(grain.clone()).await {
                    Ok(look) => Done::Page(grain, page(&look)),
                    Err(error) => Done::Said(error.to_string()),
                };
            }
            Self::Deactivate { grain, drop_turns } => {
                let because = because(Some("emmer top")).ok();
                let within_ms = WITHIN_MS;
                let order = Question::Deactivate { grain, drop_turns, within_ms, because };
                admin.deactivate(&order).await.map(|outcome| match outcome.left {
                    0 => format!("{} ended, {} turns dropped", outcome.ended, outcome.dropped),
                    left => format!("{left} left: its turns have not ended (D drops them)"),
                })
            }
            Self::Move(grain) => {
                let moved = admin.move_grain(grain, None, Some("emmer top".to_owned())).await;
                moved.map(|moved| format!("moved to silo {}", moved.to))
            }
            Self::GiveDuty(silo, duty) => {
                let order = Question::GiveDuty { duty, because: Some("emmer top".to_owned()) };
                let written = admin.ask::<u64>(Some(silo), &order).await;
                written.map(|version| format!("{duty} in version {version}"))
            }
        };
        Done::Said(said.unwrap_or_else(|error| error.to_string()))
    }
}

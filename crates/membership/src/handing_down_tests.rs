//! Deltas on their way down the tree.

use emmer_core::{Now, Timestamp};

use crate::world::World;
use crate::{Config, Effect, Message};

/// Scenario 496 of the class `outage`: some had read the table before the delta came, and those
/// below them waited.
#[test]
fn a_delta_is_handed_down_by_those_who_have_its_view() {
    const SILOS: u16 = 12;
    let world = World::cluster(&Config::default(), SILOS);
    let now = Now { mono: world.now, wall: Timestamp::default() };
    let root = world.silos[0].machine.me();
    let mut told = Vec::new();
    for process in &world.silos {
        let mut machine = process.machine.clone();
        let delta = machine.last_step();
        assert_eq!(delta.version(), machine.view().version());
        machine.handle_message(now, root, Message::Tree { root, delta });
        let effects = std::iter::from_fn(|| machine.poll_effect());
        told.extend(effects.filter_map(|effect| match effect {
            Effect::Send { to, message: Message::Tree { .. } } => Some(to),
            _ => None,
        }));
    }
    told.sort_unstable();
    let others: Vec<_> =
        world.silos.iter().map(|p| p.machine.me()).filter(|silo| *silo != root).collect();
    assert_eq!(told, others, "everybody once");
}

//! A placement strategy of one's own: a grain goes to the silo whose address has the hash nearest
//! to its own.

use emmer::placement::{PlacementContext, PlacementTarget};
use emmer::prelude::*;

/// A room, by its number.
#[grain_interface(key = u64)]
pub trait Room {
    /// The silo on which this room is active.
    async fn place(&self) -> String;
}

#[derive(Grain, Default)]
#[placement("nearest")]
struct RoomGrain {
    #[context]
    ctx: Option<Ctx>,
}

#[grain]
impl Room for RoomGrain {
    async fn place(&self) -> String {
        self.ctx.as_ref().and_then(Ctx::silo).map(|silo| silo.to_string()).unwrap_or_default()
    }
}

/// The director: any function of the grain and the silos that can host it.
fn nearest(
    target: &PlacementTarget<'_>,
    context: &PlacementContext<'_>,
) -> Option<emmer::tables::SiloAddress> {
    let grain = target.grain.stable_hash();
    context.silos.iter().copied().min_by_key(|silo| silo.stable_hash(0).abs_diff(grain))
}

/// Starts three silos, and says which of them has each of ten rooms.
#[tokio::main]
pub async fn main() -> emmer::Result<()> {
    let mut silos = Vec::new();
    for _ in 0..3 {
        let silo = Silo::builder().store("memory://nearest").cluster_id("nearest");
        let silo = silo.listen("127.0.0.1:0");
        silos.push(silo.host::<dyn Room, RoomGrain>().director("nearest", nearest).start().await?);
    }
    for number in 0..10u64 {
        // Each silo would choose the same one.
        let client = silos[usize::try_from(number)? % 3].grains();
        println!("room {number} is on silo {}", client.grain::<dyn Room>(number).place().await?);
    }
    for silo in silos {
        silo.stop().await?;
    }
    Ok(())
}

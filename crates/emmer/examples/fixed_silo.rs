//! The sample of the placement description: a database says which silo a grain belongs on, and the
//! database takes its time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use emmer::placement::PlacementRequest;
use emmer::prelude::*;
use serde::{Deserialize, Serialize};

/// A room, by its number.
#[grain_interface(key = u64)]
pub trait Room {
    /// The silo on which this room is active.
    async fn place(&self) -> String;
}

/// The class tells its director this: any type that serde knows.
#[derive(Serialize, Deserialize)]
struct From {
    table: String,
}

#[derive(Grain, Default)]
#[placement("fixed_silo", From { table: "rooms".to_owned() })]
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

/// Stands for a database that knows the numbers of silos, and answers late.
struct Numbers;

impl Numbers {
    async fn silo_number(&self, table: &str, key: u64) -> Result<usize, std::io::Error> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let known = table == "rooms" && key < 1_000;
        let unknown = || std::io::Error::other(format!("{table} has no row {key}"));
        if known { Ok(usize::try_from(key % 2).unwrap_or_default()) } else { Err(unknown()) }
    }
}

/// The director. Only the call waits for the database, and no other call.
async fn fixed_silo(
    numbers: Arc<Numbers>,
    request: PlacementRequest,
) -> Result<Option<emmer::tables::SiloAddress>, Box<dyn Error + Send + Sync>> {
    let From { table } = request.data()?;
    let key: u64 = request.grain().key().to_string().parse()?;
    let number = numbers.silo_number(&table, key).await?;
    Ok(request.candidates().nth(number).map(|silo| silo.address()))
}

/// Starts three silos, and says which of them has each of ten rooms.
#[tokio::main]
pub async fn main() -> emmer::Result<()> {
    let numbers = Arc::new(Numbers);
    let mut silos = Vec::new();
    for _ in 0..3 {
        let numbers = numbers.clone();
        let silo = Silo::builder()
            .store("memory://fixed-silo")
            .cluster_id("fixed-silo")
            .listen("127.0.0.1:0")
            .host::<dyn Room, RoomGrain>()
            .async_director("fixed_silo", move |request| fixed_silo(numbers.clone(), request));
        silos.push(silo.start().await?);
    }
    let client = silos[0].grains();
    for number in 0..10u64 {
        println!("room {number} is on silo {}", client.grain::<dyn Room>(number).place().await?);
    }
    // The database knows no such room: the call fails with its sentence.
    if let Err(error) = client.grain::<dyn Room>(1_000u64).place().await {
        println!("{error}");
    }
    for silo in silos {
        silo.stop().await?;
    }
    Ok(())
}

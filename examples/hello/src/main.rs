//! The smallest program: a grain that greets, a silo that hosts it, and a call.

use emmer::prelude::*;

/// A porter, by the name of the house.
#[grain_interface(key = String)]
pub trait Porter {
    /// Greets a guest, and says how many came before.
    async fn greet(&mut self, guest: String) -> Result<String, StateError>;
}

#[derive(Grain)]
struct PorterGrain {
    #[state("guests")]
    guests: Persistent<u64>,
}

#[grain]
impl Porter for PorterGrain {
    async fn greet(&mut self, guest: String) -> Result<String, StateError> {
        let before = *self.guests;
        self.guests.set(before + 1);
        self.guests.write().await?;
        Ok(format!("Hello, {guest}! Guests before you: {before}."))
    }
}

#[emmer::main]
async fn main() -> emmer::Result<()> {
    let silo = Silo::builder()
        .store("sqlite://hello.db")
        .host::<dyn Porter, PorterGrain>()
        .start()
        .await?;
    let porter = silo.grain::<dyn Porter>("grand hotel");
    println!("{}", porter.greet("Ann".to_owned()).await?);
    silo.stop().await?;
    Ok(())
}

#[cfg(test)]
#[emmer::test]
async fn a_porter_counts_guests_over_the_death_of_a_silo(world: emmer::test::World) {
    let mut cluster = world.cluster(2, |silo| silo.host::<dyn Porter, PorterGrain>()).await;
    let porter = cluster.client().await.grain::<dyn Porter>("grand hotel");
    porter.greet("Ann".to_owned()).await.expect("a cluster at rest answers");
    for silo in 0..2 {
        cluster.kill(silo);
        cluster.restart(silo).await;
    }
    let greeting = porter.greet("Bob".to_owned()).timeout(secs(60)).await;
    assert_eq!(greeting.expect("it comes back"), "Hello, Bob! Guests before you: 1.");
}

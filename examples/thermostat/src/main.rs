//! A silo with thermostats: `cargo run -p emmer-example-thermostat`. It switches on the attic's,
//! which reports every hour from then on. Look at it with `emmer reminders --store
//! sqlite://thermostats.db --cluster-id dev`.

use emmer::Silo;
use emmer_example_thermostat::{Thermostat, ThermostatGrain};

#[emmer::main]
async fn main() -> emmer::Result<()> {
    let silo = Silo::builder()
        .store("sqlite://thermostats.db")
        .host::<dyn Thermostat, ThermostatGrain>()
        .start()
        .await?;
    let attic = silo.grain::<dyn Thermostat>("attic");
    attic.switch_on(5, 1).await?;
    println!("the attic's thermostat is on; it has reported {:?}", attic.reports().await?);
    silo.run_until_stopped().await?;
    Ok(())
}

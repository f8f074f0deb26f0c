//! Runs an experiment and prints its table.
//!
//! `cargo run --profile sim -p emmer-sim --example experiment -- coldstart [quick] [profile=default] [silos=1000] [seeds=2]`

use std::path::Path;

use emmer_sim::experiments::{Experiment, Options};

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut options = Options::usual();
    let mut chosen = Vec::new();
    for arg in &args {
        match arg.split_once('=') {
            Some(("profile", name)) => {
                options.profiles.extend(name.parse::<emmer_sim::Profile>().ok());
            }
            Some(("silos", number)) => options.silos = number.parse().unwrap_or(0),
            Some(("seeds", number)) => options.seeds = number.parse().unwrap_or(0),
            _ if arg == "quick" => options.quick = true,
            _ => chosen.extend(Experiment::named(arg)),
        }
    }
    for experiment in chosen {
        let report = experiment.run(&options);
        println!("{}", report.to_text());
        for path in report.write(Path::new("target/reports"))? {
            println!("wrote {}", path.display());
        }
    }
    Ok(())
}

//! The program `emmer` on one store's real server, for `cargo xtask test --store NAME`: the doctor,
//! the demo, and a cluster that outlives a restart of the server.

use std::process::Command;
use std::time::Duration;

use crate::report::{Row, Verdict};
use crate::steps::{self, Context};
use crate::stores::Store;
use crate::{services, workspace};

/// How many departures the demo replays here.
const DEMO_ROWS: &str = "20000";
/// How long the server is away.
const AWAY: &str = "5s";

/// One line for each check; a store without a server of its own here has none, or only those that
/// need none.
pub(crate) fn rows(context: &Context, store: &Store) -> Result<Vec<Row>, String> {
    let Some(server) = store.server else { return Ok(Vec::new()) };
    let url = match services::started(server) {
        Ok(url) => url,
        Err(why) => {
            let row = Row::check(&format!("server {server}"), Verdict::Failed(why), Duration::ZERO);
            return Ok(vec![row]);
        }
    };
    let mut rows = Vec::new();
    rows.extend(steps::check(
        context,
        "doctor",
        emmer(context, store, &["doctor", "--store", &url]),
    )?);
    let demo = ["demo", "--quick", DEMO_ROWS, "--store", &url];
    rows.extend(steps::check(context, "demo", emmer(context, store, &demo))?);
    let xtask = context.program.display();
    let command = |action: &str| format!("'{xtask}' services {action} {server}");
    let (stop, start) = (command("down"), command("up"));
    let outage = [
        "bench",
        "membership",
        "outage",
        "--store",
        &url,
        "--for",
        AWAY,
        "--stop",
        &stop,
        "--start",
        &start,
    ];
    rows.extend(steps::check_goals(
        context,
        "restart of the server",
        emmer(context, store, &outage),
    )?);
    services::run(&services::Action::Down, &[server.to_owned()])?;
    Ok(rows)
}

/// `emmer` with this store's feature, compiled as it is shipped.
fn emmer(context: &Context, store: &Store, arguments: &[&str]) -> Command {
    let mut command = workspace::cargo(&context.root);
    command.args(["run", "--release", "--quiet", "--package", "emmer-cli", "--bin", "emmer"]);
    if let Some(feature) = store.feature {
        command.args(["--features", feature]);
    }
    command.arg("--").args(arguments);
    command
}

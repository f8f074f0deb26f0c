//! Kills silos and web servers under people at work, one after the other, and compares what each
//! has read.
//!
//! Visitors do over HTTP what the page does. In the end each has to have read every line that was
//! said, once and in order.

mod visitor;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use self::visitor::{Origins, Visitor};
use crate::processes::{Kind, Process};

const SILOS: usize = 3;
const WEBS: usize = 2;
const VISITORS: usize = 4;
/// The time between two kills is up to this long: processes are killed at work, and while they
/// start.
const PAUSE_MAX_MS: u64 = 1_500;
/// All visitors have read the last line this long after the last kill, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

/// The arguments of the command `kills`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The number of processes that are killed, one after the other
    #[arg(default_value_t = 20)]
    kills: u32,
    /// Which process is killed when: the same number makes the same choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the chat, kills, and compares.
///
/// # Errors
/// A line was lost or doubled, or a process could not be started.
pub async fn run(Args { kills, seed }: Args) -> emmer::Result<()> {
    let dir = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let mut processes = Vec::new();
    for n in 0..SILOS + WEBS {
        let kind = if n < SILOS { Kind::Silo } else { Kind::Web };
        processes.push(Process::start(kind, &program, dir.path()).await?);
    }
    let webs = processes[SILOS..].iter().map(|web| web.address().to_owned());
    let origins: Origins = webs.collect();

    println!("{SILOS} silos, {WEBS} web servers, {VISITORS} people, seed {seed}");
    let is_over = Arc::new(AtomicBool::new(false));
    let visitors: Vec<_> = (0..VISITORS)
        .map(|number| Visitor::new(number, Arc::clone(&origins), Arc::clone(&is_over)))
        .collect();
    let read: Vec<_> =
        visitors.iter().map(|visitor| tokio::spawn(visitor.clone().read())).collect();
    let said: Vec<_> = visitors.iter().map(|visitor| tokio::spawn(visitor.clone().say())).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    for killed in 1..=kills {
        sleep(Duration::from_millis(rng.random_range(0..PAUSE_MAX_MS))).await;
        let which = rng.random_range(0..processes.len());
        processes[which].kill_and_start().await?;
        if killed % 20 == 0 || killed == kills {
            println!("{killed} kills");
        }
    }
    is_over.store(true, Ordering::Relaxed);

    let all = async {
        let mut lines = BTreeSet::new();
        for said in said {
            lines.extend(said.await?);
        }
        let wanted = lines.len();
        visitors.iter().for_each(|visitor| visitor.leaves_after(wanted));
        let mut heard = Vec::new();
        for read in read {
            heard.push(read.await?);
        }
        Ok::<_, emmer::Error>((lines, heard))
    };
    let late = |_| emmer::Error::new(format!("lines are missing after {PATIENCE:?}"));
    let (lines, heard) = timeout(PATIENCE, all).await.map_err(late)??;
    let mut moves = 0;
    for (number, heard) in heard.iter().enumerate() {
        let heard = heard.as_ref().map_err(|wrong| emmer::Error::new(wrong.clone()))?;
        // Their numbers have no hole. So it is enough that as many came, and that none is missing.
        let missing = lines.iter().filter(|line| !heard.lines.contains(line)).count();
        if heard.lines.len() != lines.len() || missing > 0 {
            let (count, wanted) = (heard.lines.len(), lines.len());
            let text = format!("visitor {number} has read {count} of {wanted}, {missing} missing");
            return Err(emmer::Error::new(text));
        }
        moves += heard.moves;
    }
    println!("{} lines; each visitor has read each once and in order", lines.len());
    println!("the pages went to another web server {moves} times");
    Ok(())
}

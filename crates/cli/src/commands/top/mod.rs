//! `emmer top`: a cluster in the terminal, live.
//!
//! A task gathers pictures of the cluster, a thread reads keys, and the screen is drawn when one of
//! both brings something new. So a silo that does not answer holds up no key.

mod acts;
mod app;
mod draw;
mod rows;
mod sort;

use std::io::IsTerminal;
use std::time::Duration;

use emmer::console::{Gather, Picture, Wants};
use ratatui::crossterm::event::{self, Event};
use tokio::sync::{mpsc, watch};

use self::acts::Done;
use self::app::{App, Step};
use super::reach::ReachArgs;
use crate::exit::{Failure, Result};
use crate::process::runtime;

/// Number of keys that wait for a slow terminal.
const KEYS_MAX: usize = 64;

/// The flags of `emmer top`.
#[derive(clap::Args)]
pub struct Args {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::duty::duration)]
    every: Duration,
    #[command(flatten)]
    reach: ReachArgs,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::usage(
            "emmer top draws on a terminal, and reads keys from it: for programs there is \
             `emmer grains --format json`",
        ));
    }
    let way = args.reach.settle(log)?;
    let every = args.every.max(Duration::from_millis(100));
    runtime()?.block_on(async {
        let reached = way.reach().await?;
        let gather = Gather::new(reached.admin.clone());
        let ended = show(gather, every).await;
        reached.client.close().await;
        ended
    })
}

/// Shows the cluster until a key ends it.
async fn show(gather: Gather, every: Duration) -> Result<()> {
    let admin = gather.admin().clone();
    let (wants, wanted) = watch::channel(Wants::default());
    let (put, mut pictures) = watch::channel(Picture::default());
    let gathering = tokio::spawn(gather_all(gather, every, wanted, put));
    let (done, mut dones) = mpsc::channel::<Done>(KEYS_MAX);
    let mut keys = read_keys();
    let mut terminal = ratatui::try_init().map_err(|error| no_terminal(&error))?;
    let mut app = App::default();
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| draw::draw(frame, &mut app)) {
            break Err(no_terminal(&error));
        }
        wants.send_if_modified(|now| std::mem::replace(now, app.wants()) != app.wants());
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) => match app.key(key) {
                    Step::Stay => {}
                    Step::Quit => break Ok(()),
                    Step::Act(act) => {
                        let (admin, done) = (admin.clone(), done.clone());
                        tokio::spawn(async move {
                            // An error means that the screen is gone.
                            let _ = done.send(act.run(&admin).await).await;
                        });
                    }
                },
                // The size has changed: it is drawn again.
                Some(_) => {}
                None => break Ok(()),
            },
            changed = pictures.changed() => match changed {
                Ok(()) => app.see(pictures.borrow_and_update().clone()),
                Err(_) => break Err(Failure::other("the cluster is no longer looked at")),
            },
            Some(done) = dones.recv() => app.done(done),
        }
    };
    gathering.abort();
    ratatui::restore();
    ended
}

async fn gather_all(
    mut gather: Gather,
    every: Duration,
    mut wanted: watch::Receiver<Wants>,
    put: watch::Sender<Picture>,
) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // Another view is open: it is not to wait.
            changed = wanted.changed() => if changed.is_err() { return },
        }
        let wants = *wanted.borrow_and_update();
        let picture = gather.step(wants).await.clone();
        if put.send(picture).is_err() {
            return;
        }
    }
}

/// Reads keys in a thread of its own, until the receiver is dropped.
fn read_keys() -> mpsc::Receiver<Event> {
    let (put, keys) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if put.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

fn no_terminal(error: &std::io::Error) -> Failure {
    Failure::other(format!("the terminal cannot be drawn on: {error}"))
}

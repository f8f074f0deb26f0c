//! The thread of a process that looks for turns which hold theirs.
//!
//! A task would look too late. tokio's timers and sockets wait while the thread that last looked at
//! them is held, although others are free, until something wakes one of those.

use std::io;
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use emmer_net::contain::contain;
use parking_lot::Mutex;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A silo as the watcher sees it.
pub(crate) trait Watched: Send + Sync {
    /// Looks at the threads of the silo. Returns false when the silo has ended.
    fn look(&self) -> bool;
}

struct Watcher {
    silos: Vec<Weak<dyn Watched>>,
    runs: bool,
}

static WATCHER: Mutex<Watcher> = Mutex::new(Watcher { silos: Vec::new(), runs: false });

/// Looks at `silo` from now on until it ends. One thread looks at all silos of the process.
///
/// # Errors
/// The system starts no thread.
pub(crate) fn watch(silo: Weak<dyn Watched>) -> io::Result<()> {
    let mut watcher = WATCHER.lock();
    if !watcher.runs {
        thread::Builder::new().name("emmer-watcher".to_owned()).spawn(look_on)?;
        watcher.runs = true;
    }
    watcher.silos.push(silo);
    Ok(())
}

/// Looks until no silo is left.
fn look_on() {
    loop {
        thread::sleep(LOOK_EVERY);
        // A look may log, and a log may be slow: the list is free meanwhile.
        let mut silos = std::mem::take(&mut WATCHER.lock().silos);
        silos
            .retain(|silo| silo.upgrade().is_some_and(|silo| contain(|| silo.look()) != Ok(false)));
        let mut watcher = WATCHER.lock();
        watcher.silos.append(&mut silos);
        if watcher.silos.is_empty() {
            watcher.runs = false;
            return;
        }
    }
}

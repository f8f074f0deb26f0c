//! The thread of a process that looks for turns which hold theirs.
//!
//! A task would look too late: tokio's timers and sockets wait while the thread that last polled
//! them is held, although other threads are free.

use std::io;
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use emmer_net::contain::{contain, let_go};
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

/// Watches `silo` until it ends. One thread watches all silos of the process.
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
        silos.retain(|silo| {
            silo.upgrade().is_some_and(|silo| {
                let lives = contain(|| silo.look()) != Ok(false);
                // It may be the last holder, and the silo has values of the application.
                let_go(silo);
                lives
            })
        });
        let mut watcher = WATCHER.lock();
        watcher.silos.append(&mut silos);
        if watcher.silos.is_empty() {
            watcher.runs = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::{Watched, watch};

    const PATIENCE: Duration = Duration::from_secs(30);

    struct Looked(Sender<()>);

    impl Watched for Looked {
        fn look(&self) -> bool {
            self.0.send(()).is_ok()
        }
    }

    /// A silo that ends while the watcher looks at it, with code of the application in its `Drop`.
    struct Ending {
        own: Mutex<Option<Arc<Self>>>,
        dropped: Sender<()>,
    }

    impl Watched for Ending {
        fn look(&self) -> bool {
            *self.own.lock() = None;
            true
        }
    }

    impl Drop for Ending {
        fn drop(&mut self) {
            let _ = self.dropped.send(());
            panic!("a service of the application panics when it is dropped");
        }
    }

    fn looked() -> (Arc<Looked>, Receiver<()>) {
        let (tell, told) = channel();
        (Arc::new(Looked(tell)), told)
    }

    #[test]
    fn a_panic_of_the_last_holder_of_a_silo_ends_no_watch_of_another() {
        let (other, looks) = looked();
        let weak: Weak<Looked> = Arc::downgrade(&other);
        watch(weak).unwrap();
        let (tell, dropped) = channel();
        let ending = Arc::new(Ending { own: Mutex::new(None), dropped: tell });
        let weak: Weak<Ending> = Arc::downgrade(&ending);
        let own = ending.clone();
        *own.own.lock() = Some(ending);
        drop(own);
        watch(weak).unwrap();
        dropped.recv_timeout(PATIENCE).unwrap();
        // One look may have come before the panic, and one in the same round.
        looks.try_iter().for_each(drop);
        for _ in 0..3 {
            looks.recv_timeout(PATIENCE).unwrap();
        }
    }
}

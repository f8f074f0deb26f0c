//! A thread of its own, for what may not wait for a busy runtime.

use std::io;
use std::thread;

use tokio::sync::oneshot;

use super::Spawner;
use crate::elsewhere;

/// A thread with a runtime of its own. In a virtual world, which has one thread, it is the world's.
///
/// Its tasks end when this is dropped, or when the runtime that made it is gone.
#[derive(Debug)]
pub struct OwnThread {
    spawner: Spawner,
    /// Dropped, it ends the thread.
    _runs: Option<oneshot::Sender<()>>,
}

impl OwnThread {
    /// Starts the thread, called `name`, for the silo whose code runs now.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn begin(name: &str) -> io::Result<Self> {
        let main = Spawner::current();
        if elsewhere::host().is_some() {
            return Ok(Self { spawner: main, _runs: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let spawner = Spawner { handle: runtime.handle().clone(), host: None };
        let (runs, ended) = oneshot::channel::<()>();
        // A runtime that is gone drops its tasks, and this one with them.
        let (main_lives, main_gone) = oneshot::channel::<()>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    _ = main_gone => {}
                }
            });
            runtime.shutdown_background();
        })?;
        main.spawn(async move {
            let mut main_lives = main_lives;
            main_lives.closed().await;
        });
        Ok(Self { spawner, _runs: Some(runs) })
    }

    /// The way to start tasks there.
    pub const fn spawner(&self) -> &Spawner {
        &self.spawner
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn it_runs_while_the_runtime_is_blocked_and_ends_with_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (own, ticks) = runtime.block_on(async {
            let own = OwnThread::begin("test-own").unwrap();
            let (tick, ticks) = mpsc::sync_channel(0);
            own.spawner().spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let tick = tick.clone();
                    if tokio::task::spawn_blocking(move || tick.send(())).await.unwrap().is_err() {
                        return;
                    }
                }
            });
            // Nothing else runs on this runtime.
            for _ in 0..3 {
                ticks.recv_timeout(LONG).unwrap();
            }
            (own, ticks)
        });
        drop(runtime);
        while ticks.recv_timeout(LONG).is_ok() {}
        drop(own);
    }
}

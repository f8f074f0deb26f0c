//! A database of its own for one test, on a server that tests share: a server takes seconds to
//! start. It ends with the last of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::local::{Local, Starter};
use crate::{Trouble, skip};

/// A server with databases, whatever it calls them.
pub trait Databases: Starter + 'static {
    /// The name of a store's database.
    const DATABASE: &'static str;

    /// The address of a store in a database.
    fn url_of(port: u16, database: &str) -> String;

    /// The server that the tests of this process share.
    fn shared() -> &'static Mutex<Weak<Local<Self>>>;
}

/// A database for one test.
#[derive(Debug)]
pub struct Database<S: Databases> {
    pub(crate) server: Arc<Local<S>>,
    name: String,
}

impl<S: Databases> Database<S> {
    /// A database on the shared server, which is started by the first who asks; or (`is_alone`) on
    /// a server of its own, which a test may kill.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(settings: &[&str], is_alone: bool) -> Result<Self, Trouble> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Several processes may share a server.
        let name = format!("{}_{}_{number}", S::DATABASE, std::process::id());
        Ok(Self { server: Local::shared(S::shared(), settings, is_alone)?, name })
    }

    /// Starts one for a test that is skipped, loudly, where the server is not installed.
    ///
    /// # Panics
    /// In CI when it is not installed, and everywhere when it is but does not start.
    pub fn start_or_skip(test: &str, settings: &[&str], is_alone: bool) -> Option<Self> {
        Self::start(settings, is_alone).map_err(|trouble| skip(test, &trouble)).ok()
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port that the server listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The server, if no other test uses it.
    pub(crate) fn alone(&mut self) -> Result<&mut Local<S>, Trouble> {
        let shared = || Trouble::Failed("a server that others use is left alone".to_owned());
        Arc::get_mut(&mut self.server).ok_or_else(shared)
    }
}

#[cfg(feature = "suite")]
impl<S: Databases + Send + Sync> crate::suite::TestServer for Database<S> {
    fn version(&self) -> String {
        self.server.version()
    }

    fn port(&self) -> u16 {
        Self::port(self)
    }

    fn url_at(&self, port: u16) -> String {
        S::url_of(port, &self.name)
    }

    fn paged_rows(&self) -> Option<usize> {
        self.server.paged_rows()
    }

    fn knows_repeats(&self) -> bool {
        self.server.knows_repeats()
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }

    fn kill(&mut self) {
        // A shared server is not killed.
        if let Ok(server) = self.alone() {
            server.kill();
        }
    }

    fn start_again(&mut self) -> Result<(), Trouble> {
        self.alone()?.start_again()
    }
}

//! The demo's cluster in a browser.

use std::io::BufRead;

use emmer::Client;
use emmer::console::{Console, ConsoleOptions, Serving};

use super::super::console::failed;
use super::screen::Screen;
use crate::exit::Result;

/// The console of the demo.
pub(super) struct Shown {
    client: Client,
    _serving: Serving,
}

impl Shown {
    /// Serves the console on a free port of this host.
    pub(super) async fn begin(client: Client, screen: &Screen) -> Result<Self> {
        let mut options = ConsoleOptions::default();
        options.acts = true;
        let console = Console::bind(options).await.map_err(failed)?;
        screen.line(&format!("the console is at http://{}/", console.address()));
        let serving = console.serve(client.admin());
        Ok(Self { client, _serving: serving })
    }

    /// Serves on until Enter is pressed, or the standard input ends.
    pub(super) async fn until_enter(self, screen: &Screen) {
        screen.finish();
        screen.line("the silos stay for the console: Enter stops them");
        let (pressed, wait) = tokio::sync::oneshot::channel();
        // A thread of its own: reading cannot be broken off.
        std::thread::spawn(move || {
            let _ = std::io::stdin().lock().read_line(&mut String::new());
            // An error means that the demo was interrupted.
            let _ = pressed.send(());
        });
        let _ = wait.await;
        self.client.close().await;
    }
}

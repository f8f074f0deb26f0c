//! The screen of the demo: lines, and on a terminal a bar below them.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text;

/// Time between two live lines where there is no terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(2);

/// Writer of lines. Cheap to clone.
#[derive(Clone)]
pub(super) struct Screen {
    started: Instant,
    bar: Option<ProgressBar>,
    total: u64,
}

/// The live line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Live {
    pub(super) applied: u64,
    pub(super) calls_per_second: u64,
    pub(super) silos: usize,
    pub(super) activations: u64,
}

impl Screen {
    /// A bar up to `total` when stdout is a terminal.
    pub(super) fn new(total: u64) -> Self {
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { started: Instant::now(), bar, total }
    }

    /// One line, with the time since the start.
    pub(super) fn event(&self, line: &str) {
        let at = self.started.elapsed();
        self.line(&format!("{:>4}.{:03}s  {line}", at.as_secs(), at.subsec_millis()));
    }

    /// One line.
    pub(super) fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) if !bar.is_finished() => bar.println(line),
            _ => {
                // A reader that went away does not stop the demo; the exit code still tells.
                let _ = writeln!(std::io::stdout().lock(), "{line}");
            }
        }
    }

    /// The live line; where there is no terminal only now and then, as `last` remembers.
    pub(super) fn live(&self, live: Live, last: &mut Option<Instant>) {
        let Live { applied, calls_per_second, silos, activations } = live;
        let (calls, activations) = (text::grouped(calls_per_second), text::grouped(activations));
        let message = format!("{calls} calls/s, {silos} silos, {activations} activations");
        if let Some(bar) = &self.bar {
            bar.set_position(applied);
            bar.set_message(message);
        } else if last.is_none_or(|last| last.elapsed() >= PLAIN_EVERY) {
            *last = Some(Instant::now());
            let percent = applied.saturating_mul(100).checked_div(self.total).unwrap_or(100);
            self.event(&format!("{percent:>3}%  {message}"));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

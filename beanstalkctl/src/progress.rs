//! The progress of a long command, on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides all progress bars from now on, because the live view uses the terminal.
pub fn hide() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// indicatif itself draws nothing if standard error is not a terminal.
fn target() -> ProgressDrawTarget {
    if HIDDEN.load(Ordering::Relaxed) { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

/// A progress bar with a rate and the time left, which is removed at the end.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `total` steps.
    pub fn new(what: &str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), target());
        let template = "{msg} [{bar:30}] {human_pos}/{human_len} {per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// A counter, for a total that is not known.
    pub fn counter(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, target());
        if let Ok(style) = ProgressStyle::with_template("{msg} {human_pos} {per_sec}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// Adds `count` finished steps.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

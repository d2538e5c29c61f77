//! How far a long command has come, on standard error where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on nothing is drawn: the live view has the terminal.
pub fn hide() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// indicatif itself draws nothing where standard error is no terminal.
fn target() -> ProgressDrawTarget {
    if HIDDEN.load(Ordering::Relaxed) { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

/// A bar with a rate and the time left; nothing where standard error is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of `total` things.
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

    /// Of nobody knows how many.
    pub fn counter(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, target());
        if let Ok(style) = ProgressStyle::with_template("{msg} {human_pos} {per_sec}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// So many more are done.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

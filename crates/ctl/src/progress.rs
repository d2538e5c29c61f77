//! The progress of a long command, on standard error if that is a terminal.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::with_commas;

static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides all progress bars from now on, because the live view uses the terminal.
pub fn hide() {
    HIDDEN.store(true, Ordering::Relaxed);
}

/// indicatif itself draws nothing if standard error is not a terminal.
fn target() -> ProgressDrawTarget {
    if HIDDEN.load(Ordering::Relaxed) { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

/// The steps per second, rounded for reading.
fn rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // A failure of a write shows in the bar.
    let _ = out.write_str(&shown_rate(state.per_sec()));
}

fn shown_rate(per_second: f64) -> String {
    match per_second {
        small if small < 10.0 => format!("{small:.1}/s"),
        large => format!("{}/s", with_commas(large as u64)),
    }
}

/// A progress bar with a rate and the time left, which is removed at the end.
pub struct ShownProgress(ProgressBar);

impl ShownProgress {
    /// A bar of `total` steps.
    pub fn new(what: &str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), target());
        let template = "{msg} [{bar:30}] {human_pos}/{human_len} {rate}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// A counter, for a total that is not known.
    pub fn counter(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, target());
        if let Ok(style) = ProgressStyle::with_template("{msg} {human_pos} {rate}") {
            bar.set_style(style.with_key("rate", rate));
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// Adds `count` finished steps.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }
}

impl Drop for ShownProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_no_more_digits_than_are_read() {
        assert_eq!(
            [0.123_456, 9.87, 12.345_678, 1_234_567.891].map(shown_rate),
            ["0.1/s", "9.9/s", "12/s", "1,234,567/s"]
        );
    }
}

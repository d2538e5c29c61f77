//! Ctrl-C and SIGTERM: the first signal makes the command stop at the next safe point, the second ends the program.

use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::failure::{Failure, Result};

static SIGNALS: Mutex<u32> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

fn signals() -> MutexGuard<'static, u32> {
    SIGNALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts counting signals. The second one ends the program.
pub fn install() -> Result {
    let handler = || {
        *signals() += 1;
        CHANGED.notify_all();
        if *signals() > 1 {
            process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::Local(format!("cannot watch for signals: {error}")))
}

/// Whether the program has received a signal to stop.
pub fn requested() -> bool {
    *signals() > 0
}

/// [`Failure::Interrupted`] with this message, if the program has received a signal to stop.
pub fn check(message: &str) -> Result {
    if requested() { Err(Failure::Interrupted(message.to_owned())) } else { Ok(()) }
}

/// Waits for `time`, or until a signal stops the program. Returns whether a signal came.
pub fn wait(time: Duration) -> bool {
    let waited = CHANGED.wait_timeout_while(signals(), time, |count| *count == 0);
    let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
    *count > 0
}

//! Ctrl-C, SIGTERM and SIGHUP: the first signal makes the command stop at the next safe point, the second ends the
//! program.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io, process, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

static SIGNALS: Mutex<u32> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

fn signals() -> MutexGuard<'static, u32> {
    SIGNALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts counting signals. The second one ends the program.
pub fn install() -> Result {
    let mut caught = catch().map_err(|error| Failure::Local(format!("cannot watch for signals: {error}")))?;
    thread::spawn(move || {
        for _ in caught.forever() {
            *signals() += 1;
            CHANGED.notify_all();
            if *signals() > 1 {
                process::exit(130);
            }
        }
    });
    Ok(())
}

/// Catches the signals, except those that the program was started to ignore, as by `nohup`.
pub fn catch() -> io::Result<Signals> {
    let ignored = ignored();
    Signals::new([SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0))
}

/// The ignored signals, a bit for each; SIGHUP, signal 1, is bit 0. Only Linux has this file.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
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

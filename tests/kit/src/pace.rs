//! Whether the machine kept time while a test ran.
//!
//! Owns: two threads that pass a byte to each other all the time, as a client and a server do. A test of deadlines that
//! fails while a byte was late proves nothing, and runs again or passes. A test that fails while all bytes were in time
//! has failed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The pause between two bytes.
const PAUSE: Duration = Duration::from_millis(10);

/// A byte that takes longer is late. Tests of deadlines have a second for a few steps, each of which is at most this
/// late.
const LATE: Duration = Duration::from_millis(100);

/// The time for which a test is repeated on a machine that does not keep time.
const MAX_REPEATS: Duration = Duration::from_secs(300);

/// The pace of this machine since the start of the program.
#[derive(Clone)]
pub struct Pace(Arc<Mutex<Beat>>);

struct Beat {
    /// The start of the pause before the byte that is on its way.
    began: Instant,
    /// When the last late byte arrived.
    late: Option<Instant>,
}

impl Pace {
    /// Watches the machine until the program ends.
    pub fn watch() -> std::io::Result<Self> {
        Self::watch_with(|| Ok(()))
    }

    /// As [`Self::watch`], with a sync of a file in `directory` on the way of each byte: for tests of syncs.
    pub fn watch_disk(directory: &Path) -> std::io::Result<Self> {
        let mut file = tempfile::tempfile_in(directory)?;
        Self::watch_with(move || file.write_all(&[0]).and_then(|()| file.sync_data()))
    }

    /// Each byte waits for `step` where it turns back.
    fn watch_with(mut step: impl FnMut() -> std::io::Result<()> + Send + 'static) -> std::io::Result<Self> {
        let (mut near, mut far) = UnixStream::pair()?;
        let pace = Self(Arc::new(Mutex::new(Beat { began: Instant::now(), late: None })));
        let watched = pace.clone();
        std::thread::spawn(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() && step().is_ok() && far.write_all(&byte).is_ok() {}
        });
        std::thread::spawn(move || {
            let mut byte = [0];
            loop {
                watched.beat().began = Instant::now();
                std::thread::sleep(PAUSE);
                let returned = near.write_all(&byte).and_then(|()| near.read_exact(&mut byte));
                let mut beat = watched.beat();
                // This panic poisons the lock: without a watch, nothing can be judged any more.
                returned.expect("a sync of the watched directory has failed");
                if beat.began.elapsed() > LATE {
                    beat.late = Some(Instant::now());
                }
            }
        });
        Ok(pace)
    }

    fn beat(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().expect("the watch goes on")
    }

    /// Whether no byte has been late since `start`.
    pub fn was_kept_since(&self, start: Instant) -> bool {
        let beat = self.beat();
        beat.began.elapsed() <= LATE && beat.late.is_none_or(|late| late < start)
    }

    /// Asserts that less than `limit` has passed since `start`, unless a byte was late since then: how long something
    /// takes on a machine that stands still proves nothing.
    pub fn assert_within(&self, limit: Duration, start: Instant, context: impl FnOnce() -> String) {
        let took = start.elapsed();
        assert!(took < limit || !self.was_kept_since(start), "{took:?} instead of {limit:?}: {}", context());
    }

    /// The result of `run`: its first success, or its first failure while the machine kept time.
    pub fn judge<T, E>(&self, run: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        self.judge_within(Duration::MAX, run)
    }

    /// As [`Self::judge`], for a run that panics if it fails.
    pub fn judge_panics(&self, mut run: impl FnMut()) {
        let caught = || catch_unwind(AssertUnwindSafe(&mut run));
        self.judge(caught).unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// As [`Self::judge`], for a run whose deadlines are further away than `limit`: a failure after a longer time
    /// proves nothing either, because a deadline may have come.
    pub fn judge_within<T, E>(&self, limit: Duration, mut run: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let first = Instant::now();
        loop {
            let start = Instant::now();
            let result = run();
            let in_time = start.elapsed() <= limit && self.was_kept_since(start);
            if result.is_ok() || in_time || first.elapsed() > MAX_REPEATS {
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panicking::wait_until;

    #[test]
    fn nothing_is_judged_after_a_sync_that_has_failed() {
        let pace = Pace::watch_with(|| Err(std::io::ErrorKind::StorageFull.into())).unwrap();
        let judge = || pace.was_kept_since(Instant::now());
        wait_until("a judgement fails", || catch_unwind(AssertUnwindSafe(judge)).is_err());
    }
}

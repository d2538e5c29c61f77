//! The two clocks: a clock that never jumps, and the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::clock_gettime;

use super::platform;

/// Nanoseconds since an arbitrary fixed instant, on a clock that nobody can set.
#[must_use]
#[allow(clippy::missing_panics_doc, reason = "every kernel that runs this has the clock")]
#[inline]
pub fn boot_time_ns() -> u64 {
    let time = clock_gettime(platform::BOOT_CLOCK).expect("the boot clock can be read");
    // The clock starts at zero, so neither part is negative. A conversion to `Duration` would cost a turn more.
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Nanoseconds since 1970 on the wall clock; 0 if the wall clock is set to a time before 1970.
#[must_use]
pub fn wall_time_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    nanoseconds(since_1970)
}

/// Converts a time to nanoseconds; 64 bits are enough for 584 years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_never_runs_backwards() {
        let mut last = boot_time_ns();
        for _ in 0..1000 {
            let now = boot_time_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn wall_time_is_that_of_the_standard_library() {
        let before = wall_time_ns();
        let of_std = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let after = wall_time_ns();
        assert!((u128::from(before)..=u128::from(after)).contains(&of_std));
    }
}

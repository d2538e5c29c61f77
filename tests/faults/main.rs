//! What C beanstalkd does wrong, as its users have reported it, with the real program. What one client can do to the
//! others is in `tests/survive/`.
//!
//! `BEANSTALKD_UNDER_TEST=/path/to/beanstalkd cargo test --test faults` tests another server. With C's server, these
//! tests fail.

mod accepting;
mod connections;
mod life;
mod time;

use std::time::Duration;

use beanstalkd_testkit::panicking::{Server, wait_until};

/// The processor time in which a server must have become idle: more than it needs on a slow machine, and more than the
/// time that a virtual machine may count while it stands still.
const MAX_BEFORE_IDLE: Duration = Duration::from_secs(8);

/// Waits until the server has been idle for this time.
#[track_caller]
fn wait_until_idle(server: &Server, time: Duration) {
    let before = server.usage().cpu_time();
    wait_until("the server is idle", || {
        let is_idle = server.usage().cpu_share_during(time) < 0.05;
        let used = server.usage().cpu_time() - before;
        assert!(used < MAX_BEFORE_IDLE, "expected an idle server, but it has worked for {used:?}");
        is_idle
    });
}
